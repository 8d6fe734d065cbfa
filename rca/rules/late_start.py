"""A rank that starts late by its own fault: what it waited for was over, and its own work took longer (Mycroft §7.1, #3–#5).

    earlier op ends ──▶ |· usual work ·|··· own delay ···| ──▶ next op starts, everybody else waits in it

Ranks that wait for each other inside a node, where the network does not see it, are late together: the one that leads
is blamed; the node, when all of them are slow; else they are tied (late_together.py). In a tree the start of an inner rank says
nothing; where nobody is late by the ops that are seen, who of a node launches last may still be (launch_anywhere.py). Abstains
when everything late was kept waiting. docs/rules/late_start.md
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rca.counters import GPU_READY_NAME
from rca.findings import Component, FaultKind, Finding, Grade, Subject, Symptom
from rca.keys import Ints, Keys, Mask
from rca.settings import Settings
from rca.slow.copies import own_copy_ns
from rca.slow.cover import BESIDE_MIN, COVERED_MIN, SHARE_MIN, blamed_of
from rca.slow.inside import Wait
from rca.slow.late_together import LEAD_MIN, are_late_alike, are_less_even, leaders, mates_of, mean_known
from rca.slow.launch_anywhere import leads_anywhere_ns, uneven_nodes
from rca.slow.launch_lead import last_to_launch, launch_alike, leading_anywhere
from rca.slow.slow_words import finding_of, for_everybody
from rca.slow.slowdown import Slowdown
from rca.slow.standstill import hidden_mates, stands_still
from rca.slow.streams import Floats
from rca.words import capitalised, named

RULE = "late_start"
VERSION = 19
NEEDS = frozenset({GPU_READY_NAME})

TOLD_GPU = "`nvidia-smi -q -d PERFORMANCE,CLOCK,POWER,TEMPERATURE`, `nvidia-smi dmon -c 5`, `dmesg | grep -i xid`"
TOLD_NODE = "`top -b -n 1 | head -30`, `nvidia-smi`, `nvidia-smi dmon -c 5`"
LATE_MIN_NS = 300_000.0
SENDS_MIN = 2
SHOWN_MIN = 0.5  # of the slow iterations
BOUND_MIN = 0.75  # of the ranks of a node that are seen
LONGER, ALL_LONGER = "{who} takes longer for its own work", "All of {who} take longer for their own work"


def explain(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per rank, or node, that is late of its own; () when nobody is."""
    del symptom, settings
    own = own_delay_ns(slowdown)
    told = slowdown.delays.is_told(slowdown.slow)
    is_blamed, is_everybody = blamed_of(slowdown.iterations, slowdown.nodes, own, slowdown.lost_ns, told)
    if is_everybody:
        return (for_everybody(RULE, VERSION, slowdown, Component.GPU, own, "takes longer for its own work"),)
    if not is_blamed.any():
        return _behind_unseen(slowdown) or _only_launching(slowdown)
    group = slowdown.delays.group
    groups = [np.flatnonzero(is_blamed & (group == one)) for one in np.unique(group[is_blamed])]
    return tuple(_finding(slowdown, own, at) for at in groups)


def own_delay_ns(slowdown: Slowdown) -> Floats:
    """(R,) own delay of every rank per slow iteration, beyond what it usually has: of those who are late constantly."""
    delays = slowdown.delays
    own = np.maximum(delays.per_iteration_ns(slowdown.slow) - delays.per_iteration_ns(slowdown.usual), 0.0)
    return np.where(delays.is_constant(slowdown.slow), own, 0.0)


def _behind_unseen(slowdown: Slowdown) -> tuple[Finding, ...]:
    """A finding per node on which ops stand still behind a rank that the network does not show; () where most nodes have such."""
    excess = own_copy_ns(slowdown)
    excess = np.where(stands_still(slowdown, excess), excess, 0.0)
    stood = slowdown.sum(excess)
    where = np.unique(
        slowdown.nodes[stood >= max(SHARE_MIN * slowdown.lost_ns, BESIDE_MIN * float(stood.max(initial=0.0)))]
    )
    if 2 * len(where) > len(np.unique(slowdown.nodes)):
        return ()
    return tuple(_unseen(slowdown, stood, excess, np.flatnonzero(slowdown.nodes == node)) for node in where)


def _unseen(slowdown: Slowdown, stood: Floats, excess: Floats, there: Ints) -> Finding:
    """About the ranks of a node that are not seen in the ops that stand still there. there: positions of those that are seen."""
    at = there[stood[there] > 0]
    rooms = np.unique(slowdown.inside.room[(excess > 0) & np.isin(slowdown.iterations.rank_at, at)])
    hidden = np.unique(np.concatenate([hidden_mates(slowdown, int(room)) for room in rooms]))
    last = last_to_launch(slowdown, np.union1d(hidden, slowdown.iterations.ranks[at]))
    which = last if len(last) == 1 and last[0] in hidden else hidden
    one = _of(_blaming(slowdown, stood, at, Component.GPU, LONGER), which)
    where = f"while ops stand still that {named(tuple(slowdown.iterations.ranks[at].tolist()))} of the node began"
    one = replace(one, sentence=one.sentence.rsplit(", before", 1)[0] + f", {where}.")
    if len(which) > 1:
        return _tied(one, hidden[:0])
    subject = replace(one.subject, name=named(one.culprits))
    return replace(one, grade=Grade.MODERATE, score=round(0.8 * one.score, 4), subject=subject)


def _only_launching(slowdown: Slowdown) -> tuple[Finding, ...]:
    """A finding per rank that launches later than its mates where no op that is seen begins late: those in which that would
    show begin, in trees, with the data of others."""
    if not slowdown.delays.launches.is_tree.any():
        return ()
    leads = leads_anywhere_ns(slowdown)
    if not leads:
        return tuple(_uneven(slowdown, node) for node in uneven_nodes(slowdown))
    most = max(leads.values(), default=0.0)
    return tuple(_launching(slowdown, rank, lead) for rank, lead in leads.items() if lead >= BESIDE_MIN * most)


def _uneven(slowdown: Slowdown, node: int) -> Finding:
    """About the ranks of a node who launch less evenly than they used to: all of them, where none is later than the others."""
    there, at = slowdown.ranks.rank[slowdown.ranks.node == node], np.flatnonzero(slowdown.nodes == node)
    lost = np.full(len(slowdown.nodes), slowdown.lost_ns)
    if launch_alike(slowdown, there):
        return replace(_of(_blaming(slowdown, lost, at, Component.NODE, ALL_LONGER), there), grade=Grade.MODERATE)
    return _tied(_of(_blaming(slowdown, lost, at, Component.GPU, LONGER), there), there)


def _launching(slowdown: Slowdown, rank: int, lead_ns: float) -> Finding:
    node = slowdown.ranks.node[slowdown.ranks.position(np.array([rank]))[0]]
    at = np.flatnonzero(slowdown.nodes == node)
    one = _last(slowdown, np.full(len(slowdown.nodes), lead_ns), at, np.array([rank], np.int64))
    said = one.sentence.replace("before it starts its ops", "by which it launches its ops after its mates do")
    said = f"{said} What else it costs does not show: in a tree others' data begins the ops."
    return replace(one, grade=Grade.MODERATE, score=round(0.8 * one.score, 4), sentence=said)


def _finding(slowdown: Slowdown, own: Floats, at: Ints) -> Finding:
    """About the ranks of one node that are late: the one that leads, the whole node, or whoever of them it may be."""
    seen, there = mates_of(slowdown, at)
    hidden = np.setdiff1d(there, slowdown.iterations.ranks[seen])
    veiled = np.setdiff1d(seen[_is_veiled(slowdown, own, seen) | _is_bound(slowdown, seen, at)], at)
    # Some see less of it than others.
    is_all = bool((own[np.setdiff1d(seen, veiled)] >= SHARE_MIN * slowdown.lost_ns).all())
    if len(there) == 1:
        return _alone(slowdown, own, at)
    whole = _blaming(slowdown, own, seen if is_all else at, Component.NODE, ALL_LONGER)
    together = _together(slowdown, at, hidden)
    last = last_to_launch(slowdown, together)
    if len(last) == 1:
        return _last(slowdown, own, at, last)
    if is_all and not _stands_out(slowdown, own, seen) and are_less_even(slowdown, seen):
        return _of(whole, there)
    ranks = np.union1d(slowdown.iterations.ranks[np.union1d(at, veiled)], hidden)
    if len(ranks) > 1 and not len(last) and launch_alike(slowdown, np.union1d(ranks, together)):
        return _of(whole, there)
    at, hidden = np.setdiff1d(seen, veiled) if is_all else at, np.setdiff1d(ranks, slowdown.iterations.ranks[at])
    is_hidden = len(at) == 1 and len(hidden) > 0
    leading = at[:0] if is_hidden else leaders(slowdown, at)
    if len(leading) == 1:
        unseen = _unseen_mates(slowdown, leading, there)
        one = _blaming(slowdown, own, leading, Component.GPU, LONGER)
        return _tied(one, unseen) if len(unseen) else one
    if is_all and not is_hidden and not len(leading) and are_late_alike(slowdown, at):
        return _of(whole, there)
    if len(leading):
        return _tied(_blaming(slowdown, own, leading, Component.GPU, LONGER), hidden[:0])
    unseen = _unseen_mates(slowdown, at, there)
    return _tied(_blaming(slowdown, own, at, Component.GPU, LONGER), np.union1d(hidden, unseen))


def _unseen_mates(slowdown: Slowdown, at: Ints, there: Ints) -> Ints:
    """Global ranks that are tied to these (positions) inside their node, and of whom the ops that these begin late show nothing:
    these may wait for one of them. Where some of all these launch later than others of the node, those alone. there: global ranks
    of the node."""
    launches, delays, ranks = slowdown.delays.launches, slowdown.delays, slowdown.iterations.ranks
    is_mate = np.isin(ranks, there) & np.isin(delays.group, delays.group[at])
    is_mate[at] = False
    late = np.concatenate([_late_kinds(slowdown, int(one)) for one in at])
    unseen = []
    for mate in np.flatnonzero(is_mate).tolist():
        theirs = launches.places_of(mate)
        shown = launches.kind[theirs][np.isfinite(delays.noise_ns[theirs])]
        if not np.isin(late, shown).any():
            unseen.append(int(ranks[mate]))
    leading = np.intersect1d(leading_anywhere(slowdown, there), [*unseen, *ranks[at].tolist()])
    return np.array([one for one in unseen if one in leading or not len(leading)], np.int64)


def _late_kinds(slowdown: Slowdown, at: int) -> Keys:
    """Kinds of the ops that a rank (position) begins late of its own."""
    launches, delays = slowdown.delays.launches, slowdown.delays
    mine = launches.places_of(at)
    return launches.kind[mine][mean_known(delays.own_ns[mine][:, slowdown.slow]) >= LATE_MIN_NS]


def _stands_out(slowdown: Slowdown, own: Floats, at: Ints) -> bool:
    """Whether one of these ranks leads all others and is later of its own by a good part more: then it makes them uneven."""
    leading = leaders(slowdown, at)
    others = np.setdiff1d(at, leading)
    return len(leading) == 1 and bool(own[leading[0]] >= (1 + LEAD_MIN) * own[others].max(initial=0.0))


def _is_veiled(slowdown: Slowdown, own: Floats, at: Ints) -> Mask:
    """(n,) which of these ranks may be late unseen: of a tree op of theirs nobody can say, in any slow iteration, whether it
    begins late, and no other op shows that they are on time."""
    launches, known = slowdown.delays.launches, np.isfinite(slowdown.delays.own_ns[:, slowdown.slow])
    veils, shows = launches.is_tree & ~known.any(axis=1), ~launches.is_tree & (known.mean(axis=1) > SHOWN_MIN)
    places = [launches.places_of(int(one)) for one in at]
    is_on_time = np.array([bool(shows[mine].any()) for mine in places], bool) & (own[at] < SHARE_MIN * slowdown.lost_ns)
    return np.array([bool(veils[mine].any()) for mine in places], bool) & ~is_on_time


def _is_bound(slowdown: Slowdown, there: Ints, at: Ints) -> Mask:
    """(n,) which of these ranks share a communicator that lies within their node with one that is late (at), where three quarters
    of all are: they wait for each other in every layer, so they are late too, whatever their own ops show."""
    if len(at) < BOUND_MIN * len(there):
        return np.zeros(len(there), bool)
    members, ranks = slowdown.window.members, slowdown.iterations.ranks
    place = slowdown.ranks.position(members["rank"].astype(np.int64))
    is_here = (place >= 0) & (slowdown.ranks.node[place] == slowdown.nodes[at[0]])
    mine = members["comm_id"][is_here & np.isin(members["rank"], ranks[at])]
    inside = np.setdiff1d(mine, members["comm_id"][~is_here])
    return np.isin(ranks[there], members["rank"][np.isin(members["comm_id"], inside)])


def _together(slowdown: Slowdown, at: Ints, hidden: Ints) -> Ints:
    """Global ranks that are tied to these inside their node, and those of the node that the network does not show."""
    is_mate = np.isin(slowdown.delays.group, slowdown.delays.group[at]) & (slowdown.nodes == slowdown.nodes[at[0]])
    return np.union1d(slowdown.iterations.ranks[is_mate], hidden)


def _alone(slowdown: Slowdown, own: Floats, at: Ints) -> Finding:
    """About the only rank of a node: what else computes there takes the proxy's time too, and nearly all it sends is
    passed on later; a slow GPU leaves the proxy alone."""
    wire = slowdown.waits[Wait.NETWORK]
    is_node = bool(wire.of[at[0]] >= SENDS_MIN and wire.n[at[0]] >= COVERED_MIN * wire.of[at[0]])
    return _blaming(slowdown, own, at, Component.NODE if is_node else Component.GPU, LONGER)


def _blaming(slowdown: Slowdown, own: Floats, at: Ints, component: Component, said: str) -> Finding:
    return finding_of(
        RULE, VERSION, slowdown, tuple(at.tolist()), component, FaultKind.COMPUTATION_FAIL_SLOW, float(own[at].max()),
        "before it starts its ops" if len(at) == 1 else "before they start their ops", said,
        "own delay per iteration", TOLD_NODE if component is Component.NODE else TOLD_GPU,
        slowdown.delays.shown(int(at[0]), slowdown.slow),
    )  # fmt: skip


def _of(one: Finding, there: Ints) -> Finding:
    """The finding about all ranks of the node, also those of which the network shows nothing."""
    ranks = tuple(int(rank) for rank in there)
    before, now = named(one.culprits), named(ranks)
    said = one.sentence.replace(before, now).replace(capitalised(before), capitalised(now))
    return replace(one, culprits=ranks, subject=replace(one.subject, ranks=ranks), sentence=said)


def _last(slowdown: Slowdown, own: Floats, at: Ints, last: Ints) -> Finding:
    """About the one rank that launches last of those who keep each other late, which the network may not show."""
    seen = np.flatnonzero(slowdown.iterations.ranks == last[0])
    own = np.maximum(own, own[at].max())  # they are late together: who it is does not change by how much
    one = _of(_blaming(slowdown, own, seen if len(seen) else at[:1], Component.GPU, LONGER), last)
    return replace(one, subject=replace(one.subject, name=named(one.culprits)))


def _tied(one: Finding, hidden: Ints) -> Finding:
    """The finding about whoever it is of ranks that keep each other late, or of those that only they see."""
    ranks = tuple(sorted({*one.culprits, *(int(rank) for rank in hidden)}))
    node = one.subject.node
    return replace(
        one, culprits=(), subject=Subject("node", node or named(ranks), ranks, node), grade=Grade.MODERATE,
        score=round(0.8 * one.score, 4), tied=tuple(Subject("gpu", named((rank,)), (rank,), node) for rank in ranks),
        sentence=f"One of {named(ranks)} takes longer for its own work; they wait for each other inside their node, so "
        f"which it is cannot be told: {one.sentence.split(': ', 1)[1]}",
    )  # fmt: skip
