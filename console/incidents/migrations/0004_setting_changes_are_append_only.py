"""Who changed a job's threshold is evidence like a timeline: the database itself refuses to change or delete it."""

from django.db import migrations

MAKE = """
CREATE TRIGGER setting_changes_are_append_only BEFORE UPDATE OR DELETE ON incidents_settingchange
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
"""
DROP = "DROP TRIGGER setting_changes_are_append_only ON incidents_settingchange;"


class Migration(migrations.Migration):
    dependencies = [("incidents", "0003_settings_and_pauses")]

    operations = [migrations.RunSQL(MAKE, DROP)]
