"""Incidents of before get the severity of the symptom they opened with; later symptoms were only noted in words."""

from django.db import migrations

SET = """
UPDATE incidents_incident SET severity =
  CASE symptom WHEN 'straggler' THEN 'medium' WHEN 'external' THEN 'medium' WHEN 'idle' THEN 'low' ELSE 'high' END;
"""


class Migration(migrations.Migration):
    dependencies = [("incidents", "0005_workflow")]

    operations = [migrations.RunSQL(SET, migrations.RunSQL.noop)]
