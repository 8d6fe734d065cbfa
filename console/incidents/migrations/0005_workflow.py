"""Handling: assignment, acknowledgements that end, silences, attached incidents, reviews, saved views."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('incidents', '0004_setting_changes_are_append_only'),
        ('ingest', '0013_dumps'),
        ('silences', '0001_silences'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='Review',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('at', models.DateTimeField()),
                ('actor', models.CharField(max_length=150)),
                ('alarm', models.CharField(choices=[('real', 'Real'), ('noise', 'Noise'), ('false', 'False')], max_length=8)),
                ('verdict', models.CharField(choices=[('right', 'Right'), ('partly', 'Partly'), ('wrong', 'Wrong'), ('unknown', 'Unknown')], max_length=8)),
                ('rule', models.CharField(blank=True, default='', max_length=64)),
                ('cause', models.TextField(blank=True, default='')),
                ('component', models.CharField(blank=True, default='', max_length=32)),
                ('culprits', models.JSONField(blank=True, default=list)),
                ('node', models.CharField(blank=True, default='', max_length=128)),
            ],
        ),
        migrations.CreateModel(
            name='SavedView',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=60)),
                ('query', models.CharField(max_length=1000)),
                ('made_at', models.DateTimeField()),
            ],
        ),
        migrations.AddField(
            model_name='incident',
            name='acknowledged_reach',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='incident',
            name='acknowledged_severity',
            field=models.CharField(blank=True, choices=[('low', 'Low'), ('medium', 'Medium'), ('high', 'High')], default='', max_length=8),
        ),
        migrations.AddField(
            model_name='incident',
            name='acknowledged_until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AddField(
            model_name='incident',
            name='acted_version',
            field=models.PositiveIntegerField(default=1),
        ),
        migrations.AddField(
            model_name='incident',
            name='assignee',
            field=models.CharField(blank=True, default='', max_length=150),
        ),
        migrations.AddField(
            model_name='incident',
            name='attached_to',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='attached', to='incidents.incident'),
        ),
        migrations.AddField(
            model_name='incident',
            name='culprit_nodes',
            field=models.JSONField(blank=True, default=list),
        ),
        migrations.AddField(
            model_name='incident',
            name='n_attached',
            field=models.PositiveIntegerField(default=0),
        ),
        migrations.AddField(
            model_name='incident',
            name='review',
            field=models.CharField(blank=True, default='', max_length=16),
        ),
        migrations.AddField(
            model_name='incident',
            name='severity',
            field=models.CharField(choices=[('low', 'Low'), ('medium', 'Medium'), ('high', 'High')], default='high', max_length=8),
        ),
        migrations.AddField(
            model_name='incident',
            name='silence',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='incidents', to='silences.silence'),
        ),
        migrations.AddField(
            model_name='incident',
            name='silenced_until',
            field=models.DateTimeField(blank=True, null=True),
        ),
        migrations.AlterField(
            model_name='timelineentry',
            name='after',
            field=models.CharField(blank=True, default='', max_length=150),
        ),
        migrations.AlterField(
            model_name='timelineentry',
            name='before',
            field=models.CharField(blank=True, default='', max_length=150),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(condition=models.Q(('attached_to__isnull', False)), fields=['attached_to'], name='incident_attached'),
        ),
        migrations.AddIndex(
            model_name='incident',
            index=models.Index(condition=models.Q(('acknowledged_until__isnull', False)), fields=['acknowledged_until'], name='incident_runs_out'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.CheckConstraint(condition=models.Q(('severity__in', ['low', 'medium', 'high'])), name='severity_is_known'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('silence', None), ('silenced_until', None)), models.Q(('silence__isnull', False), ('silenced_until__isnull', False)), _connector='OR'), name='silenced_says_by_what_and_until_when'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.CheckConstraint(condition=models.Q(('acknowledged_until', None), ('state', 'acknowledged'), _connector='OR'), name='only_an_acknowledgement_runs_out'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.CheckConstraint(condition=models.Q(('attached_to', models.F('id')), _negated=True), name='nothing_is_attached_to_itself'),
        ),
        migrations.AddConstraint(
            model_name='incident',
            constraint=models.CheckConstraint(condition=models.Q(('attached_to', None), ('n_attached', 0), _connector='OR'), name='attached_incidents_end_at_a_root'),
        ),
        migrations.AddField(
            model_name='review',
            name='entry',
            field=models.OneToOneField(on_delete=django.db.models.deletion.PROTECT, related_name='review', to='incidents.timelineentry'),
        ),
        migrations.AddField(
            model_name='review',
            name='incident',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='reviews', to='incidents.incident'),
        ),
        migrations.AddField(
            model_name='savedview',
            name='owner',
            field=models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='views', to=settings.AUTH_USER_MODEL),
        ),
        migrations.AddField(
            model_name='savedview',
            name='team',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='views', to='ingest.team'),
        ),
        migrations.AddIndex(
            model_name='review',
            index=models.Index(fields=['incident', '-id'], name='newest_reviews'),
        ),
        migrations.AddConstraint(
            model_name='review',
            constraint=models.CheckConstraint(condition=models.Q(('alarm__in', ['real', 'noise', 'false'])), name='review_alarm_is_known'),
        ),
        migrations.AddConstraint(
            model_name='review',
            constraint=models.CheckConstraint(condition=models.Q(('verdict__in', ['right', 'partly', 'wrong', 'unknown'])), name='review_verdict_is_known'),
        ),
        migrations.AddConstraint(
            model_name='savedview',
            constraint=models.UniqueConstraint(fields=('team', 'owner', 'name'), name='one_view_per_owner_and_name', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='savedview',
            constraint=models.CheckConstraint(condition=models.Q(('name', ''), _negated=True), name='a_view_has_a_name'),
        ),
    ]
