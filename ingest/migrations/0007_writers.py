"""Which life of an ingest process committed a row, and in which of its commits.

`ingest_writer.summed` holds the commits whose ops the roll-ups contain; it is written together with them. So what a
killed process had stored but not yet summed can be told from what it had, and is summed by another.
"""

from django.db import migrations

TABLES = ("ingest_trace_batch", "ingest_pinned_batch")
COLUMNS = "ADD COLUMN writer_id bigint NOT NULL DEFAULT 0, ADD COLUMN commit_number bigint NOT NULL DEFAULT 0"

FORWARD = [
    "CREATE TABLE ingest_writer (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " started_at timestamptz NOT NULL DEFAULT now(), summed_at timestamptz NOT NULL DEFAULT now(),"
    " summed int8multirange NOT NULL DEFAULT '{}')",
    *(f"ALTER TABLE {table} {COLUMNS}" for table in TABLES),
]
BACKWARD = [
    *(f"ALTER TABLE {table} DROP COLUMN commit_number, DROP COLUMN writer_id" for table in TABLES),
    "DROP TABLE ingest_writer",
]


class Migration(migrations.Migration):
    dependencies = [("ingest", "0006_how_attempts_end")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
