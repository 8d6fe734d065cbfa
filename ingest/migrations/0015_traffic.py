"""A column for what each op moved over each flow: read where bytes on the wire are judged, and by no look."""

from django.db import migrations

TABLES = ("ingest_trace_batch", "ingest_pinned_batch")

FORWARD = [
    statement
    for table in TABLES
    for statement in (
        f"ALTER TABLE {table} ADD COLUMN traffic bytea",
        f"ALTER TABLE {table} ALTER COLUMN traffic SET STORAGE EXTERNAL",
    )
]
BACKWARD = [f"ALTER TABLE {table} DROP COLUMN traffic" for table in TABLES]


class Migration(migrations.Migration):
    dependencies = [("ingest", "0014_stages")]
    operations = [migrations.RunSQL(FORWARD, BACKWARD)]
