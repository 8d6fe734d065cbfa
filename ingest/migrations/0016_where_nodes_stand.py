"""The cluster and rack that a node's agent declares; empty of nodes that declare none, and of those heard before."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ingest", "0015_traffic")]

    operations = [
        migrations.AddField("node", name, models.CharField(max_length=32, default="", db_default="", blank=True))
        for name in ("cluster", "rack")
    ]
