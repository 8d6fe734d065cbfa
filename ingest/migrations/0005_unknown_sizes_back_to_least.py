"""Going back only: a size nobody said becomes the least it can be, since the schema before knows no unknown."""

from django.db import migrations

LEAST = """
UPDATE ingest_communicator c SET n_ranks = 1 + coalesce(
    (SELECT max(m.comm_rank) FROM ingest_commmember m WHERE m.communicator_id = c.id), 0
) WHERE n_ranks = 0
"""


class Migration(migrations.Migration):
    dependencies = [("ingest", "0004_sizes_may_be_unknown")]

    operations = [migrations.RunSQL(migrations.RunSQL.noop, LEAST)]
