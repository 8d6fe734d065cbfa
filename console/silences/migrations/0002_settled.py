"""A silence says when its incidents were told of it, so that one nobody looked at when it began is not forgotten."""

from __future__ import annotations

from typing import ClassVar

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies: ClassVar = [("silences", "0001_silences")]

    operations: ClassVar = [
        migrations.AddField("silence", "settled_at", models.DateTimeField(null=True, blank=True)),
    ]
