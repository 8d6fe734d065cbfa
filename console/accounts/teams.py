"""Teams by name, as people type them on the command line."""

from __future__ import annotations

from typing import Final

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
