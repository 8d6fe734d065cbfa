"""What the settings of single sign-on say, read before any model exists.

`DIOGENES_OIDC_GROUPS` is `GROUP=TEAM:ROLE`, several separated by semicolons, since the names directories give have
commas and equals signs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from django.core.exceptions import ImproperlyConfigured

ROLES: Final = ("viewer", "responder", "admin")
SCOPES: Final = "openid profile email"


@dataclass(frozen=True, slots=True)
class Grant:
    """Whoever is in `group` has `role` in the team of this name."""

    group: str
    team: str
    role: str


def read_grants(text: str) -> tuple[Grant, ...]:
    """The mapping as it is written in the setting. ImproperlyConfigured when it cannot be read."""
    return tuple(_grant(part.strip()) for part in text.split(";") if part.strip())


def _grant(part: str) -> Grant:
    group, _, place = part.rpartition("=")
    team, _, role = place.rpartition(":")
    if not group.strip() or not team.strip() or role.strip() not in ROLES:
        raise ImproperlyConfigured(
            f"DIOGENES_OIDC_GROUPS: {part!r} is not GROUP=TEAM:ROLE with a role of {', '.join(ROLES)}."
        )
    return Grant(group.strip(), team.strip(), role.strip())


def origins_of(environment: Mapping[str, str]) -> str:
    """Where the sign-in form may lead, for the pages' policy: the provider's origin, and others it signs people in at."""
    issuer = urlsplit(environment.get("DIOGENES_OIDC_ISSUER", ""))
    own = [f"{issuer.scheme}://{issuer.netloc}"] if issuer.netloc else []
    return " ".join([*own, *environment.get("DIOGENES_OIDC_ORIGINS", "").replace(",", " ").replace(";", " ").split()])


def oidc_app(environment: Mapping[str, str]) -> dict[str, Any]:
    """The provider as django-allauth wants it. ImproperlyConfigured when something needed is missing."""
    issuer, client_id = environment["DIOGENES_OIDC_ISSUER"], environment.get("DIOGENES_OIDC_CLIENT_ID", "")
    secret = environment.get("DIOGENES_OIDC_CLIENT_SECRET", "")
    if not client_id or not environment.get("DIOGENES_OIDC_GROUPS"):
        raise ImproperlyConfigured(
            "DIOGENES_OIDC_ISSUER needs DIOGENES_OIDC_CLIENT_ID and DIOGENES_OIDC_GROUPS beside it."
        )
    scopes = environment.get("DIOGENES_OIDC_SCOPES", SCOPES).split()
    settings = {"server_url": issuer.rstrip("/"), "scope": ["openid", *(one for one in scopes if one != "openid")]}
    return {
        "provider_id": "sso", "name": environment.get("DIOGENES_OIDC_NAME", "single sign-on"), "client_id": client_id,
        "secret": secret, "settings": settings,
    }  # fmt: skip
