"""When a worker was asked to read a bundle, and since when one does."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ("dumps", "0001_dumps_as_shown"),
    ]

    operations = [
        migrations.AddField(
            model_name="bundle",
            name="asked_at",
            field=models.DateTimeField(null=True),
        ),
        migrations.AddField(
            model_name="bundle",
            name="reading_since",
            field=models.DateTimeField(null=True),
        ),
        migrations.RunSQL(
            "UPDATE dumps_bundle SET reading_since = brought_at WHERE state = 'reading'", migrations.RunSQL.noop
        ),
    ]
