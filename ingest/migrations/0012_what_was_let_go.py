"""What retention let go of, by kind."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ingest", "0011_what_is_known_of_nodes")]

    operations = [
        migrations.CreateModel(
            name="LetGo",
            fields=[
                ("kind", models.CharField(max_length=16, primary_key=True, serialize=False)),
                ("n", models.BigIntegerField()),
                ("last_at", models.DateTimeField()),
            ],
        ),
    ]
