"""Evidence bundles: everything known of an incident as one zip file, built by a worker and kept for some days."""

from __future__ import annotations

from django.db import models
from django.db.models import Q


class EvidenceBundle(models.Model):
    """One file that somebody asked for. key: names it in the folder, and nowhere else.

    step, progress: what is being put in, and how much of all is. revision: the newest diagnosis in it, 0 for none. left_out:
    what did not go in and why, in sentences; the file's own manifest says the same. asked_at: when a worker was last asked to
    build it; building_since: when one began to.
    """

    class State(models.TextChoices):
        WAITING = "waiting"
        BUILDING = "building"
        DONE = "done"
        FAILED = "failed"

    incident = models.ForeignKey("incidents.Incident", models.CASCADE, related_name="evidence_bundles")
    key = models.CharField(max_length=32, unique=True)
    wanted_by = models.CharField(max_length=150)
    wanted_at = models.DateTimeField()
    asked_at = models.DateTimeField(null=True)
    building_since = models.DateTimeField(null=True)
    done_at = models.DateTimeField(null=True)
    state = models.CharField(max_length=16, choices=State.choices, default=State.WAITING)
    step = models.CharField(max_length=80, default="", blank=True)
    progress = models.FloatField(default=0.0)
    revision = models.PositiveIntegerField(default=0)
    size_bytes = models.BigIntegerField(default=0)
    n_files = models.PositiveIntegerField(default=0)
    left_out = models.JSONField(default=list, blank=True)
    failed = models.TextField(default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=Q(state__in=["waiting", "building", "done", "failed"]), name="evidence_state_is_known"
            ),
            models.CheckConstraint(
                condition=(Q(state="failed") & ~Q(failed="")) | (~Q(state="failed") & Q(failed="")),
                name="failed_evidence_says_why",
            ),
            models.UniqueConstraint(
                fields=["incident"],
                condition=Q(state__in=["waiting", "building"]),
                name="one_evidence_bundle_is_built_at_a_time",
            ),
        ]
        indexes = [models.Index(fields=["wanted_at"], name="oldest_evidence")]

    def __str__(self) -> str:
        return f"evidence of incident {self.incident_id}: {self.state}"
