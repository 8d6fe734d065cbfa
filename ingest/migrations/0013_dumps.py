"""Requests for dumps, and what was answered."""

import django.db.models.deletion
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('ingest', '0012_what_was_let_go'),
    ]

    operations = [
        migrations.CreateModel(
            name='DumpRequest',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kinds', models.JSONField()),
                ('ranks', models.JSONField(null=True)),
                ('looks', models.SmallIntegerField(default=1)),
                ('apart_s', models.FloatField(default=2.0)),
                ('asked_by', models.CharField(blank=True, default='', max_length=150)),
                ('asked_at', models.DateTimeField()),
                ('expires_at', models.DateTimeField()),
                ('state', models.CharField(choices=[('open', 'Open'), ('answered', 'Answered'), ('expired', 'Expired')], default='open', max_length=16)),
                ('bytes', models.BigIntegerField(default=0)),
                ('left_out', models.IntegerField(default=0)),
                ('attempt', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='dump_requests', to='ingest.attempt')),
            ],
        ),
        migrations.CreateModel(
            name='DumpAnswer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('node_name', models.CharField(max_length=128)),
                ('boot', models.CharField(max_length=32)),
                ('look', models.SmallIntegerField()),
                ('received_at', models.DateTimeField(auto_now_add=True)),
                ('request', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='answers', to='ingest.dumprequest')),
            ],
        ),
        migrations.CreateModel(
            name='StoredDump',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=16)),
                ('rank', models.IntegerField()),
                ('pid', models.IntegerField()),
                ('parent', models.IntegerField()),
                ('command', models.CharField(blank=True, default='', max_length=300)),
                ('taken_ns', models.BigIntegerField()),
                ('silent', models.CharField(blank=True, default='', max_length=300)),
                ('by', models.CharField(blank=True, default='', max_length=300)),
                ('length', models.IntegerField(default=0)),
                ('packed', models.BinaryField(default=b'')),
                ('answer', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='parts', to='ingest.dumpanswer')),
            ],
        ),
        migrations.AddConstraint(
            model_name='dumprequest',
            constraint=models.UniqueConstraint(condition=models.Q(('state', 'open')), fields=('attempt',), name='one_open_request_per_attempt'),
        ),
        migrations.AddConstraint(
            model_name='dumpanswer',
            constraint=models.UniqueConstraint(fields=('request', 'node_name', 'boot', 'look'), name='one_answer_per_request_node_and_look'),
        ),
    ]
