"""What is kept of dumps beside the dumps themselves: how pages show them, and bundles that somebody brought."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class DumpSummary(models.Model):
    """A request's dumps as pages show them (rca/dumps/dumped_view.py); made by a worker, and made anew when more has come.

    n_answers: of how many answers of nodes it was made. took_s: how long that took: what takes long is made less often. is_ripe:
    nobody was waited for any longer, so that a diagnosis could rest on it.
    """

    request = models.OneToOneField("ingest.DumpRequest", models.CASCADE, related_name="summary")
    n_answers = models.IntegerField()
    made_at = models.DateTimeField()
    took_s = models.FloatField()
    is_ripe = models.BooleanField(default=False)
    taken_ns = models.BigIntegerField(default=0)
    stacks = models.JSONField(null=True)
    recorder = models.JSONField(null=True)

    def __str__(self) -> str:
        return f"summary of {self.request}"


class Bundle(models.Model):
    """Dumps of a job that nobody traced, brought as a zip file; kept for a day. answer: what was read in it.

    asked_at: when a worker was last asked to read it; reading_since: when one began to.
    """

    class State(models.TextChoices):
        WAITING = "waiting"
        READING = "reading"
        DONE = "done"
        REFUSED = "refused"

    team = models.ForeignKey("ingest.Team", models.CASCADE, related_name="bundles")
    key = models.CharField(max_length=32, unique=True)
    name = models.CharField(max_length=200)
    size_bytes = models.BigIntegerField()
    brought_by = models.CharField(max_length=150)
    brought_at = models.DateTimeField()
    asked_at = models.DateTimeField(null=True)
    reading_since = models.DateTimeField(null=True)
    state = models.CharField(max_length=16, choices=State.choices, default=State.WAITING)
    progress = models.FloatField(default=0.0)
    refused = models.TextField(default="", blank=True)
    answer = models.JSONField(null=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=(Q(state="refused") & ~Q(refused="")) | (~Q(state="refused") & Q(refused="")),
                name="a_refused_bundle_says_why",
            ),
            models.CheckConstraint(
                condition=Q(state="done", answer__isnull=False) | (~Q(state="done") & Q(answer=None)),
                name="a_bundle_that_is_done_has_an_answer",
            ),
        ]
        indexes = [models.Index(fields=["brought_at"], name="oldest_bundles")]

    def __str__(self) -> str:
        return f"bundle {self.key}: {self.name}"
