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
from rca.slow.streams import Floats
from rca.words import named

RULE = "waited_for"
VERSION = 4
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
    iteration got longer; none where that is said of ranks of several nodes, or something inside their ops is slow.

    Asked of the communicators that tell it: in one that nobody waits in, or everybody, as in an op that is called long before
    its time, the waiting ends at nobody."""
    inside, lost, nodes = slowdown.inside, slowdown.lost_ns, slowdown.nodes
    copies = inside.excess(Wait.COPY)
    own = np.maximum(slowdown.sum(copies), slowdown.sum(inside.excess(Wait.NETWORK)))
    waits = inside.excess(Wait.DATA) + inside.excess(Wait.CREDIT)
    is_told, kept_ns, longest_ns = _told(slowdown, waits, copies)
    hardly = longest_ns <= FREE_MAX * lost
    free = is_told & hardly
    where, n_nodes = np.unique(nodes[free]), len(np.unique(nodes[is_told & (nodes >= 0)]))
    if len(where) != 1 or where[0] < 0 or n_nodes < NODES_MIN or not hardly[nodes == where[0]].all():
        return np.zeros(0, np.int64)
    if not _are_known(slowdown)[free].all() or not _are_all_seen(slowdown):
        return np.zeros(0, np.int64)
    is_kept = (kept_ns >= KEPT_MIN * lost)[is_told & ~free]
    if is_kept.mean() < OTHERS_MIN or (own[free] > FREE_MAX * lost).any():
        return np.zeros(0, np.int64)
    return np.flatnonzero(free)


def _told(slowdown: Slowdown, for_others_ns: Floats, copies_ns: Floats) -> tuple[Mask, Floats, Floats]:
    """(R,) who is in a communicator that tells it; by how much longer each is kept, with what it holds itself until all has come
    (inner ranks of trees), and waits for others, in the communicator in which it is most: of those that tell, if any do."""
    n_ranks, lost = len(slowdown.iterations.ranks), slowdown.lost_ns
    comms, of = np.unique(slowdown.iterations.comm_id, return_inverse=True)
    pairs, place = np.unique(of * n_ranks + slowdown.iterations.rank_at, return_inverse=True)
    comm, rank = pairs // n_ranks, pairs % n_ranks
    waits = np.bincount(place, weights=for_others_ns)
    kept = waits + np.bincount(place, weights=copies_ns)
    least, most = np.full(len(comms), np.inf), np.zeros(len(comms))
    np.minimum.at(least, comm, waits)
    np.maximum.at(most, comm, kept)
    tells = ((least <= FREE_MAX * lost) & (most >= KEPT_MIN * lost))[comm]
    is_told = np.bincount(rank[tells], minlength=n_ranks) > 0
    counts = tells | ~is_told[rank]
    found = np.zeros((2, n_ranks))
    for longest, values in zip(found, (kept, waits), strict=True):
        np.maximum.at(longest, rank[counts], values[counts])
    return is_told, found[0], found[1]


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
