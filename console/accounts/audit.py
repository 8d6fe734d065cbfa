"""The audit: every act that came over REST and every sign-in, noted where no view can forget it.

A middleware notes each request that may change something and was answered well, and each file that was taken away; signals
note sign-ins; commands and the mapping of groups say what they did themselves. When a note cannot be written, what it would have
said is logged: the act is done by then.
"""

from __future__ import annotations

import getpass
import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from datetime import timedelta
from typing import Any, Final

from django.apps import apps
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.auth.signals import user_logged_in, user_logged_out, user_login_failed
from django.db import DatabaseError, connection, transaction
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from rest_framework.request import Request

from console.accounts.access import Caller, caller_of, known_as
from console.accounts.models import AuditEntry, Membership
from ingest.log_context import current_fields

Kind = AuditEntry.Kind
UNSAFE: Final = frozenset({"POST", "PUT", "PATCH", "DELETE"})
API: Final = "api/v1/"
PREVIEWS: Final = frozenset({"silences/preview", "destinations/preview"})
PREVIEWS_APART: Final = timedelta(minutes=10)
"""A form asks for them with every pause of the keys, and they change nothing: of those within so long one is noted."""
OBJECTS: Final[dict[str, tuple[str, str, str]]] = {
    "silence_id": ("silences.Silence", "pk", "team_id"),
    "view_id": ("incidents.SavedView", "pk", "team_id"),
    "destination_id": ("tickets.Destination", "pk", "team_id"),
    "delivery_id": ("tickets.Delivery", "pk", "destination__team_id"),
    "token_id": ("ingest.AgentToken", "pk", "team_id"),
    "api_token_id": ("accounts.ApiToken", "pk", "team_id"),
    "job_id": ("ingest.Job", "pk", "team_id"),
    "key": ("dumps.Bundle", "key", "team_id"),
}
"""Parameter of a route → the model it names, by which field, and where its team is."""
log = logging.getLogger(__name__)


class Audit:
    """Middleware, inside of whatever says who asks."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        response = self.get_response(request)
        match = request.resolver_match
        if match is not None and match.route.startswith(API) and response.status_code < 400:
            is_taken_away = "attachment" in response.headers.get("Content-Disposition", "")
            if request.method in UNSAFE or is_taken_away:
                _note_request(request, match.route.removeprefix(API), request.__dict__.get("audit_team"))
        return response

    def process_view(self, request: HttpRequest, view: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
        """Whose the thing is, while it is still there."""
        match = request.resolver_match
        if match is not None and match.route.startswith(API) and request.method in UNSAFE and kwargs:
            request.__dict__["audit_team"] = _team_of(match.route, kwargs)


def note(
    kind: str, actor: str, act: str, *, subject: str = "", team_ids: Iterable[int] = (), actor_id: int | None = None,
    request: HttpRequest | None = None,
) -> None:  # fmt: skip
    """Write an entry. It never raises: what cannot be written is logged."""
    meta = request.META if request is not None else {}
    said = {
        "actor": actor[:150], "actor_kind": kind, "actor_id": actor_id, "act": act[:200], "subject": subject[:300],
        "team_ids": sorted(set(team_ids)), "address": str(meta.get("REMOTE_ADDR", ""))[:64],
        "request_id": str(current_fields().get("request_id", ""))[:64],
    }  # fmt: skip
    try:
        # What fails here undoes nothing around it; where nothing is around it, one statement is one transaction.
        with transaction.atomic() if connection.in_atomic_block else nullcontext():
            AuditEntry.objects.create(**said)
    except (DatabaseError, ValueError):  # ValueError: a text the database does not take
        log.exception("not in the audit: %s", said)


def about(request: Request, subject: str, team_id: int) -> None:
    """What the entry of this request shall say it was about, where the address alone does not tell."""
    request._request.__dict__.update(audit_subject=subject, audit_team=team_id)


def note_command(act: str, subject: str, team_ids: Iterable[int] = ()) -> None:
    """What a management command did, by who ran it on the server."""
    note(Kind.COMMAND, _system_user(), act, subject=subject, team_ids=team_ids)


def drop_old_entries() -> int:
    """Forget what is older than the audit is kept; how many entries."""
    before = timezone.now() - timedelta(days=settings.AUDIT_DAYS)
    return AuditEntry.objects.filter(at__lt=before).delete()[0]


def _note_request(request: HttpRequest, route: str, team_id: int | None) -> None:
    caller: Caller = known_as(request.user)  # REST framework has put there who the token is of
    subject = request.__dict__.get("audit_subject") or request.path.removeprefix(f"/{API}")
    team_ids = [team_id] if team_id is not None else caller_of(request.user).team_ids
    act = f"{request.method} {route}"
    if route in PREVIEWS and _is_noted(caller, act):
        return
    note(caller.kind, caller.name, act, subject=subject, team_ids=team_ids, actor_id=caller.id, request=request)


def _is_noted(caller: Caller, act: str) -> bool:
    """Whether the same caller's same act was noted lately."""
    lately = AuditEntry.objects.filter(at__gte=timezone.now() - PREVIEWS_APART, act=act, actor_id=caller.id)
    try:
        return lately.filter(actor_kind=caller.kind, actor=caller.name[:150]).exists()
    except DatabaseError:
        return False


def _team_of(route: str, kwargs: Mapping[str, Any]) -> int | None:
    """The team of what a route's parameters name; None when they name nothing."""
    if "number" in kwargs:
        named = "incidents.Incident" if "incidents/" in route else "ingest.Job"
        return _find(named, "pk", kwargs["number"], "team_id")
    for parameter, (named, field, team) in OBJECTS.items():
        if parameter in kwargs:
            return _find(named, field, kwargs[parameter], team)
    return None


def _find(named: str, field: str, value: Any, team: str) -> int | None:
    model = apps.get_model(named)
    found: int | None = model._default_manager.filter(**{field: value}).values_list(team, flat=True).first()
    return found


def _system_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user without a name
        return "server"


def _teams_of(user: User | None) -> list[int]:
    return list(Membership.objects.filter(user=user).values_list("team_id", flat=True)) if user else []


def _signed_in(sender: Any, request: HttpRequest | None, user: User, **kwargs: Any) -> None:
    note(Kind.USER, user.get_username(), "signed in", team_ids=_teams_of(user), actor_id=user.pk, request=request)


def _signed_out(sender: Any, request: HttpRequest | None, user: User | None, **kwargs: Any) -> None:
    if user is not None:
        note(Kind.USER, user.get_username(), "signed out", team_ids=_teams_of(user), actor_id=user.pk, request=request)


def _failed(sender: Any, credentials: Mapping[str, Any], request: HttpRequest | None = None, **kwargs: Any) -> None:
    name = str(credentials.get("username", "")).replace("\0", "")
    name = name.encode("utf-8", "replace").decode()
    user = User.objects.filter(username=name).first()
    note(Kind.NOBODY, name, "did not sign in", team_ids=_teams_of(user), request=request)


user_logged_in.connect(_signed_in, dispatch_uid="audit")
user_logged_out.connect(_signed_out, dispatch_uid="audit")
user_login_failed.connect(_failed, dispatch_uid="audit")
