"""A NIC, or the links behind it, that carries data slowly: whatever goes to or from it stays on the wire longer.

    rank 0 ──▶ rank 4 ══slow══▶ rank 6        rank 4 is slow both ways with everybody, rank 6 only with rank 4

What is on the wire waits for nobody but the network, so the time from handing a chunk to the NIC until it is acknowledged
is not inherited. The fewest NICs that all slow connections touch are blamed, with all ranks that use them; where two would
explain as much, they are tied. Bytes a NIC carried for others, or NICs of several nodes as slow, tell a network that is full
from a NIC. A NIC that lost little of its rate is told by contrast: all it sends and is sent takes longer, and nothing
else of the job. docs/rules/slow_nic.md
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nccl_instrument.tables import FUNC_RECV
from rca.counters import DONE_NAME, TRANSMITTED_NAME
from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Subject, Symptom
from rca.keys import Ints, Mask
from rca.settings import Settings
from rca.slow.cover import SHARE_MIN
from rca.slow.edges import edges_of
from rca.slow.ends import COVERED, ELSEWHERE_MIN, Ends, ends_of
from rca.slow.hand_over import told_apart
from rca.slow.inside import Wait
from rca.slow.lone_flow import LoneFlow, lone_flow
from rca.slow.slow_words import finding_of, for_everybody, node_name, of_whole_node
from rca.slow.slowdown import Slowdown, uses_sockets
from rca.slow.streams import Floats
from rca.slow.traffic import foreign_shares
from rca.words import moderate_at_most, named

RULE = "slow_nic"
VERSION = 33
NEEDS = frozenset({TRANSMITTED_NAME, DONE_NAME})

FOREIGN_MIN = 0.2
APART_MIN = 2.0  # times the share of any other port: traffic that grows on all alike does not tell who is slow
LONGER_MIN = 1.4  # times as long on the wire as usual
ALONE_GROWN_MIN = 0.1  # of its usual time, where nothing else of the job has grown: then it may be less
ALONE_REST_MAX = 0.5  # of what a middle one of those has grown, and less than any: neighbours fall in line a little
ALONE_LOST_MIN = 0.5  # of what an iteration loses
ALONE_CONNECTIONS_MIN = 2  # of each NIC: one alone may be the other end's
BUSY_MIN = 0.6  # of the time of its ops, on the wire: most of it, with late acknowledgements besides
BUSY_EVERYBODY_MIN = (
    0.5  # where nearly all connections are so much slower: what makes one victim longer does not make all
)
BUSY_SOCKET_MIN = 0.4  # over sockets, where only what both ends' waits must have in common is counted
LIES_MAX = 0.1  # of what its sends are on the wire longer: more is its proxy, or what it waits for
TIED_MAX = 8
NAMED_MAX = 8
FOREIGN = "of what the port counts now, not the job's"
WHOLE_MIN = 2  # NICs of a node, all slow: one alone may be broken
EVERY_MIN = 0.9  # of the connections between it and other nodes
ALSO_MIN = 0.5  # of those of its other NICs
ONE_NODES = "all of it is one node's and no other node's is slow, so it is what its NICs share: their way to its memory"
BY_CPUS = (
    "Whatever {who} send and are sent stays on the way too long, on every NIC of the node and of no other node; over "
    "sockets a node's CPUs carry all of it, and NICs do not break at once, so its proxies are late"
)
EACH_OTHER = "What {who} send each other stays on the wire too long"
TOLD = "`ip -s link`, `ethtool -S DEVICE`, `rdma statistic show`, `ibstat`"
TOLD_OF_CPUS = "`top -H -b -n 1 | head -40`, `cat /proc/pressure/cpu`, `cat /sys/fs/cgroup/cpu.stat`"


def explain(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding for the NICs that explain what is slow; () when nothing on the wire is."""
    del symptom, settings
    end_of = _ends(slowdown)
    ends = ends_of(edges_of(slowdown), end_of, senders=_that_take(slowdown, end_of))
    if not _is_the_wire(slowdown, ends):
        ends = ends_of(edges_of(slowdown), end_of, ALONE_GROWN_MIN)
        if not _is_alone(slowdown, ends):
            lone = lone_flow(slowdown)
            return (_one_flow(slowdown, lone),) if lone else ()
    shares = np.append(foreign_shares(slowdown), np.nan)[slowdown.ranks.nic[slowdown.at]]
    taken = _taken(ends, end_of, shares)
    if taken:
        return (_taken_by_others(slowdown, ends, end_of, taken, shares),)
    if ends.is_everybody:
        return (_everybody(slowdown, ends),)
    node = _whole_node(slowdown, ends, end_of)
    if node is not None:
        return (_by_cpus(slowdown, ends, end_of, node),)
    left = _unexplained(slowdown, ends, end_of) if len(ends.unexplained) else ()
    if left and int((ends.now_ns - ends.usual_ns).argmax()) in ends.unexplained:
        return left  # an end that explains the rest does not explain what matters most
    tied = [(one, *rivals) for one, rivals in zip(ends.chosen, ends.rivals, strict=True) if rivals]
    told = {group: told_apart(slowdown, ends, end_of, group) for group in (*tied, *ends.undecided)}
    sure = tuple(one for one, rivals in zip(ends.chosen, ends.rivals, strict=True) if not rivals)
    sure += tuple(one for those in told.values() for one in those.ends)
    found = [_sent_only(ends, sure, _nics(slowdown, ends, end_of, sure))] if sure else []
    only = sorted({those.by for those in told.values() if those.by})
    found = [_told_by(one, only) if only else one for one in found]
    found += [_cannot_be_told(slowdown, ends, end_of, one) for one in tied if not told[one].ends]
    found += [_one_of_several(slowdown, ends, end_of, one) for one in ends.undecided if not told[one].ends]
    return (*found, *left)


def _one_flow(slowdown: Slowdown, lone: LoneFlow) -> Finding:
    """A way between two that only one channel of theirs takes; their NICs carry the others as fast as ever."""
    both = (lone.sender, lone.receiver)
    first, second = (named((int(slowdown.iterations.ranks[at]),)) for at in both)
    said = (
        f"What channel {lone.channel} of {lone.n_channels} carries from {first} to {second} stays on the wire too long"
    )
    found = finding_of(
        RULE, VERSION, slowdown, both, Component.NETWORK, FaultKind.COMMUNICATION_FAIL_SLOW, lone.excess_ns,
        "the others carry as fast as ever", said, "its chunks stayed on the wire, more than usual", TOLD, (1, lone.n_channels),
    )  # fmt: skip
    tied = tuple(Subject("nic", named((rank,)), (rank,)) for rank in found.culprits)
    name = f"channel {lone.channel} of the link {first} to {second}"
    return replace(found, subject=Subject("flow", name, found.culprits), culprits=(), tied=tied, grade=Grade.WEAK)


def _everybody(slowdown: Slowdown, ends: Ends) -> Finding:
    wait = Wait.CREDIT if uses_sockets(slowdown.window) else Wait.NETWORK
    sends = slowdown.iterations.func != FUNC_RECV
    excess = slowdown.sum(np.where(sends, slowdown.inside.excess(wait), 0.0))
    found = for_everybody(RULE, VERSION, slowdown, Component.NETWORK, excess, "carries data more slowly")
    if not ends.is_half:
        return found
    more = " All connections are slow: about every second NIC being slow would look the same, and which cannot be told."
    return replace(found, sentence=found.sentence + more)


def _taken(ends: Ends, end_of: Ints, shares: Floats) -> tuple[int, ...]:
    """The ends whose ports count more of other people's bytes than before, if they explain what is slow and the other ports
    count nothing like it.

    What a port counts beyond the job's bytes is seen, not concluded, so it goes before what the fewest ends would explain.
    Unless another end is slow, what costs less than half of the costliest, elsewhere, may be how others fell in line: two ops
    that now meet on a NIC.
    """
    touching = np.unique(np.concatenate([ends.sender[ends.is_slow], ends.receiver[ends.is_slow]]))
    those = np.intersect1d(end_of[shares >= FOREIGN_MIN], touching)
    is_one = np.isin(end_of, those)
    if not len(those) or is_one.all() or np.fmin.reduce(shares[is_one]) < APART_MIN * np.fmax.reduce(shares[~is_one]):
        return ()
    cost = np.where(ends.is_slow, ends.now_ns - ends.usual_ns, 0.0)
    explained = np.isin(ends.sender, those) | np.isin(ends.receiver, those)
    least = ELSEWHERE_MIN * cost.max(initial=0.0) if set(ends.chosen) <= set(those.tolist()) else 0.0
    left = cost[~explained & (cost >= least)]
    return tuple(those.tolist()) if left.sum() <= (1 - COVERED) * cost.sum() else ()


def _that_take(slowdown: Slowdown, end_of: Ints) -> frozenset[int]:
    """The ends of whose ranks none leaves lying what it was sent: a proxy that is late makes its sends seem long, too. None
    over sockets, where nobody sees which of two is slow."""
    if uses_sockets(slowdown.window):
        return frozenset()
    lies = slowdown.waits[Wait.COPY].excess_ns > LIES_MAX * np.minimum(
        slowdown.waits[Wait.NETWORK].excess_ns, slowdown.lost_ns
    )
    return frozenset(np.setdiff1d(end_of, end_of[lies]).tolist())


def _ends(slowdown: Slowdown) -> Ints:
    """(R,) equal for ranks that use the same NIC; a rank whose NIC is not known is an end of its own."""
    nic = slowdown.ranks.nic[slowdown.at]
    found: Ints = np.unique(np.where(nic >= 0, nic, -1 - np.arange(len(nic))), return_inverse=True)[1].astype(np.int64)
    return found


def _is_the_wire(slowdown: Slowdown, ends: Ends) -> bool:
    """Whether the slow connections are what their ops wait for, for much longer than usual, and cost a part of what is lost.

    A chunk that travels alone takes a latency more than one of many, so victims of other things are on the wire a
    little longer too; but they are not most of the time, nor much longer than they were.
    """
    over_ib = BUSY_EVERYBODY_MIN if ends.is_everybody else BUSY_MIN
    busy = BUSY_SOCKET_MIN if uses_sockets(slowdown.window) else over_ib
    return _waits_for_it(slowdown, ends, SHARE_MIN, LONGER_MIN, busy)


def _waits_for_it(slowdown: Slowdown, ends: Ends, lost_min: float, longer_min: float, busy_min: float) -> bool:
    """Whether the costliest connections explain that much of what is lost, are so many times as long on the wire as usual
    and for so much of their ops' time."""
    usual, now, lasted = (one[ends.is_slow] for one in (ends.usual_ns, ends.now_ns, ends.lasted_ns))
    if not len(now) or (now - usual).max() < lost_min * slowdown.lost_ns:
        return False
    worst = now - usual >= 0.5 * (now - usual).max()
    return bool(now[worst].sum() >= max(longer_min * usual[worst].sum(), busy_min * lasted[worst].sum()))


def _is_alone(slowdown: Slowdown, ends: Ends) -> bool:
    """Whether all connections of some NICs, both ways, have grown, nothing else of the job has as much, and that costs half
    of what is lost.

    Victims would be on the wire longer wherever they wait, and a late proxy only with what it sends. Over sockets, where
    what is on the wire waits for its receiver, the two look alike.
    """
    is_unsure = uses_sockets(slowdown.window) or not ends.chosen or any(ends.rivals) or bool(ends.undecided)
    if is_unsure or len(ends.unexplained):
        return False
    touched = [ends.touched(end) for end in ends.chosen]
    mine, grown = np.any(touched, axis=0), ends.now_ns / ends.usual_ns - 1.0
    if mine.all() or not ends.is_slow[mine].all() or min(one.sum() for one in touched) < ALONE_CONNECTIONS_MIN:
        return False
    rest = float(grown[~mine].max())
    is_apart = rest < grown[mine].min() and rest <= ALONE_REST_MAX * float(np.median(grown[mine]))
    return is_apart and _waits_for_it(slowdown, ends, ALONE_LOST_MIN, 1 + ALONE_GROWN_MIN, BUSY_MIN)


def _whole_node(slowdown: Slowdown, ends: Ends, end_of: Ints) -> int | None:
    """The only node of which every NIC is slow with whatever node it talks to, if that explains what is slow, or several of its
    NICs, and nobody else's, do, and the others are mostly slow, too; None where there is none. Over sockets alone: with
    InfiniBand no CPU carries data, and a late proxy shows otherwise."""
    if not uses_sockets(slowdown.window):
        return None
    node_of = np.full(int(end_of.max()) + 1, -1)
    node_of[end_of] = slowdown.nodes
    sender, receiver = (np.where(one >= 0, node_of[one], -1) for one in (ends.sender, ends.receiver))
    between = (sender >= 0) & (receiver >= 0) & (sender != receiver)
    cost, found = np.where(ends.is_slow, ends.now_ns - ends.usual_ns, 0.0), []
    for node in np.unique(sender[between & ends.is_slow]):
        mine = between & ((sender == node) | (receiver == node))
        nics = np.intersect1d(np.concatenate([ends.sender[mine], ends.receiver[mine]]), end_of[slowdown.nodes == node])
        if len(nics) >= WHOLE_MIN and ends.is_slow[mine].mean() >= EVERY_MIN:
            found.append((int(node), mine))
    if len(found) == 1 and cost[found[0][1]].sum() >= COVERED * cost.sum():
        return found[0][0]
    return _node_of_chosen(ends, node_of, between)


def _node_of_chosen(ends: Ends, node_of: Ints, between: Mask) -> int | None:
    """The node of several NICs that surely explain what is slow, of which the others are mostly slow with other nodes, too."""
    chosen = list(ends.chosen)
    nodes = np.unique(node_of[chosen])
    if len(chosen) < WHOLE_MIN or len(nodes) != 1 or nodes[0] < 0 or any(ends.rivals) or len(ends.unexplained):
        return None
    mine = between & np.any([ends.touched(end) for end in np.flatnonzero(node_of == nodes[0]).tolist()], axis=0)
    others = mine & ~np.any([ends.touched(end) for end in chosen], axis=0)
    are_slow = ends.is_slow[others].mean() >= ALSO_MIN if others.any() else ends.is_slow[mine].mean() >= EVERY_MIN
    return int(nodes[0]) if mine.any() and are_slow else None


def _by_cpus(slowdown: Slowdown, ends: Ends, end_of: Ints, node: int) -> Finding:
    """All ranks of the node: what its NICs share over sockets is who carries the data."""
    users = np.flatnonzero(slowdown.nodes == node)
    mine = np.any([ends.touched(end) for end in np.unique(end_of[users])], axis=0)
    excess = min(float((ends.now_ns - ends.usual_ns)[mine & ends.is_slow].max()), slowdown.lost_ns)
    shown = int((mine & ends.is_slow).sum()), int(mine.sum())
    found = finding_of(
        RULE, VERSION, slowdown, tuple(users.tolist()), Component.PROXY, FaultKind.COMPUTATION_FAIL_SLOW, excess,
        f"on {shown[0]} of {shown[1]} connections", BY_CPUS, "chunks stayed on their way, more than usual", TOLD_OF_CPUS,
        shown,
    )  # fmt: skip
    return of_whole_node(found)


def _users(end_of: Ints, ends: tuple[int, ...]) -> Ints:
    """Positions of the ranks that use these NICs."""
    return np.flatnonzero(np.isin(end_of, ends))


def _taken_by_others(slowdown: Slowdown, ends: Ends, end_of: Ints, taken: tuple[int, ...], shares: Floats) -> Finding:
    said = "The network of {who} is taken by other traffic: what they send and are sent stays on the wire too long"
    found = _finding(slowdown, ends, end_of, taken, Component.NETWORK, said)
    ranks = slowdown.iterations.ranks
    firsts = [int(_users(end_of, (one,))[0]) for one in taken[:NAMED_MAX]]
    seen = (Evidence(FOREIGN, round(100 * float(shares[at])), "%", "nic", int(ranks[at])) for at in firsts)
    return replace(found, evidence=(*found.evidence, *seen))


def _nics(slowdown: Slowdown, ends: Ends, end_of: Ints, sure: tuple[int, ...]) -> Finding:
    sent = "sends and is sent" if len(_users(end_of, sure)) == 1 else "send and are sent"
    said = f"What {{who}} {sent} stays on the wire too long"
    if len(sure) == 1:
        return _finding(slowdown, ends, end_of, sure, Component.NIC, said)
    if node_name(slowdown, tuple(_users(end_of, sure).tolist())):
        return _finding(slowdown, ends, end_of, sure, Component.NIC, f"{said}; {ONE_NODES}")
    said = f"{said}; NICs seldom break at once, so it is likelier the network they share than each of them"
    return moderate_at_most(_finding(slowdown, ends, end_of, sure, Component.NETWORK, said))


def _sent_only(ends: Ends, sure: tuple[int, ...], one: Finding) -> Finding:
    """As found, and said so where only what they send is slow: less than both ways. Or where they are sent nothing."""
    comes_in = np.isin(ends.receiver, sure)
    if ends.is_slow[comes_in].any():
        return one
    said = one.sentence.replace(" and is sent", "").replace(" and are sent", "")
    more = " Only what goes out is slow, whoever it is for; what comes in is taken in time." if comes_in.any() else ""
    return replace(moderate_at_most(one), sentence=f"{said}{more}")


def _told_by(one: Finding, only: list[str]) -> Finding:
    """Not every network lets credits wait behind data, and a port waits for a slow switch as for a slow NIC: alone they make
    nothing strong."""
    sentence = " ".join((one.sentence, *(f"Only {what} it from the other end." for what in only)))
    return replace(moderate_at_most(one), sentence=sentence)


def _cannot_be_told(slowdown: Slowdown, ends: Ends, end_of: Ints, tied: tuple[int, ...]) -> Finding:
    both = _finding(slowdown, ends, end_of, tied, Component.NIC, EACH_OTHER)
    return _as_link(slowdown, end_of, tied, both, "they send to nobody else, so which end it is cannot be told")


def _one_of_several(slowdown: Slowdown, ends: Ends, end_of: Ints, group: tuple[int, ...]) -> Finding:
    """Ends of which all is slow and whose counters are silent: some of them, or the network between them."""
    group = tuple(sorted(group, key=lambda one: int(_users(end_of, (one,))[0])))
    both = _finding(slowdown, ends, end_of, group, Component.NETWORK, EACH_OTHER)
    why = "all of it is, so every second of them or the network between them would look the same"
    return _as_link(slowdown, end_of, group[:TIED_MAX], both, why)


def _unexplained(slowdown: Slowdown, ends: Ends, end_of: Ints) -> tuple[Finding, ...]:
    """Slow connections without an end that is slow towards everybody: named, and nobody blamed."""
    cost = np.where(ends.is_slow, ends.now_ns - ends.usual_ns, 0.0)
    found = sorted(
        {int(end) for at in ends.unexplained for end in (ends.sender[at], ends.receiver[at]) if end >= 0},
        key=lambda end: -float(cost[ends.touched(end)].sum()),
    )
    worst = found[:TIED_MAX]
    if len(worst) < 2:
        return ()
    both = _finding(slowdown, ends, end_of, tuple(worst), Component.NETWORK, EACH_OTHER)
    why = "none of them is slow towards everybody, so it is a way between them, and which end of it cannot be told"
    if len(found) > TIED_MAX:
        why += f" (the worst {TIED_MAX} of {len(found)})"
    return (_as_link(slowdown, end_of, tuple(worst), both, why),)


def _finding(
    slowdown: Slowdown, ends: Ends, end_of: Ints, blamed: tuple[int, ...], component: Component, said: str
) -> Finding:
    users = _users(end_of, blamed)
    mine = np.any([ends.touched(end) for end in blamed], axis=0)
    slow = mine & ends.is_slow
    excess = min(float((ends.now_ns - ends.usual_ns)[slow].max()), slowdown.lost_ns)
    shown = int(slow.sum()), int(mine.sum())
    return finding_of(
        RULE, VERSION, slowdown, tuple(users.tolist()), component, FaultKind.COMMUNICATION_FAIL_SLOW, excess,
        f"on {shown[0]} of {shown[1]} connections", said, "chunks stayed on the wire, more than usual", TOLD, shown,
    )  # fmt: skip


def _as_link(slowdown: Slowdown, end_of: Ints, tied: tuple[int, ...], both: Finding, why: str) -> Finding:
    """`both` with nobody blamed and its ends tied."""
    ranks = slowdown.iterations.ranks
    names = [tuple(int(rank) for rank in ranks[_users(end_of, (one,))]) for one in tied]
    subjects = tuple(Subject("nic", named(one), one) for one in names)
    name, said = f"link {subjects[0].name} to {subjects[-1].name}", "The {name} is slow"
    if len(subjects) > 2:
        name, said = f"links among {named(sorted(rank for one in names for rank in one))}", "The {name} are slow"
    return replace(
        both, subject=Subject("link", name, both.subject.ranks), culprits=(), tied=subjects, grade=Grade.WEAK,
        sentence=f"{said.format(name=name)}; {why}: {both.sentence.split(': ', 1)[1]}",
    )  # fmt: skip
