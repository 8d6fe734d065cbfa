"""Whether the nodes of all culprits are known. Of incidents of before it is not, until their next diagnosis."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("incidents", "0007_reviews_are_append_only")]

    operations = [
        migrations.AddField(
            model_name="incident",
            name="nodes_known",
            field=models.BooleanField(db_default=False, default=False),
        ),
    ]
