"""Roll-ups keep their durations as counts per bin, which parts of several writers add up to exactly; stored batches are
found by the commit that stored them, so that those a killed process did not sum are.

Quantiles of roll-ups written before are not known any more: they could not be added up. Their ops, bytes and mean stay.
"""

from django.db import migrations, models

FORWARD = [
    "CREATE INDEX ingest_trace_batch_commit ON ingest_trace_batch (writer_id, commit_number)",
    "ALTER TABLE ingest_writer ADD COLUMN process text NOT NULL DEFAULT '', ADD COLUMN health jsonb NOT NULL DEFAULT '{}'",
]
BACKWARD = [
    "ALTER TABLE ingest_writer DROP COLUMN health, DROP COLUMN process",
    "DROP INDEX ingest_trace_batch_commit",
]
QUANTILES = ("duration_p50_ns", "duration_p90_ns", "duration_p99_ns")


def remove_quantile(name: str) -> migrations.SeparateDatabaseAndState:
    """Going back, rows that are there need a value; RemoveField alone would have none to give them."""
    return migrations.SeparateDatabaseAndState(
        [
            migrations.RunSQL(
                f"ALTER TABLE ingest_oprollup DROP COLUMN {name}",
                f"ALTER TABLE ingest_oprollup ADD COLUMN {name} bigint NOT NULL DEFAULT 0",
            )
        ],
        [migrations.RemoveField("oprollup", name)],
    )


class Migration(migrations.Migration):
    dependencies = [("ingest", "0007_writers")]
    operations = [
        migrations.RunSQL(FORWARD, BACKWARD),
        *map(remove_quantile, QUANTILES),
        migrations.AddField("oprollup", "bytes_timed", models.BigIntegerField(default=0)),
        migrations.AddField("oprollup", "bins", models.BinaryField(default=b"")),
    ]
