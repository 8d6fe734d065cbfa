"""Window packets of stages, and up to where each attempt has been cut: fields only; store.py writes them.

The table of packets is cut by time (migration 0001), so old ones go a month's day at a time; no foreign key leads out of it.
"""

from __future__ import annotations

from django.db import models


class StagePacket(models.Model):
    """One window of one group of an attempt (rca/frontier/packet.py). leader: the rank that leads, or enters last; null:
    nobody. lasting_s: step_s without the longest few steps; error_s: how well it is known. body: the packet, with its
    report and verdict."""

    attempt = models.ForeignKey("ingest.Attempt", models.CASCADE, related_name="stage_packets", db_constraint=False)
    role = models.CharField(max_length=200, default="", blank=True)
    ended_at = models.DateTimeField()
    start_ns = models.BigIntegerField()
    end_ns = models.BigIntegerField()
    first_step = models.BigIntegerField()
    last_step = models.BigIntegerField()
    n_ranks = models.IntegerField()
    verdict = models.CharField(max_length=16)
    stage = models.CharField(max_length=64, default="", blank=True)
    leader = models.IntegerField(null=True)
    step_s = models.FloatField()
    usual_s = models.FloatField(default=0.0)
    lasting_s = models.FloatField()
    error_s = models.FloatField()
    body = models.JSONField()

    class Meta:
        indexes = [models.Index(fields=["attempt", "end_ns"], name="stage_packets_by_time")]

    def __str__(self) -> str:
        return f"{self.attempt_id} {self.role} steps {self.first_step}–{self.last_step}"


class StageCursor(models.Model):
    """Up to where an attempt's stages have been cut. read_ns: data time up to which rows were read; groups: role → cursor.

    is_empty: no stage row was ever seen. gaps: stretches of a group that could not be cut and were stepped over, counted.
    failed: why the newest pass did not end; tries: role → how often in a row it failed there. finished_ns: newest data that
    there was when what the ended attempt had left was cut; 0 while it runs.
    """

    attempt = models.OneToOneField("ingest.Attempt", models.CASCADE, related_name="stage_cursor")
    read_ns = models.BigIntegerField(default=0)
    groups = models.JSONField(default=dict)
    is_empty = models.BooleanField(default=True)
    gaps = models.IntegerField(default=0)
    failed = models.CharField(max_length=300, default="", blank=True)
    tries = models.JSONField(default=dict)
    finished_ns = models.BigIntegerField(default=0, db_default=0)

    def __str__(self) -> str:
        return f"stages of {self.attempt_id} up to {self.read_ns}"
