"""The diagnosis of a slow job, from the nodes that matter where they told much (Mycroft §5: communicators, ranks, flows).

Some nodes are read whole as the norm, of all others one slow iteration; who stands out in it is read whole too, with the peers
(slow/suspects.py). What the rules make of that is the answer when they are sure. When they are not, or blame a node that
did not stand out itself, or too many nodes do, everything is read: an answer may take longer, and is not guessed from a part.
Everything of a job of ten thousand GPUs is more than a look has time for: there those who stand out most are read, and the peers
of whom the rules blame then, and the answer says that it rests on them.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, Protocol

import numpy as np

from ingest.window import Window
from rca.diagnose import diagnose
from rca.findings import Diagnosis, FaultKind, Grade, Symptom
from rca.holes import NOT_READ, NOT_SHOWN
from rca.keys import Ints, distinct
from rca.settings import Settings
from rca.slow.suspects import CLOCKED_NODES, GLIMPSED, NORM_NODES, foremost, norm_nodes, peers, slow_span, suspects

LARGE_NODES: Final = 160
LARGE_OPS: Final = 2_000_000
"""Of fewer nodes and ops, everything is read in about the time that choosing takes."""
PART_MAX: Final = 0.4
"""Of the nodes: to read more of them first saves nothing."""
OPS_MAX: Final = 8_000_000
"""Reading and comparing more takes longer than a look may (60 s), and more than 5 GB."""
TOO_MUCH: Final = (
    "All that was told of this time is more than can be read at once: this answer rests on the nodes that stand out most, and on "
    "those they exchange data with, though these do not make it sure."
)


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
    ops_max: int = OPS_MAX,
) -> tuple[Window, Diagnosis]:  # fmt: skip
    """The diagnosis of a slowdown, and the window that it was made from. large_nodes, large_ops: of fewer of both all is read;
    ops_max: of more never all."""
    large = _large(source, large_nodes, large_ops, ops_max)
    found = _from_a_part(source, symptom, settings, large) if large is not None else None
    return found or _from_all(source, symptom, settings)


def diagnose_all(
    source: Source, symptom: Symptom, settings: Settings, ops_max: int = OPS_MAX
) -> tuple[Window, Diagnosis]:
    """As `diagnose_slow`, from all nodes, however many, unless they told more than `ops_max`."""
    large = _large(source, 0, 0, ops_max)
    found = _from_a_part(source, symptom, settings, large) if large is not None and large.is_too_much else None
    return found or _from_all(source, symptom, settings)


def _from_all(source: Source, symptom: Symptom, settings: Settings) -> tuple[Window, Diagnosis]:
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
    return len(np.setdiff1d(_blamed(found, window), odd)) > 0


def is_part(found: Diagnosis) -> bool:
    """Whether a diagnosis was made from a part of the nodes."""
    return NOT_READ in found.missing


def unseen_of(found: Diagnosis) -> tuple[str, ...]:
    """What was missing; what was not asked for, or is left out, is not."""
    return tuple(one for one in found.missing if one not in (NOT_READ, TOO_MUCH) and not one.startswith(NOT_SHOWN))


@dataclass(frozen=True, slots=True)
class _Large:
    """A job that told much. norm: nodes; clocked: all that some of them told; nodes_max: of how many all can be read."""

    n_nodes: int
    nodes_max: int
    norm: Ints
    clocked: Window

    @property
    def is_too_much(self) -> bool:
        return self.nodes_max < self.n_nodes


def _large(source: Source, large_nodes: int, large_ops: int, ops_max: int) -> _Large | None:
    """None where everything is to be read."""
    frame = source.frame()
    norm, n_nodes = norm_nodes(frame), len(frame.nodes)
    is_small = n_nodes <= NORM_NODES and _is_most(norm, n_nodes)  # reading its norm is reading it
    if not len(norm) or is_small:
        return None
    clocked = source.whole(norm[:CLOCKED_NODES])
    n_ops = len(clocked.rows("op")) * n_nodes // len(norm[:CLOCKED_NODES])
    is_large = n_nodes >= large_nodes or n_ops >= large_ops
    return _Large(n_nodes, n_nodes * ops_max // max(n_ops, 1), norm, clocked) if is_large else None


def _is_most(norm: Ints, n_nodes: int) -> bool:
    """Whether with those that stand out, and their peers, too many are to be read."""
    return len(norm) > PART_MAX / 2 * n_nodes


def _from_a_part(
    source: Source, symptom: Symptom, settings: Settings, large: _Large
) -> tuple[Window, Diagnosis] | None:
    """What the nodes that matter tell; None where everything is to be read."""
    part = _part(source, symptom, large)
    if part is None:
        return None
    window, odd = part
    found = diagnose(window, symptom, settings)
    if is_sure(found) and not blames_others(found, window, odd):
        return window, found
    return _as_far_as_possible(source, symptom, settings, large, odd, window, found) if large.is_too_much else None


def _part(source: Source, symptom: Symptom, large: _Large) -> tuple[Window, Ints] | None:
    """The window of the nodes that matter, and which of them stand out; None where everything is to be read."""
    odd = _odd(source, symptom, large)
    if odd is None:
        return None
    chosen = _with_peers(source, large, odd)
    if len(chosen) > PART_MAX * large.n_nodes and not large.is_too_much:
        return None
    return _read(source, chosen), odd


def _odd(source: Source, symptom: Symptom, large: _Large) -> Ints | None:
    """The nodes that stand out; None where few nodes do not tell who does, and everything can be read."""
    span = slow_span(large.clocked, symptom.at_ns)
    if not large.is_too_much and (span is None or _is_most(large.norm, large.n_nodes)):
        return None
    if span is None:
        return np.zeros(0, np.int64)
    start_ns, end_ns, lost_ns = span
    glimpse = source.glimpse(start_ns, end_ns, GLIMPSED)
    odd = suspects(glimpse, lost_ns)
    return foremost(glimpse, lost_ns) if odd is None and large.is_too_much else odd


def _with_peers(source: Source, large: _Large, odd: Ints) -> Ints:
    """These nodes, the norm and their peers, of which those are left out that are too many to be read."""
    chosen = np.union1d(large.norm, odd)
    others = np.setdiff1d(peers(source.whole(odd), odd), chosen)
    return np.union1d(chosen, others[: max(large.nodes_max - len(chosen), 0)])


def _read(source: Source, chosen: Ints) -> Window:
    """All that these nodes told; the window says which were left out."""
    window = source.whole(chosen)
    others = np.setdiff1d(np.arange(len(window.nodes)), chosen)
    return replace(window, unread=tuple(window.nodes["name"][others].tolist()))


def _as_far_as_possible(
    source: Source, symptom: Symptom, settings: Settings, large: _Large, odd: Ints, window: Window, found: Diagnosis
) -> tuple[Window, Diagnosis]:
    """What a part says that is not sure, where everything is too much: asked once more with the peers of those it blames."""
    if blames_others(found, window, odd):
        blamed = _blamed(found, window)
        window = _read(source, _with_peers(source, large, np.union1d(odd, blamed[blamed >= 0])))
        found = diagnose(window, symptom, settings)
    return window, replace(found, missing=(*found.missing, TOO_MUCH))


def _blamed(found: Diagnosis, window: Window) -> Ints:
    """(k,) nodes of the ranks that findings blame, more than weakly; -1 where it is not known."""
    ranks = [rank for one in found.findings if one.grade is not Grade.WEAK for rank in one.culprits]
    return distinct(window.ranks["node"][np.isin(window.ranks["rank"], ranks)]).astype(np.int64)
