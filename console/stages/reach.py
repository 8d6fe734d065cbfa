"""How far back and ahead a pass over an attempt's stages reads, so that it holds no more rows than make a window and a stretch.

At 10,000 ranks a minute of short steps is millions of rows: steps that have been cut are not read again, and a stretch is as
long as so many rows take at the pace the attempt has. Newest is what a node has sent by the server's own clock: one whose
clock is ahead does not move the pass beyond what the others have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.db.models import Max

from console.stages.models import StagePacket
from ingest.models import Node, Rank
from rca.frontier.cutting import ROWS_MAX, SETTLED_NS
from rca.settings import SECOND_NS

STRETCH_NS: Final = 120 * SECOND_NS
STRETCH_NS_MIN: Final = 5 * SECOND_NS
STEP_S_MIN: Final = 0.05
"""Of an attempt whose steps have not been seen yet."""
CLOCK_NS_MAX: Final = 5 * SECOND_NS
"""So far ahead of the server's clock ingest leaves a node's (ingest/door/clock.py)."""


def newest_ns(attempt_id: int) -> int:
    """The newest data time of the attempt, unix ns, not beyond when a node was last heard; 0 when there is none."""
    told = Node.objects.filter(attempt=attempt_id).aggregate(newest=Max("watermark_ns"), heard=Max("received_ns"))
    newest, heard = int(told["newest"] or 0), int(told["heard"] or 0)
    return min(newest, heard + CLOCK_NS_MAX) if heard else newest


def start_ns(groups: Mapping[str, Mapping[str, Any]], read_ns: int, back_ns: int) -> int:
    """From where rows are read: shortly before where the group that is furthest behind was cut, at most back_ns before read_ns.

    groups: role → cursor, as kept.
    """
    ended = [int(held.get("ended_ns", 0)) for held in groups.values()]
    if not ended or not all(ended):
        return read_ns - back_ns
    return min(max(read_ns - back_ns, min(ended) - SETTLED_NS), read_ns)


def stretch_ns(attempt_id: int) -> int:
    """How much data time is read at once."""
    n_ranks = Rank.objects.filter(attempt=attempt_id, replaced=False).count()
    newest = StagePacket.objects.filter(attempt=attempt_id).order_by("-end_ns").values_list("step_s", flat=True).first()
    return span_ns(n_ranks, newest)


def span_ns(n_ranks: int, step_s: float | None) -> int:
    """So long as ROWS_MAX rows take. step_s: of a step; None unknown."""
    took_ns = int(ROWS_MAX / max(n_ranks, 1) * max(step_s or STEP_S_MIN, STEP_S_MIN / 10) * SECOND_NS)
    return min(max(took_ns, STRETCH_NS_MIN), STRETCH_NS)
