"""How much one team, job or attempt may make ingest remember: a valid token must not be able to fill the database.

All are far above what the largest jobs need. What would make a whole new job, attempt or node is refused with a
sentence (OverLimit → 400: the agent drops and counts it, and goes on with its other jobs); rows that would add one
process or member too many are left out and counted at their node.
"""

from __future__ import annotations

from typing import Final

JOBS_MAX: Final = 10_000
"""Of one team."""
ATTEMPTS_MAX: Final = 100_000
"""Of one job."""
NODES_MAX: Final = 20_000
"""Of one attempt."""
BOOTS_MAX: Final = 1_000
"""Lives of the agent on one node, as one job sees them: the one silent for longest is forgotten for a new one."""
PROCESSES_MAX: Final = 200_000
"""Of one attempt."""
COMMUNICATORS_MAX: Final = 100_000
"""Of one attempt; the rows of later ones show rank -1."""
MEMBERS_MAX: Final = 200_000
"""Of one node: places of its processes in communicators."""

DUMP_REQUEST_BYTES_MAX: Final = 256 * 2**20
"""Of one request for dumps, compressed; beyond it the reason alone is kept."""
DUMP_EPOCHS_BYTES_MAX: Final = DUMP_REQUEST_BYTES_MAX // 4
"""Raw epochs of one request: stacks and recorders of nodes that answer late find the rest."""
DUMP_TEAM_BYTES_MAX: Final = 4 * 2**30
"""Of one team's requests; the oldest make room for a new one."""


class OverLimit(Exception):
    """The batch would make something there is too much of already; the message says of what."""


def check_room(n_held: int, n_max: int, what: str) -> None:
    """Raises OverLimit when no more fit."""
    if n_held >= n_max:
        raise OverLimit(f"{what}: {n_held}, at most {n_max} are kept")
