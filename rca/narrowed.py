"""The diagnosis of a slow job, from the nodes that matter where they told much (Mycroft §5: communicators, ranks, flows).

Some nodes are read whole as the norm, of all others one slow iteration; who stands out in it is read whole too, with the peers
(slow/suspects.py). What the rules make of that is the answer when they are sure. When they are not, or blame a node that
did not stand out itself, or too many nodes do, everything is read: an answer may take longer, and is never guessed from a part.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final, Protocol

import numpy as np

from ingest.window import Window
from rca.diagnose import diagnose
from rca.findings import Diagnosis, FaultKind, Grade, Symptom
from rca.holes import NOT_READ
from rca.keys import Ints
from rca.settings import Settings
from rca.slow.suspects import CLOCKED_NODES, GLIMPSED, norm_nodes, peers, slow_span, suspects

LARGE_NODES: Final = 160
LARGE_OPS: Final = 2_000_000
"""Of fewer nodes and ops, everything is read in about the time that choosing takes."""
PART_MAX: Final = 0.4
"""Of the nodes: to read more of them first saves nothing."""


class Source(Protocol):
    """What is stored of the time of a slowdown."""

    def frame(self) -> Window:
        """The window without rows."""

    def glimpse(self, start_ns: int, end_ns: int, columns: Collection[str]) -> Window:
        """The ops of all nodes in that time, with at least these columns."""

    def whole(self, nodes: Ints | None) -> Window:
        """All that these nodes told; None: all nodes."""


def diagnose_slow(
    source: Source, symptom: Symptom, settings: Settings, large_nodes: int = LARGE_NODES, large_ops: int = LARGE_OPS,
    can_wait: Callable[[Diagnosis], bool] = lambda found: False,
) -> tuple[Window, Diagnosis]:  # fmt: skip
    """The diagnosis of a slowdown, and the window that it was made from. large_nodes, large_ops: of fewer of both all is read.

    can_wait: whether a part's diagnosis that is not sure is left at that, as nothing is done about it yet."""
    part = _part(source, symptom, large_nodes, large_ops)
    if part is not None:
        window, odd = part
        found = diagnose(window, symptom, settings)
        if can_wait(found) or (is_sure(found) and not blames_others(found, window, odd)):
            return window, found
    window = source.whole(None)
    return window, diagnose(window, symptom, settings)


def is_sure(found: Diagnosis) -> bool:
    """Whether what a part of the nodes told is enough: somebody is seen to be slow, or everybody alike."""
    if not found.findings:
        return False
    best = found.findings[0]
    if best.kind is FaultKind.GROUP_ANOMALY:
        return best.grade is not Grade.WEAK
    return bool(best.culprits) and best.grade is Grade.STRONG


def blames_others(found: Diagnosis, window: Window, odd: Ints) -> bool:
    """Whether somebody is blamed, first or beside others, whose node did not stand out: read as the norm, or as a peer, of
    which other peers might tell more. odd: nodes that stand out."""
    blamed = [rank for one in found.findings if one.grade is not Grade.WEAK for rank in one.culprits]
    return bool(np.isin(blamed, window.ranks["rank"][~np.isin(window.ranks["node"], odd)]).any())


def is_part(found: Diagnosis) -> bool:
    """Whether a diagnosis was made from a part of the nodes."""
    return NOT_READ in found.missing


def unseen_of(found: Diagnosis) -> tuple[str, ...]:
    """What was missing; what was not asked for is not."""
    return tuple(one for one in found.missing if one != NOT_READ)


def _part(source: Source, symptom: Symptom, large_nodes: int, large_ops: int) -> tuple[Window, Ints] | None:
    """The window of the nodes that matter, and which of them stand out; None where everything is to be read."""
    frame = source.frame()
    norm, n_nodes = norm_nodes(frame), len(frame.nodes)
    if not len(norm) or len(norm) > PART_MAX / 2 * n_nodes:
        return None
    clocked = source.whole(norm[:CLOCKED_NODES])
    n_ops = len(clocked.rows("op")) * n_nodes // len(norm[:CLOCKED_NODES])
    if n_nodes < large_nodes and n_ops < large_ops:
        return None
    span = slow_span(clocked, symptom.at_ns)
    if span is None:
        return None
    start_ns, end_ns, lost_ns = span
    odd = suspects(source.glimpse(start_ns, end_ns, GLIMPSED), lost_ns)
    if odd is None:
        return None
    chosen = np.union1d(np.union1d(norm, odd), peers(source.whole(odd), odd))
    if len(chosen) > PART_MAX * n_nodes:
        return None
    window = source.whole(chosen)
    others = np.setdiff1d(np.arange(n_nodes), chosen)
    return replace(window, unread=tuple(window.nodes["name"][others].tolist())), odd
