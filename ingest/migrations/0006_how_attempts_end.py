from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ingest", "0005_unknown_sizes_back_to_least")]

    operations = [
        migrations.AddField(
            model_name="attempt",
            name="end_reason",
            field=models.CharField(
                blank=True,
                choices=[("restarted", "Restarted"), ("silent", "Silent"), ("processes gone", "Processes Gone")],
                default="",
                max_length=16,
            ),
        ),
        migrations.AddField(
            model_name="node", name="batches_after_end", field=models.BigIntegerField(default=0)
        ),
        migrations.AddField(model_name="rank", name="gone_ns", field=models.BigIntegerField(default=0)),
    ]
