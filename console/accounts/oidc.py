"""What django-allauth asks of us around a sign-in: who may come in, what they are called, and how a failure is said.

Whoever has no role by the mapping of groups gets no user here. An existing user with the same name is never taken over:
the identity at the provider (its `sub`) is what links, and a new one gets a name that is free.
"""

from __future__ import annotations

import functools
import logging
from typing import Any, Final

import requests
from allauth.account.adapter import DefaultAccountAdapter
from allauth.core.exceptions import ImmediateHttpResponse
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from django.conf import settings
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from console.accounts.audit import note
from console.accounts.groups import apply_roles, groups_in, roles_for
from console.accounts.models import AuditEntry, Role
from console.operations.metrics import SIGNINS_REFUSED
from ingest.models import Team

log = logging.getLogger(__name__)
TIMEOUT_SECONDS: Final = 10
NAME_CHARS_MAX: Final = 150
FAILED: Final = (
    "Signing in at the provider did not work. Try again; if it stays so, an administrator finds why in the log."
)
AWAY: Final = "The sign-in provider does not answer. Try again in a moment, or sign in with a password or a link."
CANCELLED: Final = "You were not signed in: it was cancelled at the provider."
NO_GROUP: Final = "You are known there, but none of your groups has a role here. Ask an administrator of Diogenes."
SWITCHED_OFF: Final = "This account is switched off here."


class Accounts(DefaultAccountAdapter):
    """Of allauth's accounts we use none: no sign-up, no addresses, no messages."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def respond_user_inactive(self, request: HttpRequest, user: User) -> HttpResponse:
        return refused(request, "inactive", SWITCHED_OFF, 403)

    def add_message(self, *args: Any, **kwargs: Any) -> None:
        return None

    def send_mail(self, *args: Any, **kwargs: Any) -> None:
        return None


class Identities(DefaultSocialAccountAdapter):
    def pre_social_login(self, request: HttpRequest, sociallogin: Any) -> None:
        """Roles first: without one nobody comes in, and who had one loses it."""
        roles = _roles_of(sociallogin)
        if sociallogin.is_existing:
            _apply(sociallogin.user, roles)
        if not roles and not (sociallogin.is_existing and sociallogin.user.memberships.exists()):
            raise ImmediateHttpResponse(refused(request, "no group", NO_GROUP, 403))

    def is_open_for_signup(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True

    def is_auto_signup_allowed(self, request: HttpRequest, sociallogin: Any) -> bool:
        return True

    def populate_user(self, request: HttpRequest, sociallogin: Any, fields: dict[str, Any]) -> User:
        user: User = sociallogin.user
        wanted = fields.get("username") or fields.get("email") or sociallogin.account.uid
        user.username = _free_name(str(wanted)[: NAME_CHARS_MAX - 8])
        user.first_name = str(fields.get("first_name") or fields.get("name") or "")[:NAME_CHARS_MAX]
        user.last_name = str(fields.get("last_name") or "")[:NAME_CHARS_MAX]
        user.email = str(fields.get("email") or "")[:254]
        return user

    def save_user(self, request: HttpRequest, sociallogin: Any, form: Any = None) -> User:
        user: User = sociallogin.user
        user.set_unusable_password()
        sociallogin.save(request)
        _apply(user, _roles_of(sociallogin))
        return user

    def on_authentication_error(
        self, request: HttpRequest, provider: Any, error: Any = None, exception: Any = None, extra_context: Any = None
    ) -> None:
        is_away = isinstance(exception, requests.RequestException)
        log.warning("a sign-in at the provider failed: %s %s", error or "", exception or "")
        if str(error) == "cancelled":
            raise ImmediateHttpResponse(refused(request, "cancelled", CANCELLED, 401))
        why, said, status = ("provider away", AWAY, 503) if is_away else ("bad answer", FAILED, 401)
        raise ImmediateHttpResponse(refused(request, why, said, status))

    def get_requests_session(self) -> requests.Session:
        session = requests.Session()
        session.verify = settings.OIDC_CA or True
        session.request = functools.partial(session.request, timeout=TIMEOUT_SECONDS)  # type: ignore[method-assign]
        return session


def refused(request: HttpRequest, why: str, said: str, status: int) -> HttpResponse:
    """The sign-in page with the reason, counted."""
    SIGNINS_REFUSED.labels(why).inc()
    given = {"error": said, "next": str(settings.LOGIN_REDIRECT_URL), "oidc_name": settings.OIDC_NAME}
    return render(request, "signin.html", given, status=status)


def _roles_of(sociallogin: Any) -> dict[str, Role]:
    """Team → role by the groups the provider names, wherever it does."""
    data = sociallogin.account.extra_data
    groups = {
        name for part in ("id_token", "userinfo") for name in groups_in(data.get(part) or {}, settings.OIDC_CLAIM)
    }
    return roles_for(groups, settings.OIDC_GROUPS)


def _apply(user: User, roles: dict[str, Role]) -> None:
    changed = apply_roles(user, roles, settings.OIDC_GROUPS)
    if changed:
        names = {grant.team for grant in settings.OIDC_GROUPS}
        teams = Team.objects.filter(name__in=names).values_list("pk", flat=True)
        said = f"{user.get_username()}: {', '.join(changed)}"
        note(AuditEntry.Kind.PROVIDER, settings.OIDC_NAME, "gave and took roles", subject=said, team_ids=teams)


def _free_name(wanted: str) -> str:
    """The name, or with a number behind it when somebody here has it."""
    wanted = "".join(char if char.isalnum() or char in "@.+-_" else "-" for char in wanted) or "user"
    name, number = wanted, 1
    while User.objects.filter(username__iexact=name).exists():
        number += 1
        name = f"{wanted}-{number}"
    return name
