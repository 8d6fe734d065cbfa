"""Who may do what: memberships, API tokens of scripts, and one-time sign-in links.

People are Django's own users. Every secret here is kept as its sha256 only; agents' tokens are ingest's, because an
agent may send and nothing else.
"""

from __future__ import annotations

from datetime import datetime

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.db import models


class Role(models.TextChoices):
    """What a member of a team may do; each includes the one before."""

    VIEWER = "viewer"
    RESPONDER = "responder"
    ADMIN = "admin"


class Membership(models.Model):
    """A user's role in a team. Without one, the team and everything it owns does not exist for them."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="memberships")
    team = models.ForeignKey("ingest.Team", models.CASCADE, related_name="memberships")
    role = models.CharField(max_length=16, choices=Role.choices)

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["user", "team"], name="one_membership_per_user_and_team"),
            models.CheckConstraint(condition=models.Q(role__in=Role.values), name="membership_role_is_known"),
        ]

    def __str__(self) -> str:
        return f"{self.user} is {self.role} of {self.team}"


def alive(now: datetime) -> models.Q:
    """Of API tokens: those that are good."""
    return models.Q(revoked_at=None) & (models.Q(expires_at=None) | models.Q(expires_at__gt=now))


class ApiToken(models.Model):
    """A script's right to use the REST API of one team with one role.

    scopes: the acts of its role it is narrowed to; all of them when there are none. last_used_at: to the minute.
    rotated_from: whose place it took. made_with: the token that asked for it; None: a person, or a command on the server.
    """

    label = models.CharField(max_length=100)
    team = models.ForeignKey("ingest.Team", models.CASCADE, related_name="api_tokens")
    role = models.CharField(max_length=16, choices=Role.choices)
    digest = models.CharField(max_length=64, unique=True)
    made_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField(null=True, blank=True)
    revoked_at = models.DateTimeField(null=True, blank=True)
    scopes = ArrayField(models.CharField(max_length=32), default=list, db_default=[], blank=True)
    made_by = models.CharField(max_length=150, default="", db_default="", blank=True)
    last_used_at = models.DateTimeField(null=True, blank=True)
    rotated_from = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="rotated_to")
    made_with = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="offspring")

    class Meta:
        constraints = [models.CheckConstraint(condition=models.Q(role__in=Role.values), name="token_role_is_known")]

    def __str__(self) -> str:
        return f"{self.label} ({self.role} of {self.team})"


class SigninLink(models.Model):
    """A link that signs its user in once, until it expires."""

    user = models.ForeignKey(settings.AUTH_USER_MODEL, models.CASCADE, related_name="signin_links")
    digest = models.CharField(max_length=64, unique=True)
    made_at = models.DateTimeField(auto_now_add=True)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)

    def __str__(self) -> str:
        return f"sign-in link of {self.user}"


class AuditEntry(models.Model):
    """Something somebody did, or took away: who, what, when, from where. Never changed; old ones go after a time.

    Beside it stand the histories that belong to things (an incident's timeline, a destination's changes): those say what became
    different, this says that somebody acted, for every act there is. team_ids: the team of what was acted on, else those
    of the actor. act: a sentence's verb, or the method and route of a REST request.
    """

    class Kind(models.TextChoices):
        USER = "user"
        API = "api"
        COMMAND = "command"
        PROVIDER = "provider"  # the sign-in provider, by what it says of groups
        TICKET = "ticket"  # somebody else's system, through a destination
        SYSTEM = "system"  # the detector, or a time that was over
        NOBODY = "nobody"  # a name that did not sign in

    at = models.DateTimeField(auto_now_add=True)
    team_ids = ArrayField(models.BigIntegerField(), default=list)
    actor = models.CharField(max_length=150)
    actor_kind = models.CharField(max_length=8, choices=Kind.choices)
    actor_id = models.BigIntegerField(null=True)
    act = models.CharField(max_length=200)
    subject = models.CharField(max_length=300, default="", blank=True)
    address = models.CharField(max_length=64, default="", blank=True)
    request_id = models.CharField(max_length=64, default="", blank=True)

    class Meta:
        constraints = [
            models.CheckConstraint(
                condition=models.Q(actor_kind__in=["user", "api", "command", "provider", "nobody", "ticket", "system"]),
                name="audit_kind_is_known",
            )
        ]
        indexes = [
            GinIndex(fields=["team_ids"], name="audit_by_team"),
            models.Index(fields=["at"], name="audit_by_time"),
        ]

    def __str__(self) -> str:
        return f"{self.actor}: {self.act} {self.subject}"
