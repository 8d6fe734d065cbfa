"""Agent tokens: made once, shown once, kept as a hash, revoked at any time."""

from __future__ import annotations

import hashlib
import secrets
from typing import Final

from django.utils import timezone

from ingest.models import AgentToken, Team

PREFIX: Final = "dga_"
TOKEN_BYTES: Final = 32


def make_agent_token(team: Team, label: str) -> str:
    """A new token for agents of `team`. This is the only time it can be read."""
    token = PREFIX + secrets.token_urlsafe(TOKEN_BYTES)
    AgentToken.objects.create(team=team, label=label, token_sha256=hash_token(token))
    return token


def revoke_agent_token(token: AgentToken) -> None:
    """Refuse the token from now on (ingest notices within auth.CACHE_SECONDS). Revoking twice keeps the first time."""
    AgentToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now())


def hash_token(token: str) -> str:
    """What is stored of a token: it is 256 random bits, so one round of sha256 is enough."""
    return hashlib.sha256(token.encode()).hexdigest()
