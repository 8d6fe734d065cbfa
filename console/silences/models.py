"""Silences: what nobody is to be woken for, until when, and why. Fields and constraints only.

A maintenance is a silence of nodes, racks or clusters that people work on. A silence is never changed but to end it early,
so that who silenced what, and why, can be read later.
"""

from __future__ import annotations

from django.db import models
from django.db.models import F, Q


class Kind(models.TextChoices):
    SILENCE = "silence"
    MAINTENANCE = "maintenance"


class Silence(models.Model):
    """Incidents of a team that match every matcher page nobody from `starts_at` to `ends_at`.

    matchers: as matching.py reads them. ended_at: when somebody ended it early; ends_at is then that time. settled_at: when
    all incidents were told that it had begun. request_key (a hash of the actor's own) makes a repeated request the same
    silence.
    """

    team = models.ForeignKey("ingest.Team", models.PROTECT, related_name="silences")
    kind = models.CharField(max_length=16, choices=Kind.choices, default=Kind.SILENCE)
    matchers = models.JSONField()
    reason = models.TextField()
    starts_at = models.DateTimeField()
    ends_at = models.DateTimeField()
    made_at = models.DateTimeField()
    made_by = models.CharField(max_length=150)
    made_by_kind = models.CharField(max_length=16)
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.CharField(max_length=150, default="", blank=True)
    settled_at = models.DateTimeField(null=True, blank=True)
    request_key = models.CharField(max_length=100, default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(reason=""), name="a_silence_has_a_reason"),
            models.CheckConstraint(condition=Q(ends_at__gte=F("starts_at")), name="a_silence_ends_later"),
            models.CheckConstraint(condition=Q(kind__in=Kind.values), name="silence_kind_is_known"),
            models.UniqueConstraint(
                fields=["request_key"], condition=~Q(request_key=""), name="a_repeated_request_is_one_silence"
            ),
        ]
        indexes = [models.Index(fields=["team", "ends_at"], name="silences_in_force")]

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}: {self.reason}"
