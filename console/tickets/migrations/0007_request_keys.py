"""A repeated request to make a destination makes one."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tickets", "0006_pictures")]

    operations = [
        migrations.AddField(
            "destination", "request_key", models.CharField(blank=True, db_default="", default="", max_length=100)
        ),
        migrations.AddConstraint(
            "destination",
            models.UniqueConstraint(
                condition=models.Q(("request_key", ""), _negated=True),
                fields=["request_key"],
                name="a_repeated_request_is_one_destination",
            ),
        ),
    ]
