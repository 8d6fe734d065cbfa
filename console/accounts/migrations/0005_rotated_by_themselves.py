"""Tokens that rotated themselves before it was noted: whoever made the new one bears the old one's label."""

from django.db import migrations
from django.db.models import F


def note_offspring(apps, schema_editor):
    tokens = apps.get_model("accounts", "ApiToken").objects
    tokens.filter(rotated_from__label=F("made_by"), made_with=None).update(made_with=F("rotated_from"))


class Migration(migrations.Migration):
    dependencies = [("accounts", "0004_made_with")]

    operations = [migrations.RunPython(note_offspring, migrations.RunPython.noop)]
