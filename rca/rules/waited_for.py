"""Who makes everybody else wait, where nothing that they do is seen to be slow itself.

    others:  waits for data ────────────▶ op        longer by all that an iteration lost
    node 6:  ··········· own work ·······▶ op        no longer than ever

In a tree ops of inner ranks begin with the data of others, so nobody sees that they begin late. But whoever is kept waiting waits
longer, for data or for credits, and who keeps them waiting does not. Asked only where no other rule has anything to say, and
only of the ranks of one node. docs/rules/waited_for.md
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rca.counters import DONE_NAME, GPU_READY_NAME, TRANSMITTED_NAME
from rca.findings import Component, FaultKind, Finding, Grade, Subject, Symptom
from rca.keys import Ints, Mask
from rca.settings import Settings
from rca.slow.inside import Wait
from rca.slow.launch_lead import last_to_launch, launch_alike
from rca.slow.slow_words import finding_of
from rca.slow.slowdown import Slowdown
from rca.words import named

RULE = "waited_for"
VERSION = 3
NEEDS = frozenset({GPU_READY_NAME, TRANSMITTED_NAME, DONE_NAME})
KEPT_MIN = 0.75  # of the lost time: so much longer a rank waits that is kept waiting
FREE_MAX = 0.25  # of it: so little longer waits who keeps them, and so little of it shows inside its own ops
OTHERS_MIN = 0.9  # of all other ranks
NODES_MIN = 3  # of two nodes that only wait for each other either may be slow
TOLD = "`nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE`, `top -b -n 1 | head -30`, `dmesg | grep -i xid`"


def explain(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding about the only node whose ranks, or one, are waited for by all others; () where there is none."""
    del symptom, settings
    at = waited_for(slowdown)
    if not len(at):
        return ()
    there = slowdown.ranks.rank[slowdown.ranks.node == slowdown.nodes[at[0]]].astype(np.int64)
    last = last_to_launch(slowdown, there)
    if len(last) == 1:
        return (_about(slowdown, at, last, Component.GPU),)
    found = _about(slowdown, at, np.sort(there), Component.NODE)
    if len(there) == 1 or launch_alike(slowdown, there):
        return (found,)
    tied = tuple(Subject("gpu", named((rank,)), (rank,), found.subject.node) for rank in found.culprits)
    return (replace(found, culprits=(), tied=tied, grade=Grade.WEAK),)


def _about(slowdown: Slowdown, at: Ints, ranks: Ints, component: Component) -> Finding:
    """That these ranks of the node are waited for. at: positions of those of it that are seen."""
    who = tuple(ranks.tolist())
    said = "{who} keep all others waiting" if len(who) > 1 else "{who} keeps all others waiting"
    found = finding_of(
        RULE, VERSION, slowdown, tuple(at.tolist()), component, FaultKind.COMPUTATION_FAIL_SLOW, slowdown.lost_ns,
        "by which all others wait longer for data and credits, and no rank of its node does", said.format(who=named(who)),
        "iterations are longer by", TOLD, (1, 1),
    )  # fmt: skip
    subject = found.subject if component is Component.NODE else replace(found.subject, name=named(who))
    return replace(
        found, culprits=who, subject=replace(subject, ranks=who), grade=Grade.MODERATE,
        score=round(0.8 * found.score, 4), cover=found.cover[1:],
    )  # fmt: skip


def waited_for(slowdown: Slowdown) -> Ints:
    """Positions of the ranks of one node that wait hardly longer than ever while nearly all others wait as much longer as an
    iteration got longer; none where that is said of ranks of several nodes, or something inside their ops is slow."""
    inside, lost = slowdown.inside, slowdown.lost_ns
    waited = slowdown.sum(inside.excess(Wait.DATA)) + slowdown.sum(inside.excess(Wait.CREDIT))
    own = np.maximum(slowdown.sum(inside.excess(Wait.COPY)), slowdown.sum(inside.excess(Wait.NETWORK)))
    free, nodes = waited <= FREE_MAX * lost, slowdown.nodes
    where, n_nodes = np.unique(nodes[free]), len(np.unique(nodes[nodes >= 0]))
    if len(where) != 1 or where[0] < 0 or n_nodes < NODES_MIN or not free[nodes == where[0]].all():
        return np.zeros(0, np.int64)
    if not _are_known(slowdown)[free].all() or not _are_all_seen(slowdown):
        return np.zeros(0, np.int64)
    is_kept = (waited >= KEPT_MIN * lost)[~free]
    if is_kept.mean() < OTHERS_MIN or (own[free] > FREE_MAX * lost).any():
        return np.zeros(0, np.int64)
    return np.flatnonzero(free)


def _are_known(slowdown: Slowdown) -> Mask:
    """(R,) of whom it is known, before and now, how long they wait, and who used to wait: of others "no longer" says nothing."""
    usual, slow = slowdown.inside.usual, slowdown.inside.slow
    known, used = np.zeros(len(slowdown.nodes)), np.zeros(len(slowdown.nodes))
    for wait in (Wait.DATA, Wait.CREDIT):
        known += slowdown.sum((np.isfinite(usual[wait]) & np.isfinite(slow[wait])).astype(np.float64))
        used += slowdown.sum(usual[wait])
    found: Mask = (known > 0) & (used > 0)
    return found


def _are_all_seen(slowdown: Slowdown) -> bool:
    """Whether every rank that the job's communicators have is on a node of which ranks are seen: another may be the one."""
    ranks, members = slowdown.ranks, slowdown.window.members["rank"]
    there = ranks.rank[np.isin(ranks.node, slowdown.nodes[slowdown.nodes >= 0])]
    return bool(np.isin(members[members >= 0], there).all())
