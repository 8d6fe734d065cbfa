"""Open incidents that a new destination was not told of at once are counted."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("tickets", "0008_uploaded_pictures")]

    operations = [
        migrations.AddField("destination", "n_left_out", models.PositiveIntegerField(db_default=0, default=0)),
    ]
