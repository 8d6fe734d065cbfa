"""Deliveries that are on their way are marked, so that later news does not merge into what is already said."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tickets", "0001_tickets")]

    operations = [
        migrations.AddField("delivery", "sending_at", models.DateTimeField(blank=True, null=True)),
    ]
