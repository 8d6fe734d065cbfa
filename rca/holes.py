"""What was not seen: nodes whose trace data was lost or cannot be read, and findings that rest on them graded down.

Losses are told by the agent that counted them, or by the node's own silence: what it tells every second is missing for
a while, inside the window.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import DATA_LOSSES, LOSSES
from rca.findings import Finding, Grade
from rca.keys import Mask
from rca.ranks import Ranks
from rca.settings import SECOND_NS
from rca.words import listed, lower, named

GAP_TICKS = 3.5
"""Usual distances between a node's ticks: less apart is a late sweep, or one batch of many."""
NOT_READ = (
    "Of most nodes one slow iteration was read and no more, and those that stood out in it by most were chosen. "
    "A second fault may have been left out; asking for the diagnosis again reads as many as can be read at once."
)
NOT_LOOKED_AT = "Ranks, nodes or links that were not looked at one by one, as there are too many: "
NOT_SHOWN = "Findings that are left out, as more are not shown: "
_HOLES = [LOSSES.index(name) for name in DATA_LOSSES]
_GRADES = list(Grade)


def ranked(findings: list[Finding]) -> list[Finding]:
    """Best grade first, then best score."""
    return sorted(findings, key=lambda finding: (_GRADES.index(finding.grade), -finding.score))


def best_of(
    findings: Sequence[Finding], most: int, missing: Sequence[str] = ()
) -> tuple[tuple[Finding, ...], tuple[str, ...]]:
    """The first of them, so many at most, and `missing` with how many are left out, those of before included."""
    before = sum(int(one.removeprefix(NOT_SHOWN).rstrip(".")) for one in missing if one.startswith(NOT_SHOWN))
    n_left = before + max(len(findings) - most, 0)
    said = tuple(one for one in missing if not one.startswith(NOT_SHOWN))
    return tuple(findings[:most]), (*said, *((f"{NOT_SHOWN}{n_left}.",) if n_left else ()))


def downgrade(window: Window, ranks: Ranks, findings: list[Finding]) -> tuple[tuple[str, ...], list[Finding]]:
    """(why, findings): one grade less for findings about nodes of which data is missing inside the window."""
    losses = window.rows("loss")
    serious = losses[np.isin(losses["kind"], _HOLES) & (losses["count"] > 0)]
    lossy = {str(window.nodes["name"][node]) for node in serious["node"] if node >= 0} | window.unreadable.keys()
    gaps = _gaps_s(window) if findings else {}
    reasons, found = [], []
    for finding in findings:
        nodes = _nodes_of(window, ranks, finding)
        lost, gone = sorted(nodes & lossy), sorted(nodes & gaps.keys() - lossy)
        if lost:
            told = f"Trace data of {', '.join(lost)} was lost or cannot be read"
        elif gone:
            told = f"For {gaps[gone[0]]:.1f} s nothing is known of {', '.join(gone)}"
        else:
            found.append(finding)
            continue
        reasons.append(f"{told}: '{finding.subject.name}' is graded down.")
        found.append(replace(finding, grade=lower(finding.grade), score=round(finding.score - 0.2, 4)))
    return tuple(reasons), ranked(found)


def _gaps_s(window: Window) -> dict[str, float]:
    """Node → its longest time without a tick between two, or before its first, where that is no accident."""
    rows = window.rows("process")
    rows = rows[rows["node"] >= 0]
    order = np.lexsort((rows["tick_ns"], rows["node"]))
    node, tick = rows["node"][order].astype(np.int64), rows["tick_ns"][order].astype(np.int64)
    apart = np.where(node[1:] == node[:-1], np.diff(tick), 0)
    steps = apart[apart > SECOND_NS // 10]  # ranks of a node are told at nearly the same time
    if not len(steps):
        return {}
    nodes, first = np.unique(node, return_index=True)
    # Who was there before the window began tells of it as early as the others do.
    is_older = window.nodes["first_ns"][nodes] < window.start_ns
    late = np.where(is_older, tick[first] - np.median(tick[first]), 0)
    longest = np.zeros(len(window.nodes), np.int64)
    np.maximum.at(longest, node[1:], apart)
    np.maximum.at(longest, nodes, late.astype(np.int64))
    long = np.flatnonzero(longest > GAP_TICKS * np.median(steps))
    return {str(window.nodes["name"][i]): float(longest[i]) / SECOND_NS for i in long}


def unseen(window: Window, ranks: Ranks) -> tuple[str, ...]:
    """Silent nodes, nodes that are late, and ranks that never reported, in sentences."""
    found = []
    if ranks.is_silent.any():
        found.append(f"No data from {named(ranks.names(np.flatnonzero(ranks.is_silent)))}: the node is silent.")
    if window.unreadable:
        found.append(unread(window))
    late = window.nodes["name"][window.nodes["catching_up"]]
    if len(late):
        found.append(f"Still catching up: {listed(late.tolist())}.")
    if window.unread:
        found.append(NOT_READ)
    nothing = (ranks.seen_ns == 0) & ~ranks.is_silent & ~_is_unread(window, ranks)
    if nothing.any():
        nothing &= ~np.isin(ranks.rank, window.rows("op")["rank"])
    if nothing.any():
        found.append(f"Nothing in this window from {named(ranks.names(np.flatnonzero(nothing)))}.")
    if window.world_size > len(ranks.rank):
        found.append(f"{window.world_size - len(ranks.rank)} of {window.world_size} ranks never reported.")
    return tuple(found)


def _is_unread(window: Window, ranks: Ranks) -> Mask:
    """(R,) whose node's rows were left out."""
    found = np.append(np.isin(window.nodes["name"], list(window.unread)), False)
    return found[ranks.node]


def unread(window: Window) -> str:
    """What of the window is stored and cannot be read, in a sentence; '' when all can."""
    if not window.unreadable:
        return ""
    worst = sorted(window.unreadable.items(), key=lambda said: (-said[1], said[0]))
    return f"Stored and cannot be read: {listed([f'{n} table groups of {name}' for name, n in worst])}."


def _nodes_of(window: Window, ranks: Ranks, finding: Finding) -> set[str]:
    """Names of the nodes a finding is about: its ranks' and those of the flows it rests on."""
    named_ranks = {*finding.subject.ranks, *(condition.peer_rank for condition in finding.conditions)}
    at = ranks.position(np.array(sorted(named_ranks), np.int64))
    nodes = ranks.node[at[at >= 0]]
    return {str(name) for name in window.nodes["name"][nodes[nodes >= 0]]}
