from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("ingest", "0003_late_arrivals")]

    operations = [
        migrations.RemoveConstraint(model_name="communicator", name="a_communicator_has_ranks"),
        migrations.AddConstraint(
            model_name="communicator",
            constraint=models.CheckConstraint(
                condition=models.Q(("n_ranks__gte", 0)), name="a_communicator_has_ranks_or_unknown"
            ),
        ),
    ]
