"""Who changed a destination: a table that the database refuses to change."""

import django.db.models.deletion
from django.db import migrations, models

MAKE = """
CREATE TRIGGER destination_changes_are_append_only BEFORE UPDATE OR DELETE ON tickets_destinationchange
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
"""
DROP = "DROP TRIGGER destination_changes_are_append_only ON tickets_destinationchange;"
KINDS = [("user", "User"), ("detector", "Detector"), ("api", "Api"), ("ticket", "Ticket")]
ACTS = [("made", "Made"), ("changed", "Changed"), ("removed", "Removed")]
PROTECT = django.db.models.deletion.PROTECT


class Migration(migrations.Migration):
    dependencies = [("tickets", "0002_sending")]

    operations = [
        migrations.CreateModel(
            "DestinationChange",
            [
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("at", models.DateTimeField(auto_now_add=True)),
                ("actor", models.CharField(max_length=150)),
                ("actor_kind", models.CharField(choices=KINDS, max_length=8)),
                ("act", models.CharField(choices=ACTS, max_length=8)),
                ("changed", models.JSONField(default=list)),
                ("destination", models.ForeignKey("tickets.destination", PROTECT, related_name="changes")),
            ],
        ),
        migrations.RunSQL(MAKE, DROP),
    ]
