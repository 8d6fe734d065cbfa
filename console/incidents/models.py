"""Incidents and what is kept about them: fields and constraints only.

Incident.state is written by lifecycle.py alone, Incident.condition by watch.py through it. What must hold is held by
the database too: one unresolved incident per key and per attempt, known states, a reason and a time where a state needs
one. The timeline is append-only; a trigger in a migration refuses everything else.
"""

from __future__ import annotations

from django.db import models
from django.db.models import Q

LOOK_FAILED = "failed"
"""The kind of a look that ended in an error; others carry the symptom's kind, or nothing."""


class State(models.TextChoices):
    """The workflow: people's truth."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class ConditionState(models.TextChoices):
    """The condition: the machine's truth."""

    FIRING = "firing"
    CLEARING = "clearing"
    CLEAR = "clear"


class Certainty(models.TextChoices):
    SUSPECTED = "suspected"
    DIAGNOSED = "diagnosed"


class Severity(models.TextChoices):
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class ActorKind(models.TextChoices):
    USER = "user"
    DETECTOR = "detector"
    API = "api"
    TICKET = "ticket"


class Incident(models.Model):
    """A diagnosis people should handle; its number is its primary key.

    key: job, attempt, symptom kind and communicator as it opened, never the culprit. symptom, first_symptom_ns, triggered_ns:
    of what it is about now. version rises with every change and is the next one's precondition. last_seen_ns: data time of the
    newest look that saw the symptom; analysed_at: when it was last diagnosed; clean_looks, clean_look_at: the condition's
    hysteresis; asked_at: since when somebody waits. These five change without a version. pages: people should be woken.
    dumps_wanted: what nodes are asked for. acted_version: the version that the newest act of a person or script made.
    acknowledged_until: when that ends by itself; acknowledged_reach, acknowledged_severity: how many ranks and how bad then.
    suspects: who may have started it, culprits or a tie: the first of n_suspects. culprit_nodes: where these run, as far as is
    known; nodes_known: that is all. culprit_racks: of these, clusters: of all the attempt's nodes; in both "" stands for nodes
    that declare none. review: what the newest says. attached_to: the incident whose handling is its own; n_attached: how many.
    """

    team = models.ForeignKey("ingest.Team", models.PROTECT, related_name="incidents")
    job = models.ForeignKey("ingest.Job", models.PROTECT, related_name="incidents")
    attempt = models.ForeignKey("ingest.Attempt", models.PROTECT, related_name="incidents")
    key = models.CharField(max_length=200)
    symptom = models.CharField(max_length=32)
    comm_id = models.CharField(max_length=16, default="", blank=True)
    communicator = models.CharField(max_length=64, default="", blank=True)
    state = models.CharField(max_length=16, choices=State.choices, default=State.OPEN)
    condition = models.CharField(max_length=16, choices=ConditionState.choices, default=ConditionState.FIRING)
    certainty = models.CharField(max_length=16, choices=Certainty.choices, default=Certainty.SUSPECTED)
    version = models.PositiveIntegerField(default=1)
    headline = models.CharField(max_length=500)
    component = models.CharField(max_length=32, default="", blank=True)
    fault_kind = models.CharField(max_length=40, default="", blank=True)
    grade = models.CharField(max_length=16, default="", blank=True)
    culprits = models.JSONField(default=list, blank=True)
    n_culprits = models.PositiveIntegerField(default=0)
    suspects = models.JSONField(default=list, db_default=models.Value([], models.JSONField()), blank=True)
    n_suspects = models.PositiveIntegerField(default=0, db_default=0)
    n_victims = models.PositiveIntegerField(default=0)
    first_symptom_ns = models.BigIntegerField()
    triggered_ns = models.BigIntegerField()
    window_start_ns = models.BigIntegerField()
    window_end_ns = models.BigIntegerField()
    opened_at = models.DateTimeField()
    root_caused_at = models.DateTimeField(null=True, blank=True)
    acknowledged_at = models.DateTimeField(null=True, blank=True)
    acknowledged_by = models.CharField(max_length=150, null=True, blank=True)
    resolved_at = models.DateTimeField(null=True, blank=True)
    resolution = models.TextField(null=True, blank=True)
    regressed = models.BooleanField(default=False)
    recurrence_of = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="recurrences")
    last_seen_ns = models.BigIntegerField(default=0)
    analysed_at = models.DateTimeField(null=True, blank=True)
    clean_looks = models.PositiveIntegerField(default=0)
    clean_look_at = models.DateTimeField(null=True, blank=True)
    cleared_at = models.DateTimeField(null=True, blank=True)
    asked_at = models.DateTimeField(null=True, blank=True)
    pages = models.BooleanField(default=True)
    dumps_wanted = models.JSONField(default=list, blank=True)
    updated_at = models.DateTimeField()
    acted_version = models.PositiveIntegerField(default=1)
    severity = models.CharField(max_length=8, choices=Severity.choices, default=Severity.HIGH)
    assignee = models.CharField(max_length=150, default="", blank=True)
    acknowledged_until = models.DateTimeField(null=True, blank=True)
    acknowledged_reach = models.PositiveIntegerField(default=0)
    acknowledged_severity = models.CharField(max_length=8, choices=Severity.choices, default="", blank=True)
    culprit_nodes = models.JSONField(default=list, blank=True)
    nodes_known = models.BooleanField(default=False, db_default=False)
    culprit_racks = models.JSONField(default=list, db_default=models.Value([], models.JSONField()), blank=True)
    clusters = models.JSONField(default=list, db_default=models.Value([], models.JSONField()), blank=True)
    silence = models.ForeignKey("silences.Silence", models.PROTECT, null=True, blank=True, related_name="incidents")
    silenced_until = models.DateTimeField(null=True, blank=True)
    attached_to = models.ForeignKey("self", models.PROTECT, null=True, blank=True, related_name="attached")
    n_attached = models.PositiveIntegerField(default=0)
    review = models.CharField(max_length=16, default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["key"], condition=~Q(state=State.RESOLVED), name="one_unresolved_incident_per_key"
            ),
            models.UniqueConstraint(
                fields=["attempt"], condition=~Q(state=State.RESOLVED), name="one_unresolved_incident_per_attempt"
            ),
            models.CheckConstraint(condition=Q(state__in=State.values), name="incident_state_is_known"),
            models.CheckConstraint(condition=Q(condition__in=ConditionState.values), name="condition_is_known"),
            models.CheckConstraint(condition=Q(certainty__in=Certainty.values), name="certainty_is_known"),
            models.CheckConstraint(condition=Q(version__gte=1), name="incident_version_counts_from_one"),
            models.CheckConstraint(
                condition=~Q(state=State.ACKNOWLEDGED)
                | Q(acknowledged_at__isnull=False, acknowledged_by__isnull=False),
                name="acknowledged_says_who_and_when",
            ),
            models.CheckConstraint(
                condition=(
                    Q(state=State.RESOLVED, resolved_at__isnull=False, resolution__isnull=False) & ~Q(resolution="")
                )
                | (~Q(state=State.RESOLVED) & Q(resolved_at=None, resolution=None)),
                name="resolved_says_when_and_why",
            ),
            models.CheckConstraint(condition=Q(severity__in=Severity.values), name="severity_is_known"),
            models.CheckConstraint(
                condition=Q(silence=None, silenced_until=None) | Q(silence__isnull=False, silenced_until__isnull=False),
                name="silenced_says_by_what_and_until_when",
            ),
            models.CheckConstraint(
                condition=Q(acknowledged_until=None) | Q(state=State.ACKNOWLEDGED),
                name="only_an_acknowledgement_runs_out",
            ),
            models.CheckConstraint(condition=~Q(attached_to=models.F("id")), name="nothing_is_attached_to_itself"),
            models.CheckConstraint(
                condition=Q(attached_to=None) | Q(n_attached=0), name="attached_incidents_end_at_a_root"
            ),
        ]
        indexes = [
            models.Index(fields=["team", "state", "-id"], name="incident_lists"),
            models.Index(fields=["key", "-id"], name="incident_by_key"),
            models.Index(fields=["asked_at"], condition=Q(asked_at__isnull=False), name="incident_asked"),
            models.Index(fields=["attached_to"], condition=Q(attached_to__isnull=False), name="incident_attached"),
            models.Index(
                fields=["acknowledged_until"], condition=Q(acknowledged_until__isnull=False), name="incident_runs_out"
            ),
        ]

    def __str__(self) -> str:
        return f"incident {self.pk}: {self.headline}"


class TimelineEntry(models.Model):
    """One thing that happened to an incident. Never changed, never deleted.

    before, after: the state around the act, or the condition, the assignee, the root incident. request_key (a hash of
    the actor's key and of whose it is) makes a repeated request the same act.
    """

    incident = models.ForeignKey(Incident, models.PROTECT, related_name="timeline")
    at = models.DateTimeField()
    actor = models.CharField(max_length=150)
    actor_kind = models.CharField(max_length=16, choices=ActorKind.choices)
    verb = models.CharField(max_length=32)
    before = models.CharField(max_length=150, default="", blank=True)
    after = models.CharField(max_length=150, default="", blank=True)
    note = models.TextField(default="", blank=True)
    request_key = models.CharField(max_length=100, default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(actor_kind__in=ActorKind.values), name="actor_kind_is_known"),
            models.UniqueConstraint(
                fields=["incident", "actor", "verb", "request_key"],
                condition=~Q(request_key=""),
                name="a_repeated_request_is_one_act",
            ),
        ]

    def __str__(self) -> str:
        return f"{self.actor} {self.verb} incident {self.incident_id}"


class DiagnosisRevision(models.Model):
    """One version of an incident's diagnosis, as rca/findings.py wrote it; revisions are added, never changed."""

    incident = models.ForeignKey(Incident, models.PROTECT, related_name="revisions")
    number = models.PositiveIntegerField()
    at = models.DateTimeField()
    body = models.JSONField()
    verdict = models.TextField()
    culprits = models.JSONField(default=list)
    grade = models.CharField(max_length=16, default="", blank=True)
    window_start_ns = models.BigIntegerField()
    window_end_ns = models.BigIntegerField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["incident", "number"], name="diagnosis_revisions_are_numbered")]

    def __str__(self) -> str:
        return f"diagnosis {self.number} of incident {self.incident_id}"


class Alarm(models.TextChoices):
    """Whether it was right to tell people."""

    REAL = "real"
    NOISE = "noise"  # true, and nobody had to do anything
    FALSE = "false"  # nothing was wrong


class Verdict(models.TextChoices):
    """Whether the right one was blamed."""

    RIGHT = "right"
    PARTLY = "partly"
    WRONG = "wrong"
    UNKNOWN = "unknown"


class Review(models.Model):
    """What somebody found out afterwards about an incident. Never changed, never deleted: the newest counts.

    cause: the true cause in words; component, culprits, node: the same as far as it can be counted. rule: whose verdict
    stood when it was reviewed, empty where nobody was named.
    """

    incident = models.ForeignKey(Incident, models.PROTECT, related_name="reviews")
    entry = models.OneToOneField(TimelineEntry, models.PROTECT, related_name="review")
    at = models.DateTimeField()
    actor = models.CharField(max_length=150)
    alarm = models.CharField(max_length=8, choices=Alarm.choices)
    verdict = models.CharField(max_length=8, choices=Verdict.choices)
    rule = models.CharField(max_length=64, default="", blank=True)
    cause = models.TextField(default="", blank=True)
    component = models.CharField(max_length=32, default="", blank=True)
    culprits = models.JSONField(default=list, blank=True)
    node = models.CharField(max_length=128, default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(alarm__in=Alarm.values), name="review_alarm_is_known"),
            models.CheckConstraint(condition=Q(verdict__in=Verdict.values), name="review_verdict_is_known"),
        ]
        indexes = [models.Index(fields=["incident", "-id"], name="newest_reviews")]

    def __str__(self) -> str:
        return f"review of incident {self.incident_id}: {self.alarm}, {self.verdict}"


class SavedView(models.Model):
    """A list's filters under a name: the owner's own, or the team's when there is none."""

    team = models.ForeignKey("ingest.Team", models.CASCADE, related_name="views")
    owner = models.ForeignKey("auth.User", models.CASCADE, null=True, blank=True, related_name="views")
    name = models.CharField(max_length=60)
    query = models.CharField(max_length=1000)
    made_at = models.DateTimeField()

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["team", "owner", "name"], nulls_distinct=False, name="one_view_per_owner_and_name"
            ),
            models.CheckConstraint(condition=~Q(name=""), name="a_view_has_a_name"),
        ]

    def __str__(self) -> str:
        return self.name


class OutboxRow(models.Model):
    """A promise to tell others, made in the transaction that changed something; kept when the live stream is away."""

    incident = models.ForeignKey(Incident, models.PROTECT, related_name="outbox")
    entry = models.ForeignKey(TimelineEntry, models.PROTECT, null=True, related_name="outbox")
    type = models.CharField(max_length=32)
    made_at = models.DateTimeField()
    relayed_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [models.Index(fields=["id"], condition=Q(relayed_at=None), name="outbox_waiting")]

    def __str__(self) -> str:
        return f"{self.type} of incident {self.incident_id}"


class Look(models.Model):
    """What a look of the trigger at an attempt saw; the newest are kept."""

    attempt = models.ForeignKey("ingest.Attempt", models.CASCADE, related_name="looks")
    taken_at = models.DateTimeField()
    seen_ns = models.BigIntegerField()
    kind = models.CharField(max_length=32, default="", blank=True)
    saw = models.TextField(default="", blank=True)
    thresholds = models.JSONField(default=dict)

    class Meta:
        indexes = [models.Index(fields=["attempt", "-id"], name="newest_looks")]

    def __str__(self) -> str:
        return f"look at attempt {self.attempt_id}"


class JobNormal(models.Model):
    """The running normal of an attempt, as rca/triggers/look.py keeps it between looks."""

    attempt = models.OneToOneField("ingest.Attempt", models.CASCADE, related_name="normal")
    body = models.JSONField()
    updated_at = models.DateTimeField()

    def __str__(self) -> str:
        return f"normal of attempt {self.attempt_id}"


class SettingChange(models.Model):
    """A threshold of a job that somebody changed. Never changed, never deleted: the newest of a name is in force.

    name: as rca/settings.py names it for people. before, after: null is the default.
    """

    job = models.ForeignKey("ingest.Job", models.PROTECT, related_name="setting_changes")
    at = models.DateTimeField()
    actor = models.CharField(max_length=150)
    actor_kind = models.CharField(max_length=16, choices=ActorKind.choices)
    name = models.CharField(max_length=64)
    before = models.FloatField(null=True)
    after = models.FloatField(null=True)
    reason = models.TextField()

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(actor_kind__in=ActorKind.values), name="setting_actor_kind_is_known"),
            models.CheckConstraint(condition=~Q(reason=""), name="a_setting_is_changed_for_a_reason"),
        ]
        indexes = [models.Index(fields=["job", "name", "-id"], name="newest_settings")]

    def __str__(self) -> str:
        return f"{self.name} of {self.job}"


class WantedPace(models.Model):
    """Somebody said that the attempt's pace since `since_ns` (data time) is wanted: what is usual is learned from there on."""

    attempt = models.ForeignKey("ingest.Attempt", models.CASCADE, related_name="wanted_paces")
    since_ns = models.BigIntegerField()
    reason = models.TextField()
    declared_at = models.DateTimeField()
    declared_by = models.CharField(max_length=150)

    class Meta:
        constraints = [models.CheckConstraint(condition=~Q(reason=""), name="a_pace_is_wanted_for_a_reason")]

    def __str__(self) -> str:
        return f"pace of {self.attempt}"


class DeclaredPause(models.Model):
    """Nothing is expected of an attempt until `until_at`, or until somebody ended the pause: it may be idle."""

    attempt = models.ForeignKey("ingest.Attempt", models.CASCADE, related_name="pauses")
    reason = models.TextField()
    declared_at = models.DateTimeField()
    declared_by = models.CharField(max_length=150)
    until_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    ended_by = models.CharField(max_length=150, default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=~Q(reason=""), name="a_pause_has_a_reason"),
            models.CheckConstraint(condition=Q(until_at__gt=models.F("declared_at")), name="a_pause_ends_later"),
            models.UniqueConstraint(
                fields=["attempt"], condition=Q(ended_at=None), name="one_pause_per_attempt_is_not_ended"
            ),
        ]

    def __str__(self) -> str:
        return f"pause of {self.attempt}"
