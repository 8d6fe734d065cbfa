"""Ranks that may have started it: of a tie nobody is blamed. Of incidents of before they are their culprits."""

from django.apps.registry import Apps
from django.db import migrations, models
from django.db.backends.base.schema import BaseDatabaseSchemaEditor


def as_blamed(apps: Apps, _: BaseDatabaseSchemaEditor) -> None:
    incidents = apps.get_model("incidents", "Incident").objects
    incidents.update(suspects=models.F("culprits"), n_suspects=models.F("n_culprits"))


class Migration(migrations.Migration):
    dependencies = [("incidents", "0010_where_it_happened")]

    operations = [
        migrations.AddField(
            "incident",
            "suspects",
            models.JSONField(blank=True, db_default=models.Value([], models.JSONField()), default=list),
        ),
        migrations.AddField("incident", "n_suspects", models.PositiveIntegerField(db_default=0, default=0)),
        migrations.RunPython(as_blamed, migrations.RunPython.noop),
    ]
