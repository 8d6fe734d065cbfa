"""Destinations that incidents are told to, the tickets there, and every message that was promised. Fields and constraints.

A delivery is the outbox row: written in the transaction of the timeline entry it tells of, sent by sender.py. What was
tried is kept with it, so that the page shows why something did not arrive.
"""

from __future__ import annotations

import uuid

from django.db import models
from django.db.models import Q

from console.incidents.models import ActorKind, Severity


class DeliveryState(models.TextChoices):
    WAITING = "waiting"
    SENT = "sent"
    DEAD = "dead"  # given up; a person may replay it
    SKIPPED = "skipped"  # there was nothing to say: silenced, over before anybody was told, or nothing it takes


class Destination(models.Model):
    """Somebody else's system, and how a team's incidents reach it.

    key: names it in addresses that others call, and in what it is sent. sealed: its secrets, encrypted (sealing.py).
    not_before: the pause after a failure, for all its messages: their order is kept. paused_why: why it is switched off.
    title_template, body_template: how its tickets are worded (templates.py), empty for the usual words.
    looks_not_before, n_looks_failed: the same for looking at its tickets, which holds no message back.
    request_key: a hash of the maker's own: a repeated request makes one.
    n_refused: messages beyond the limit of waiting ones. n_left_out: incidents that were open when it was made and that it was
    not told of at once. hooks_refused: calls from outside that changed nothing, by reason.
    """

    team = models.ForeignKey("ingest.Team", models.PROTECT, related_name="destinations")
    key = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    name = models.CharField(max_length=80)
    kind = models.CharField(max_length=20)
    settings = models.JSONField(default=dict)
    sealed = models.TextField(default="", blank=True)
    severity_min = models.CharField(max_length=8, choices=Severity.choices, default=Severity.LOW)
    title_template = models.CharField(max_length=300, default="", blank=True)
    body_template = models.TextField(default="", blank=True)
    enabled = models.BooleanField(default=True)
    paused_why = models.CharField(max_length=300, default="", blank=True)
    made_at = models.DateTimeField(auto_now_add=True)
    made_by = models.CharField(max_length=150)
    removed_at = models.DateTimeField(null=True, blank=True)
    not_before = models.DateTimeField(null=True, blank=True)
    n_failures = models.PositiveIntegerField(default=0)
    looks_not_before = models.DateTimeField(null=True, blank=True)
    n_looks_failed = models.PositiveIntegerField(default=0)
    n_refused = models.PositiveBigIntegerField(default=0)
    n_left_out = models.PositiveIntegerField(default=0, db_default=0)
    n_hooks = models.PositiveBigIntegerField(default=0)
    hooks_refused = models.JSONField(default=dict, blank=True)
    request_key = models.CharField(max_length=100, default="", db_default="", blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(
                fields=["request_key"], condition=~Q(request_key=""), name="a_repeated_request_is_one_destination"
            ),
            models.UniqueConstraint(
                fields=["team", "name"], condition=Q(removed_at=None), name="destination_names_differ"
            ),
            models.CheckConstraint(condition=Q(severity_min__in=Severity.values), name="destination_severity_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"


class DestinationChange(models.Model):
    """Who made, changed or removed a destination. changed: names of what is different now, never values. Append-only."""

    class Act(models.TextChoices):
        MADE = "made"
        CHANGED = "changed"
        REMOVED = "removed"

    destination = models.ForeignKey(Destination, models.PROTECT, related_name="changes")
    at = models.DateTimeField(auto_now_add=True)
    actor = models.CharField(max_length=150)
    actor_kind = models.CharField(max_length=8, choices=ActorKind.choices)
    act = models.CharField(max_length=8, choices=Act.choices)
    changed = models.JSONField(default=list)

    def __str__(self) -> str:
        return f"{self.actor} {self.act} destination {self.destination_id}"


class Ticket(models.Model):
    """An incident's copy at a destination. told_at: when it was first told of; external_id, url: what it is there.

    remote_*: how it stood there when it was last seen, at seen_at; remote_at: when that changed, by their clock.
    unread_why: why it could not be seen since. look_at: when it is looked at next. etag, remarks_since: where a look goes on.
    own_remarks: identifiers of comments that we wrote. pictured_at: when its pictures were drawn, or found not to be wanted.
    """

    incident = models.ForeignKey("incidents.Incident", models.PROTECT, related_name="tickets")
    destination = models.ForeignKey(Destination, models.PROTECT, related_name="tickets")
    key = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    external_id = models.CharField(max_length=200, default="", blank=True)
    url = models.CharField(max_length=1000, default="", blank=True)
    told_at = models.DateTimeField(null=True, blank=True)
    remote_state = models.CharField(max_length=40, default="", blank=True)
    remote_word = models.CharField(max_length=100, default="", blank=True)
    remote_assignee = models.CharField(max_length=400, default="", blank=True)
    remote_at = models.DateTimeField(null=True, blank=True)
    seen_at = models.DateTimeField(null=True, blank=True)
    unread_why = models.CharField(max_length=300, default="", blank=True)
    look_at = models.DateTimeField(null=True, blank=True)
    etag = models.CharField(max_length=200, default="", blank=True)
    remarks_since = models.CharField(max_length=40, default="", blank=True)
    own_remarks = models.JSONField(default=list, blank=True)
    pictured_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["incident", "destination"], name="one_ticket_per_incident_and_destination")
        ]

    def __str__(self) -> str:
        return f"ticket {self.external_id or self.key} of incident {self.incident_id}"


class Delivery(models.Model):
    """One promised message. key: stays the same however often it is tried. ticket: none in a test message.

    sending_at: since when a try is under way: what it says is fixed, so later news needs a message of its own.
    """

    destination = models.ForeignKey(Destination, models.PROTECT, related_name="deliveries")
    ticket = models.ForeignKey(Ticket, models.PROTECT, null=True, blank=True, related_name="deliveries")
    entry = models.ForeignKey("incidents.TimelineEntry", models.PROTECT, null=True, related_name="deliveries")
    replay_of = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="replays")
    key = models.UUIDField(default=uuid.uuid4, unique=True, editable=False)
    verb = models.CharField(max_length=16)
    state = models.CharField(max_length=8, choices=DeliveryState.choices, default=DeliveryState.WAITING)
    made_at = models.DateTimeField()
    due_at = models.DateTimeField()
    sending_at = models.DateTimeField(null=True, blank=True)
    done_at = models.DateTimeField(null=True, blank=True)
    n_attempts = models.PositiveIntegerField(default=0)
    n_merged = models.PositiveIntegerField(default=0)
    said = models.CharField(max_length=500, default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(condition=Q(state__in=DeliveryState.values), name="delivery_state_is_known"),
            models.CheckConstraint(
                condition=Q(state=DeliveryState.WAITING, done_at=None)
                | (~Q(state=DeliveryState.WAITING) & Q(done_at__isnull=False)),
                name="a_delivery_is_waiting_or_done",
            ),
        ]
        indexes = [
            models.Index(fields=["destination", "id"], condition=Q(state="waiting"), name="deliveries_waiting"),
            models.Index(fields=["destination", "-id"], name="newest_deliveries"),
        ]

    def __str__(self) -> str:
        return f"{self.verb} to {self.destination_id}: {self.state}"


class TicketPicture(models.Model):
    """A picture on its way. name: of the file. body: PNG. uploaded_as: what it is called there; None: it is not there yet."""

    delivery = models.ForeignKey(Delivery, models.CASCADE, related_name="pictures")
    name = models.CharField(max_length=80)
    body = models.BinaryField()
    uploaded_as = models.CharField(max_length=1000, null=True, blank=True)

    def __str__(self) -> str:
        return self.name


class Attempt(models.Model):
    """One try at a delivery. status: of the HTTP answer; none when there was no answer."""

    delivery = models.ForeignKey(Delivery, models.CASCADE, related_name="attempts")
    at = models.DateTimeField()
    took_ms = models.PositiveIntegerField()
    status = models.PositiveSmallIntegerField(null=True)
    said = models.CharField(max_length=500, default="", blank=True)

    def __str__(self) -> str:
        return f"attempt at delivery {self.delivery_id}: {self.said}"


class HookSeen(models.Model):
    """A call from outside that was taken, so that the same one is not taken twice."""

    destination = models.ForeignKey(Destination, models.CASCADE, related_name="hooks_seen")
    call = models.CharField(max_length=100)
    at = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["destination", "call"], name="a_call_is_taken_once")]

    def __str__(self) -> str:
        return f"call {self.call}"
