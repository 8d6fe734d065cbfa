"""Whether a job's steps go on at all: what windows say is in the present tense only where they do."""

from __future__ import annotations

from typing import Final

from ingest.models import Attempt, Rank
from ingest.read import read_window
from rca.settings import SECOND_NS

HEARD_NS: Final = 3 * SECOND_NS
QUIET_NS: Final = 15 * SECOND_NS
STEPS: Final = 5
"""Ops of a long step may lie far apart: so many steps must have passed without one."""
RANKS_READ: Final = 8


def standing_since_ns(attempt: Attempt, now_ns: int, step_s: float) -> int:
    """When the last op of the first ranks ended, unix ns, where that is long before now_ns; 0 where ops end, or nothing is known.

    Ops, not steps: steps may be told of late, by a gather every so often.
    """
    first = Rank.objects.filter(attempt=attempt, rank__gte=0, replaced=False).order_by("rank")
    ranks = list(first.values_list("rank", flat=True)[:RANKS_READ])
    progress = read_window(attempt.pk, now_ns - HEARD_NS, now_ns, ("progress",), ranks=ranks).rows("progress")
    last_ns = int(progress["last_done_ns"].max(initial=0))
    is_quiet = now_ns - last_ns > max(QUIET_NS, int(STEPS * step_s * SECOND_NS))
    return last_ns if last_ns and is_quiet else 0
