"""Traces and roll-ups become hypertables where TimescaleDB is to be had and nothing is stored yet.

A database that holds something is left as it is, for copying it may take hours: `manage.py move_traces` does that while
everything runs. Backwards, all that is stored returns to native partitions, whose migrations come before.
"""

import django.db.models.deletion
from django.db import migrations, models

from ingest.traces.database import connect
from ingest.traces.hypertables import why_not
from ingest.traces.moving import move
from ingest.traces.stores import HYPERTABLES, NATIVE, is_empty


def use_hypertables(apps, schema_editor):
    with connect() as connection:
        empty = is_empty(connection)
    if empty and not why_not():
        _move(HYPERTABLES)


def use_partitions(apps, schema_editor):
    _move(NATIVE)


def _move(store):
    with connect() as connection:
        move(connection, store, lambda progress: None)


class Migration(migrations.Migration):
    # The move has a connection and transactions of its own, which must not wait for this one's.
    atomic = False
    dependencies = [("ingest", "0009_since_when_we_hear")]
    operations = [
        migrations.AlterField(
            model_name="oprollup",
            name="attempt",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="rollups",
                to="ingest.attempt",
            ),
        ),
        migrations.RunPython(use_hypertables, use_partitions),
    ]
