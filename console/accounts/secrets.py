"""Making and recognising secrets: long random words, of which only the sha256 is stored.

The words have 256 random bits, so a plain hash is enough: there is nothing to guess, and a
look-up stays one index probe.
"""

from __future__ import annotations

import hashlib
import secrets
from datetime import timedelta
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone

from console.accounts.models import ApiToken, Role, SigninLink, alive
from ingest.models import Team

API_TOKEN_PREFIX = "dgs_api_"
USE_NOTED_EVERY: Final = timedelta(minutes=1)


def digest_of(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()


def make_api_token(
    team: Team, label: str, role: Role, lifetime: timedelta | None = None, **more: Any
) -> tuple[ApiToken, str]:
    """A new token and its secret, which is shown once and never again. more: other columns of the token."""
    secret = API_TOKEN_PREFIX + secrets.token_urlsafe(32)
    given = {"expires_at": timezone.now() + lifetime if lifetime else None, **more}
    token = ApiToken.objects.create(team=team, label=label, role=role, digest=digest_of(secret), **given)
    return token, secret


def find_api_token(secret: str) -> ApiToken | None:
    """The live token with this secret."""
    return ApiToken.objects.select_related("team").filter(alive(timezone.now()), digest=digest_of(secret)).first()


def note_use(token: ApiToken) -> None:
    """When a token was last used, to the minute: a script that asks all day writes once a minute."""
    now = timezone.now()
    if token.last_used_at is None or now - token.last_used_at >= USE_NOTED_EVERY:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)


def make_signin_link(user: User, lifetime: timedelta) -> str:
    """The secret part of a new one-time link."""
    secret = secrets.token_urlsafe(32)
    SigninLink.objects.create(user=user, digest=digest_of(secret), expires_at=timezone.now() + lifetime)
    return secret


def find_signin_user(secret: str) -> User | None:
    """Whom a fresh link would sign in. The link stays fresh."""
    link = _fresh_links(secret).select_related("user").first()
    return link.user if link and link.user.is_active else None


@transaction.atomic
def use_signin_link(secret: str) -> User | None:
    """The user of a link that is fresh, which it no longer is afterwards; two clicks at once cannot both win."""
    if not _fresh_links(secret).update(used_at=timezone.now()):
        return None
    user = SigninLink.objects.select_related("user").get(digest=digest_of(secret)).user
    return user if user.is_active else None


def _fresh_links(secret: str) -> QuerySet[SigninLink]:
    return SigninLink.objects.filter(digest=digest_of(secret), used_at=None, expires_at__gt=timezone.now())
