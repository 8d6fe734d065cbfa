"""Teams by name, as people type them on the command line and scripts in requests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from django.core.exceptions import PermissionDenied
from rest_framework.exceptions import ValidationError

from console.accounts.access import Caller
from ingest.models import Team

TEAMS_SHOWN: Final = 8


def no_such_team(wanted: str) -> str:
    """That there is no team of this name, which ones there are, and how to make one."""
    names = list(Team.objects.order_by("name").values_list("name", flat=True)[: TEAMS_SHOWN + 1])
    if not names:
        return f"There is no team named {wanted}, nor any other yet. Run `manage.py bootstrap` first."
    rest = " and more" if len(names) > TEAMS_SHOWN else ""
    there = f"{'Teams' if len(names) > 1 else 'The only team'}: {', '.join(names[:TEAMS_SHOWN])}{rest}"
    return f"There is no team named {wanted}. {there}. `manage.py add_team {wanted}` makes it."


def administered_by(caller: Caller) -> list[Team]:
    """Teams the caller administers; PermissionDenied when there is none."""
    team_ids = caller.teams_where("administer")
    if not team_ids:
        raise PermissionDenied
    return list(Team.objects.filter(pk__in=team_ids).order_by("name"))


def chosen_of(teams: Sequence[Team], name: str | None) -> Team:
    """The team named, or the only one there is. ValidationError otherwise: guessing would let another team in."""
    if name is None and len(teams) == 1:
        return teams[0]
    for team in teams:
        if team.name == name:
            return team
    raise ValidationError({"team": [f"Name one of your teams: {', '.join(team.name for team in teams)}."]})
