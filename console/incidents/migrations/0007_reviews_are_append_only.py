"""What people found out afterwards is evidence like a timeline: the database refuses to change or delete it."""

from django.db import migrations

MAKE = """
CREATE TRIGGER reviews_are_append_only BEFORE UPDATE OR DELETE ON incidents_review
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
"""
DROP = "DROP TRIGGER reviews_are_append_only ON incidents_review;"


class Migration(migrations.Migration):
    dependencies = [("incidents", "0006_severity_of_symptom")]

    operations = [migrations.RunSQL(MAKE, DROP)]
