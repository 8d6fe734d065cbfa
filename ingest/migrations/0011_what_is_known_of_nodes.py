"""What spares joins and restarts most of their queries, and from where on a boot's numbers are known."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ingest", "0010_hypertables")]

    operations = [
        migrations.AddField("attempt", "to_infer", models.BooleanField(default=False)),
        migrations.AddIndex(
            "attempt",
            models.Index(fields=["id"], condition=models.Q(to_infer=True), name="attempts_to_infer"),
        ),
        migrations.AddField("node", "comm_tables", models.BinaryField(default=b"")),
        migrations.AddField("boot", "floor", models.BigIntegerField(default=0)),
    ]
