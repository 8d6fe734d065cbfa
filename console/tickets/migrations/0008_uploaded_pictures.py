"""Which pictures of a delivery are there already."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tickets", "0007_request_keys")]

    operations = [
        migrations.AddField("ticketpicture", "uploaded_as", models.CharField(blank=True, max_length=1000, null=True))
    ]
