"""Whether a job's steps go on at all: what windows say is in the present tense only where they are known to."""

from __future__ import annotations

import time
from typing import Final

from ingest.models import Attempt, Node
from ingest.read import read_window
from rca.settings import SECOND_NS

HEARD_NS: Final = 3 * SECOND_NS
SILENT_NS: Final = 30 * SECOND_NS
"""By the server's clock: of nodes that came last so long ago nothing of now is known."""
QUIET_NS: Final = 15 * SECOND_NS
STEPS: Final = 5
"""Ops of a long step may lie far apart: so many steps must have passed without one."""
NODES_READ: Final = 8


def standing_since_ns(attempt: Attempt, now_ns: int, step_s: float, *, is_past: bool = False) -> int | None:
    """When an op ended last, unix ns, where that is long before now_ns; 0 where ops end; None where nobody tells of them.

    Asked are the nodes that were heard last: of those that died nothing can be known. is_past: now_ns lies in the past, so
    that nodes need not be heard today. Ops, not steps: steps may be told of late, by a gather every so often.
    """
    heard = Node.objects.filter(attempt=attempt, watermark_ns__gte=now_ns - HEARD_NS)
    if not is_past:
        heard = heard.filter(received_ns__gte=time.time_ns() - SILENT_NS)
    nodes = list(heard.order_by("-watermark_ns", "name").values_list("name", flat=True)[:NODES_READ])
    if not nodes:
        return None
    progress = read_window(attempt.pk, now_ns - HEARD_NS, now_ns, ("progress",), nodes=nodes).rows("progress")
    last_ns = int(progress["last_done_ns"].max(initial=0))
    if not last_ns:
        return None
    is_quiet = now_ns - last_ns > max(QUIET_NS, int(STEPS * step_s * SECOND_NS))
    return last_ns if is_quiet else 0
