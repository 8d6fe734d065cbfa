"""Since when ingest could hear, and of which attempt: what was not heard while nobody listened is no silence."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ingest", "0008_exact_rollups")]

    operations = [
        migrations.AddField(
            model_name="attempt", name="heard_since", field=models.DateTimeField(blank=True, null=True)
        ),
        migrations.CreateModel(
            name="Listening",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("since", models.DateTimeField()),
                ("until", models.DateTimeField()),
            ],
        ),
    ]
