"""How often a pass over an attempt's stages failed, and up to where an ended attempt was cut."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("stages", "0001_window_packets")]

    operations = [
        migrations.AddField(model_name="stagecursor", name="tries", field=models.JSONField(default=dict)),
        migrations.AddField(
            model_name="stagecursor", name="finished_ns", field=models.BigIntegerField(db_default=0, default=0)
        ),
    ]
