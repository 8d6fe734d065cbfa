"""With which token an API token was made."""

from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [("accounts", "0003_scopes_and_kinds")]

    operations = [
        migrations.AddField(
            "apitoken",
            "made_with",
            models.ForeignKey("accounts.apitoken", models.SET_NULL, null=True, blank=True, related_name="offspring"),
        ),
    ]
