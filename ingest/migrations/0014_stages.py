"""A column for the steps of training loops that record their stages: read every few seconds, and without completions."""

from django.db import migrations

TABLES = ("ingest_trace_batch", "ingest_pinned_batch")

FORWARD = [
    statement
    for table in TABLES
    for statement in (
        f"ALTER TABLE {table} ADD COLUMN stage bytea",
        f"ALTER TABLE {table} ALTER COLUMN stage SET STORAGE EXTERNAL",
    )
]
BACKWARD = [f"ALTER TABLE {table} DROP COLUMN stage" for table in TABLES]


class Migration(migrations.Migration):
    dependencies = [("ingest", "0013_dumps")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
