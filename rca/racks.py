"""Racks: how much of one a finding touches, and what touches all of one is a finding about it.

    node silent · node silent · node silent · node silent   →   rack r3, all 4 nodes

A switch, a power feed or a way out of a rack is shared by its nodes, and no trace says so: agents declare where their nodes
stand. A rack is named when all its nodes, two at least, show the same while nodes elsewhere do not; else its findings stay.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from ingest.window import Window
from rca.advice import for_rack
from rca.findings import Component, Cover, FaultKind, Finding, Grade, Subject
from rca.keys import Ints, Mask
from rca.ranks import Ranks
from rca.words import lowered, named

Alike = Callable[[Finding], Mask | None]
Weighed = Callable[[Grade, Ints], tuple[float, str]]

NODES_MIN: Final = 2
FACTS_MAX: Final = 16
OTHERS: Final = ", and so for the others"
_FACTS_EACH: Final = 3
_SHARED: Final = (Component.NIC, Component.NETWORK, Component.NODE)
"""What one rank shows for its node; of other components all ranks of a node must show it, before that is the node's."""
_NOT_SHARED: Final = (FaultKind.MISMATCH, FaultKind.DEADLOCK, FaultKind.GROUP_ANOMALY, FaultKind.UNKNOWN)
_GRADES: Final = list(Grade)


def rack_cover(window: Window, nodes: Ints) -> tuple[Cover, ...]:
    """How many of a rack's nodes these (indices) are; () unless all of them declare the same one."""
    names = window.nodes["name"][nodes].tolist()
    racks = {window.racks.get(name, "") for name in names}
    rack = racks.pop() if len(racks) == 1 else ""
    if not rack:
        return ()
    n_there = sum(window.racks.get(name) == rack for name in window.nodes["name"].tolist())
    return (Cover("node", len(names), n_there, f"rack {rack}"),)


def whole_racks(window: Window, nodes: Ints) -> dict[str, Ints]:
    """Rack → its nodes (indices), of those that lie wholly among `nodes` and are not the whole job."""
    if not window.racks or len(nodes) < NODES_MIN:
        return {}
    is_touched = np.zeros(len(window.nodes), bool)
    is_touched[nodes] = True
    of_rack: dict[str, list[int]] = {}
    for node, name in enumerate(window.nodes["name"].tolist()):
        of_rack.setdefault(window.racks.get(name, ""), []).append(node)
    of_rack.pop("", None)
    found = {rack: np.array(those, np.int64) for rack, those in sorted(of_rack.items()) if len(those) >= NODES_MIN}
    return {rack: those for rack, those in found.items() if is_touched[those].all() and len(those) < len(is_touched)}


def racks_apart(window: Window, nodes: Ints) -> dict[str, Ints]:
    """As whole_racks, where `nodes` are not all that the job has: what shows everywhere is no rack's."""
    return whole_racks(window, nodes) if len(np.unique(nodes)) < len(window.nodes) else {}


def one_per_rack(window: Window, nodes: Ints, among: Ints) -> Ints:
    """`nodes` with the first alone of every rack that lies wholly in `among`, these in front: by_rack finds the others."""
    firsts, rest = [], nodes
    for those in racks_apart(window, among).values():
        here = np.intersect1d(nodes, those)
        firsts += here[:1].tolist()
        rest = np.setdiff1d(rest, here)
    return np.concatenate([np.array(firsts, np.int64), rest])


def by_rack(
    window: Window,
    ranks: Ranks,
    findings: Sequence[Finding],
    alike: Alike | None = None,
    weighed: Weighed | None = None,
) -> list[Finding]:
    """`findings`, those of one component and kind that touch all of a rack as one about the rack.

    alike: ranks, (R,), of which the same is seen as of a finding's, whether they have one or not; None: nobody else.
    weighed: score and last words by grade and positions of the culprits; without it the best score, and the words stay.
    """
    found = list(findings)
    for group in _groups(findings).values() if window.racks else ():
        shows = [_shows(ranks, one, alike) for one in group]
        component = group[0].component
        for rack, nodes in racks_apart(window, _touched(ranks, shows, component)).items():
            inside = [i for i, one in enumerate(group) if np.isin(ranks.node[_blamed(ranks, one)], nodes).all()]
            touched = _touched(ranks, [shows[i] for i in inside], component)
            if not np.isin(nodes, touched).all():
                continue  # what shows at the rest of the rack is of a finding that reaches beyond it
            those = [group[i] for i in inside]
            at = np.flatnonzero(np.any([shows[i] for i in inside], axis=0) & np.isin(ranks.node, nodes))
            found = _with(found, those, _of_rack(window, ranks, rack, nodes, those, at, weighed))
    return found


def _groups(findings: Sequence[Finding]) -> dict[tuple[Component, FaultKind], list[Finding]]:
    """Findings that blame somebody, and nobody with them, for what the nodes of a rack may have in common; none of a rack."""
    groups: dict[tuple[Component, FaultKind], list[Finding]] = {}
    for one in findings:
        is_sure = bool(one.culprits) and not one.tied and one.subject.kind != "rack"
        if is_sure and one.kind not in _NOT_SHARED and one.component is not Component.SOFTWARE:
            groups.setdefault((one.component, one.kind), []).append(one)
    return groups


def _with(found: list[Finding], those: list[Finding], rack: Finding) -> list[Finding]:
    """`found` with one in the place of the first of these."""
    rest = {id(one) for one in those[1:]}
    return [rack if one is those[0] else one for one in found if id(one) not in rest]


def _blamed(ranks: Ranks, one: Finding) -> Mask:
    return np.isin(ranks.rank, one.culprits)


def _shows(ranks: Ranks, one: Finding, alike: Alike | None) -> Mask:
    more = alike(one) if alike else None
    return _blamed(ranks, one) if more is None else _blamed(ranks, one) | more


def _touched(ranks: Ranks, shows: Sequence[Mask], component: Component) -> Ints:
    """Nodes (indices) that show it: by any rank where it is shared by them, else by all of theirs."""
    some = np.any(shows, axis=0) if len(shows) else np.zeros(len(ranks.rank), bool)
    nodes: Ints = np.unique(ranks.node[some & (ranks.node >= 0)])
    return nodes if component in _SHARED else np.setdiff1d(nodes, ranks.node[~some])


def _of_rack(
    window: Window, ranks: Ranks, rack: str, nodes: Ints, those: list[Finding], at: Ints, weighed: Weighed | None
) -> Finding:
    names, culprits = window.nodes["name"][nodes].tolist(), ranks.names(at)
    best = max(those, key=lambda one: one.score)
    grade = max((one.grade for one in those), key=_GRADES.index)
    score, ends = weighed(grade, at) if weighed else (best.score, "")
    facts = dict.fromkeys(fact for one in [best, *those] for fact in one.evidence[:_FACTS_EACH])
    return replace(
        best, subject=Subject("rack", rack, culprits), culprits=culprits, grade=grade, score=score,
        sentence=_sentence(rack, len(nodes), culprits, best, ends), evidence=tuple(facts)[:FACTS_MAX],
        advice=for_rack(rack, names, best.component, best.kind, best.advice), cover=_cover(best, rack, len(nodes)),
        began_ns=min((one.began_ns for one in those if one.began_ns), default=0),
    )  # fmt: skip


def _sentence(rack: str, n_nodes: int, culprits: tuple[int, ...], best: Finding, ends: str) -> str:
    said = lowered(best.sentence.rsplit(";", 1)[0] if ends else best.sentence.rstrip("."))
    said = said.removesuffix(OTHERS)
    who = "" if set(best.culprits) == set(culprits) else f" ({named(culprits)})"
    others = OTHERS if who else ""
    return f"All {n_nodes} nodes of rack {rack}{who}: {said}{others}{f'; {ends}' if ends else ''}. {shared(n_nodes)}"


def shared(n_nodes: int) -> str:
    """Why it is the rack that is named."""
    return f"A switch or power that they share is likelier than {n_nodes} faults at once."


def _cover(best: Finding, rack: str, n_nodes: int) -> tuple[Cover, ...]:
    """The steps of one of them that still hold, with all of the rack and its part of the job."""
    kept = [part for part in best.cover if part.kind not in ("rank", "node")]
    job = [replace(part, n=n_nodes) for part in best.cover if (part.kind, part.whole) == ("node", "the job")]
    return (*kept, Cover("node", n_nodes, n_nodes, f"rack {rack}"), *job)
