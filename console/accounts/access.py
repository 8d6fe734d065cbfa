"""Who is asking, and what they may do: the only place where permissions are decided.

A Caller is a signed-in person or a script's token, reduced to roles by team. Views ask it for teams and verbs and know
nothing else. What belongs to another team is not forbidden but absent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal

from django.contrib.auth.models import AnonymousUser, User

from console.accounts.models import ApiToken, Membership, Role

Verb = Literal[
    "acknowledge", "unacknowledge", "resolve", "reopen", "comment", "export", "administer", "look", "diagnose",
    "configure", "pause", "trigger", "assign", "attach", "detach", "silence", "review", "share", "replay",
]  # fmt: skip

_ORDER: Final = (Role.VIEWER, Role.RESPONDER, Role.ADMIN)
_NEEDS: Final[dict[str, Role]] = {
    "look": Role.VIEWER,
    "acknowledge": Role.RESPONDER,
    "unacknowledge": Role.RESPONDER,
    "resolve": Role.RESPONDER,
    "reopen": Role.RESPONDER,
    "comment": Role.RESPONDER,
    "export": Role.RESPONDER,
    "diagnose": Role.RESPONDER,
    "configure": Role.RESPONDER,
    "pause": Role.RESPONDER,
    "trigger": Role.RESPONDER,
    "assign": Role.RESPONDER,
    "attach": Role.RESPONDER,
    "detach": Role.RESPONDER,
    "silence": Role.RESPONDER,
    "review": Role.RESPONDER,
    "share": Role.RESPONDER,
    "replay": Role.RESPONDER,
    "administer": Role.ADMIN,
}


@dataclass(frozen=True, slots=True)
class Caller:
    """Somebody who may ask. kind: how their acts appear in a timeline; id: the user's or the token's.

    scopes: the acts a token is narrowed to; empty when it is not. Whoever may ask may look.
    """

    name: str
    kind: Literal["user", "api"]
    roles: Mapping[int, Role]
    id: int = 0
    scopes: frozenset[str] = frozenset()

    @property
    def team_ids(self) -> list[int]:
        return sorted(self.roles)

    @property
    def highest_role(self) -> Role | None:
        return max(self.roles.values(), key=_ORDER.index, default=None)

    def may(self, verb: str, team_id: int) -> bool:
        """Whether the caller's role in the team is enough; unknown verbs and other teams are refused."""
        if self.scopes and verb != "look" and verb not in self.scopes:
            return False
        role, needed = self.roles.get(team_id), _NEEDS.get(verb)
        return role is not None and needed is not None and _ORDER.index(role) >= _ORDER.index(needed)

    def verbs_in(self, team_id: int) -> frozenset[str]:
        """All they may do in the team."""
        return frozenset(verb for verb in _NEEDS if self.may(verb, team_id))

    def teams_where(self, verb: str) -> list[int]:
        return [team_id for team_id in self.team_ids if self.may(verb, team_id)]


def verbs_of(role: Role) -> list[str]:
    """What a role may do beyond looking, by name."""
    return sorted(
        verb for verb, needed in _NEEDS.items() if verb != "look" and _ORDER.index(role) >= _ORDER.index(needed)
    )


class TokenUser:
    """What REST framework sees as the user of a request that carries an API token."""

    is_authenticated = True
    is_active = True
    is_anonymous = False

    def __init__(self, token: ApiToken) -> None:
        self.token = token
        self.pk = f"token-{token.pk}"


NOBODY: Final = Caller(name="", kind="user", roles={})


def caller_of(user: User | AnonymousUser | TokenUser) -> Caller:
    """The caller behind a request's user."""
    known = known_as(user)
    if isinstance(user, TokenUser):
        return replace(known, roles={user.token.team_id: Role(user.token.role)}, scopes=frozenset(user.token.scopes))
    if known is NOBODY:
        return NOBODY
    memberships = Membership.objects.filter(user=user.pk).values_list("team_id", "role")
    return replace(known, roles={team_id: Role(role) for team_id, role in memberships})


def known_as(user: User | AnonymousUser | TokenUser) -> Caller:
    """Who that is, without roles: nobody needs to be asked."""
    if isinstance(user, TokenUser):
        return Caller(user.token.label, "api", {}, user.token.pk)
    if not isinstance(user, User) or not user.is_active:
        return NOBODY
    return Caller(user.get_username(), "user", {}, user.pk)
