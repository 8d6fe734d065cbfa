"""The trace tables, which Django's models cannot express: range partitions, external bytea, a multirange.

No foreign keys lead out of them: a partition is dropped as a whole, and 1,250 batches a second need no look-ups.
"""

from django.db import migrations

COLUMNS = """
    received_at timestamptz NOT NULL,
    attempt_id bigint NOT NULL,
    node_id bigint NOT NULL,
    boot_pk bigint NOT NULL,
    number bigint NOT NULL,
    start_ns bigint NOT NULL,
    end_ns bigint NOT NULL,
    shift_ns bigint NOT NULL,
    ops bytea STORAGE EXTERNAL,
    live bytea STORAGE EXTERNAL,
    flow bytea STORAGE EXTERNAL
"""

FORWARD = [
    f"CREATE TABLE ingest_trace_batch ({COLUMNS}) PARTITION BY RANGE (received_at)",
    "CREATE INDEX ingest_trace_batch_span ON ingest_trace_batch (attempt_id, end_ns)",
    f"CREATE TABLE ingest_pinned_batch ({COLUMNS}, PRIMARY KEY (attempt_id, boot_pk, number))",
    "CREATE INDEX ingest_pinned_batch_span ON ingest_pinned_batch (attempt_id, end_ns)",
    "ALTER TABLE ingest_boot ADD COLUMN received int8multirange NOT NULL DEFAULT '{}'",
    # Every batch rewrites its boot's and its node's row: leave room on the page so that no index is touched.
    "ALTER TABLE ingest_boot SET (fillfactor = 50)",
    "ALTER TABLE ingest_node SET (fillfactor = 50)",
]
BACKWARD = [
    "ALTER TABLE ingest_node RESET (fillfactor)",
    "ALTER TABLE ingest_boot RESET (fillfactor)",
    "ALTER TABLE ingest_boot DROP COLUMN received",
    "DROP TABLE ingest_pinned_batch",
    "DROP TABLE ingest_trace_batch",
]


class Migration(migrations.Migration):
    dependencies = [("ingest", "0001_jobs_and_nodes")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
