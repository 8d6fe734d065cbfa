"""What somebody's groups at the sign-in provider make of them here: roles in teams, anew at every sign-in.

`DIOGENES_OIDC_GROUPS` maps them (grants.py). Of the teams it names the provider is the only authority: who is no longer in a
group loses the role with the next sign-in. Roles in other teams are given here and left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from django.contrib.auth.models import User
from django.db import transaction

from console.accounts.grants import Grant
from console.accounts.models import Membership, Role
from ingest.models import Team

GROUPS_MAX: Final = 2000
_ORDER: Final = tuple(Role)


def groups_in(claims: Mapping[str, Any], path: str) -> frozenset[str]:
    """The names a claim holds: a list, or words in a text. path: dots lead into objects, as `realm_access.roles`."""
    found: Any = claims.get(path)
    if found is None:
        found = claims
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
    if isinstance(found, str):
        found = found.replace(",", " ").split()
    return frozenset(str(one) for one in found[:GROUPS_MAX]) if isinstance(found, list) else frozenset()


def roles_for(groups: Collection[str], grants: Collection[Grant]) -> dict[str, Role]:
    """Team name → the highest role that any of the groups gives."""
    roles: dict[str, Role] = {}
    for grant in grants:
        if grant.group in groups:
            roles[grant.team] = max(roles.get(grant.team, Role.VIEWER), Role(grant.role), key=_ORDER.index)
    return roles


@transaction.atomic
def apply_roles(user: User, roles: Mapping[str, Role], grants: Collection[Grant]) -> list[str]:
    """Make the user's memberships in the teams of the mapping what `roles` says; what was changed, in words."""
    changed = []
    held = {one.team_id: one for one in Membership.objects.select_for_update().filter(user=user)}
    for team in Team.objects.filter(name__in={grant.team for grant in grants}).order_by("name"):
        wanted, now = roles.get(team.name), held.get(team.pk)
        if now is not None and wanted is None:
            now.delete()
            changed.append(f"no longer in {team.name}")
        elif wanted is not None and (now is None or now.role != wanted):
            Membership.objects.update_or_create(user=user, team=team, defaults={"role": wanted})
            changed.append(f"{wanted} of {team.name}")
    return changed
