"""Clusters of an incident's nodes and racks of its culprits. Of incidents of before both are not known."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("incidents", "0009_wanted_pace")]

    operations = [
        migrations.AddField(
            "incident",
            name,
            models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list),
        )
        for name in ("culprit_racks", "clusters")
    ]
