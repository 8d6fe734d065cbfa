"""Tokens narrowed to acts, who made them, when they were used; acts of other systems and of our own in the audit."""

import django.contrib.postgres.fields
from django.db import migrations, models

BEFORE = ["user", "api", "command", "provider", "nobody"]
KINDS = [*BEFORE, "ticket", "system"]
CHOICES = [(kind, kind.capitalize()) for kind in ("user", "api", "command", "provider", "ticket", "system", "nobody")]
SCOPES = django.contrib.postgres.fields.ArrayField(
    models.CharField(max_length=32), blank=True, db_default=[], default=list, size=None
)


def kinds(known: list[str]) -> models.CheckConstraint:
    return models.CheckConstraint(condition=models.Q(actor_kind__in=known), name="audit_kind_is_known")


class Migration(migrations.Migration):
    dependencies = [("accounts", "0002_audit")]

    operations = [
        migrations.AddField("apitoken", "scopes", SCOPES),
        migrations.AddField("apitoken", "made_by", models.CharField(blank=True, db_default="", default="", max_length=150)),
        migrations.AddField("apitoken", "last_used_at", models.DateTimeField(blank=True, null=True)),
        migrations.AddField(
            "apitoken",
            "rotated_from",
            models.ForeignKey(
                "accounts.apitoken",
                models.SET_NULL,
                null=True,
                blank=True,
                related_name="rotated_to",
            ),
        ),
        migrations.AlterField("auditentry", "actor_kind", models.CharField(choices=CHOICES, max_length=8)),
        migrations.RemoveConstraint("auditentry", "audit_kind_is_known"),
        migrations.AddConstraint("auditentry", kinds(KINDS)),
    ]
