"""A timeline is evidence: the database itself refuses to change or delete an entry (or a diagnosis revision)."""

from django.db import migrations

MAKE = """
CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'integrity_constraint_violation';
END
$$;
CREATE TRIGGER timeline_is_append_only BEFORE UPDATE OR DELETE ON incidents_timelineentry
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
CREATE TRIGGER revisions_are_append_only BEFORE UPDATE OR DELETE ON incidents_diagnosisrevision
  FOR EACH ROW EXECUTE FUNCTION refuse_change();
"""
DROP = """
DROP TRIGGER timeline_is_append_only ON incidents_timelineentry;
DROP TRIGGER revisions_are_append_only ON incidents_diagnosisrevision;
DROP FUNCTION refuse_change();
"""


class Migration(migrations.Migration):
    dependencies = [("incidents", "0001_incidents")]

    operations = [migrations.RunSQL(MAKE, DROP)]
