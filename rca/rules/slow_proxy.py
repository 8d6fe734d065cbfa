"""A proxy that is slow, or sleeps now and then: NCCL's thread on the CPU, between the GPU and the NIC (Mycroft §7.1, #7).

    GPU ready ···▶ [proxy looks late] ···▶ on the wire ───▶ delivered ···▶ [proxy looks late] ···▶ taken

A proxy that looks late makes everything late that passes through it: what lies ready, what is on the wire and what has
arrived, all at once, where a slow GPU or NIC makes one of them late. When all ranks of a node show it, the node's CPUs are
short. One that sleeps is caught in the act: in the long iterations, it leaves undone what it could do at once
(deaf.py). Abstains when only one of the waits has grown. docs/rules/slow_proxy.md
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from ingest.columns import rows_at
from ingest.window import Window
from nccl_instrument.tables import FUNC_RECV, FUNC_SEND, SOCKET
from rca.counters import DONE_NAME, GPU_READY_NAME, TRANSMITTED_NAME
from rca.findings import Component, FaultKind, Finding, Symptom
from rca.hang.progress import Progress, state_of
from rca.keys import Ints, Mask
from rca.settings import SECOND_NS, Settings
from rca.slow.cover import COVERED_MIN, SHARE_MIN, Covered, covered
from rca.slow.edges import Edges, edges_of
from rca.slow.ends import GROWN_MIN
from rca.slow.inside import Wait
from rca.slow.slow_words import finding_of, of_whole_node
from rca.slow.slowdown import Slowdown, lengths_ns, uses_sockets
from rca.slow.streams import Floats

RULE = "slow_proxy"
VERSION = 13
NEEDS = frozenset({GPU_READY_NAME, TRANSMITTED_NAME, DONE_NAME})

COPY_COVERED_MIN = 0.5
COPY_COVERED_BESIDE = 0.33  # where mates show it in as many as that
CLEAR_MAX = 0.5  # of its sends: a rank of which fewer show it is not late
BEYOND_MIN = 0.25  # of the time on the wire
SENDS_MIN = 0.1  # of what the one of its node that sends most has on the wire: less is not to be compared
ALIKE_MIN = 0.6  # of the worst of the node: what all share is about as slow for all
ALIKE_IF_MOST_MIN = 0.5  # where most of the node's ranks look late themselves
MOST_MIN, MATES_MIN = 0.75, 4  # of the ranks of a node with as many
EVERY_MIN = 0.9  # of the sends, and of the receives, of a node
COPY_MIN = 0.5  # of the time on the wire: what comes late off it comes late to it
CREDIT_MAX = 0.25  # of the time on the wire: who waits for credits waits for somebody else
ONLY_MAX = 0.1  # of how much longer its sends take: what it is sent is acknowledged by its NIC, however late it looks
WAY_MIN = 0.5  # of how much longer its sends take: as slow as those are the other ways of the NIC that they go to
OFTEN_MIN = 0.5  # of what an iteration loses on average: the median one loses as much where something is always slow
NOTHING_MAX = 0.1  # of that: as short as ever
BETWEEN_MIN = 0.2  # of the iterations from the first long one to the last
EXAMINED_MAX = 5
CAUGHT_MIN = 2
LONG_MIN = 1.2  # times the usual iteration
STILL_TIMES = 1.2  # as long as a flow must stand still for anything to be told of it
TICK_NS = SECOND_NS // 10
JUST_BEFORE_NS = 2 * TICK_NS  # nodes tick at different times
TOLD = "`top -H -b -n 1 | head -40`, `cat /proc/pressure/cpu`, `cat /sys/fs/cgroup/cpu.stat`, `numactl -s`"


def explain(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per node, or rank, whose proxies look late; () when none does."""
    if _comes_and_goes(slowdown):
        asleep = explain_asleep(slowdown, symptom, settings)
        if asleep:
            return asleep
    late = _looks_late(slowdown)
    whole = _pass_all_late(slowdown)
    told = {int(slowdown.nodes[at[0]]) for at, _ in whole}
    found = [(at, float(late.both_ns[at].max())) for at in _by_node(slowdown, late)]
    found = whole + [(at, cost) for at, cost in found if int(slowdown.nodes[at[0]]) not in told]
    return tuple(_slow(slowdown, late, at, cost) for at, cost in found)


def explain_asleep(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per rank whose proxy was caught asleep; () when none was. What a slow NIC holds up looks like it."""
    del symptom
    return tuple(_asleep(slowdown, at, times, examined) for at, times, examined in _sleepers(slowdown, settings))


def _comes_and_goes(slowdown: Slowdown) -> bool:
    """Whether few of the slow iterations cost most of what is lost, or some between long ones are as short as ever."""
    lengths = lengths_ns(slowdown.iterations)[slowdown.slow]
    more = (lengths[np.isfinite(lengths)] - slowdown.usual_ns) / slowdown.lost_ns
    if np.median(more) < OFTEN_MIN:
        return True
    long = np.flatnonzero(more >= OFTEN_MIN)
    between = more[long[0] : long[-1] + 1]
    return bool((between <= NOTHING_MAX).mean() >= BETWEEN_MIN)


@dataclass(frozen=True, slots=True)
class _Late:
    """Per rank (R,): what waits on the wire and off it. A ring may enter a node at one rank and leave it at another, so
    each has what the ranks it shares an op with on its node have. looks_late: in fewer of its ops, which counts beside others."""

    wire: Covered
    copy: Covered
    is_late: Mask
    looks_late: Mask
    edges: Edges

    @property
    def both_ns(self) -> Floats:
        return np.minimum(self.wire.excess_ns, self.copy.excess_ns)


def _looks_late(slowdown: Slowdown) -> _Late:
    """Whose chunks wait more, both on the wire and for being taken.

    With InfiniBand who waits for credits waits for somebody else. Over sockets a slow proxy and a late receiver both keep back
    what was sent, so there a connection of the rank has to be slow at both of its ends.
    """
    inside, iterations, node, lost_ns = slowdown.inside, slowdown.iterations, slowdown.nodes, slowdown.lost_ns
    edges = edges_of(slowdown)
    every = np.ones(len(iterations.rank), bool)
    held_up = inside.of_room(inside.excess(Wait.CREDIT))
    passes_on = np.where((iterations.func == FUNC_SEND) | (iterations.func == FUNC_RECV), 0.0, held_up)
    is_socket = uses_sockets(slowdown.window)
    not_taken = inside.of_room(np.maximum(inside.excess(Wait.COPY) - (passes_on if is_socket else held_up), 0.0))
    on_wire = held_up if is_socket else inside.of_room(inside.excess(Wait.NETWORK))
    wire = covered(iterations, node, on_wire, iterations.func != FUNC_RECV, lost_ns)
    copy = covered(iterations, node, not_taken, every, lost_ns)
    both = (wire.n >= COVERED_MIN * wire.of) & (copy.n >= COPY_COVERED_BESIDE * copy.of) & (copy.of > 0)
    both &= copy.excess_ns >= COPY_MIN * wire.excess_ns
    both &= (wire.excess_ns >= SHARE_MIN * lost_ns) & (copy.excess_ns >= SHARE_MIN * lost_ns)
    if is_socket:
        both &= np.isin(np.arange(len(both)), edges.sender[edges.grown() >= GROWN_MIN])
    else:
        both &= covered(iterations, node, held_up, every, lost_ns).excess_ns <= CREDIT_MAX * wire.excess_ns
    for at in np.flatnonzero(both):
        both[at] = (is_socket or _only_sends_slowly(edges, int(at)) is not False) and not _is_the_way(
            slowdown, edges, int(at)
        )
    return _Late(wire, copy, both & (copy.n >= COPY_COVERED_MIN * copy.of), both, edges)


def _pass_all_late(slowdown: Slowdown) -> list[tuple[Ints, float]]:
    """The ranks of each node at which every send and every receive waits for its proxies, however small, and what that costs.

    A ring makes all its members wait, and over sockets a slow proxy, a late receiver and a slow way look alike there. What one
    rank sends another is nobody else's: a late receiver makes sends wait, a busy GPU makes receives wait, and only a proxy both.
    """
    inside, iterations, node = slowdown.inside, slowdown.iterations, slowdown.nodes
    wire = Wait.CREDIT if uses_sockets(slowdown.window) else Wait.NETWORK
    waits = ((FUNC_SEND, wire), (FUNC_RECV, Wait.COPY))
    n_there = np.bincount(node[node >= 0], minlength=int(node.max(initial=-1)) + 1)
    is_slow = n_there > 1
    for func, wait in waits:
        those = (iterations.func == func) & (node[iterations.rank_at] >= 0)
        rank_at, at_node = iterations.rank_at[those], node[iterations.rank_at[those]]
        has_any = (np.bincount(rank_at, minlength=len(node)) > 0) & (node >= 0)
        is_slow &= np.bincount(node[has_any], minlength=len(n_there)) == n_there
        n, n_shown = (
            np.bincount(one, minlength=len(n_there)) for one in (at_node, at_node[inside.excess(wait)[those] > 0])
        )
        is_slow &= n_shown / np.maximum(n, 1) >= EVERY_MIN
    found = []
    for one in np.flatnonzero(is_slow):
        there = np.flatnonzero(node == one)
        cost = min(float(slowdown.waits[wait].excess_ns[there].max()) for _, wait in waits)
        if cost >= SHARE_MIN * slowdown.lost_ns:
            found.append((there, cost))
    return found if 2 * len(found) <= len(np.unique(node)) else []


def _by_node(slowdown: Slowdown, late: _Late) -> list[Ints]:
    """The late ranks of each node; all of the node's, when half of them are late, or one is and most look so, and nothing
    speaks for the others.

    Of fewer, those whose chunks lie longer than a mate's full way out explains: a slow NIC behind one fills it too. Nobody is
    named whose own sends are on the wire as long as ever, nor alone whose own chunks are taken in time. Of several whose slow
    connections all end at one NIC it is that NIC, which explains them all.
    """
    node, found = slowdown.nodes, []
    wait = Wait.CREDIT if uses_sockets(slowdown.window) else Wait.NETWORK
    at, wire = np.flatnonzero(late.is_late), slowdown.waits[wait].excess_ns
    usual = slowdown.sum(slowdown.inside.usual[wait])
    room = slowdown.inside.room
    is_shared = slowdown.sum((np.bincount(room)[room] > 1).astype(np.float64)) > 0
    is_more = ~is_shared | (late.copy.excess_ns >= (1 + BEYOND_MIN) * late.wire.excess_ns)
    clears = (late.wire.of > 0) & (late.wire.n < CLEAR_MAX * late.wire.of)
    for one in np.unique(node[at]):
        mine, there = at[node[at] == one], np.flatnonzero(node == one)
        senders = there[usual[there] >= SENDS_MIN * usual[there].max()]
        longer = wire[senders] / np.maximum(usual[senders], 1.0)
        n_late = int(late.looks_late[there].sum())
        alike = _are_alike(longer, n_late, len(there)) or _every_one(slowdown, late, senders)
        is_own = wire >= SHARE_MIN * slowdown.lost_ns  # not only what the ranks have that a ring goes on to
        is_many = 2 * len(mine) >= len(there) > 1 or _are_most(n_late, len(there))
        is_whole = one >= 0 and is_many and alike and not clears[there].any()
        is_whole = is_whole and bool(is_own[senders].any())
        takes = slowdown.waits[Wait.COPY].excess_ns >= COPY_MIN * wire
        few = mine[is_more[mine] & is_own[mine] & takes[mine]]
        is_one_nic = len(few) > 1 and _end_at_one_nic(slowdown, late.edges, there)
        found.append(there if is_whole else few[:0] if is_one_nic else few)
    return [ranks for ranks in found if len(ranks)]


def _are_alike(longer: Floats, n_late: int, n_ranks: int) -> bool:
    """Whether all that a node of so many ranks sends is about as much slower. longer: (k,) times as long, of those who send."""
    least = ALIKE_IF_MOST_MIN if _are_most(n_late, n_ranks) else ALIKE_MIN
    return len(longer) > 1 and bool((longer >= least * longer.max()).all())


def _are_most(n_late: int, n_ranks: int) -> bool:
    """Whether nearly all ranks of a node with many look late, surely so or not."""
    return n_ranks >= MATES_MIN and n_late >= MOST_MIN * n_ranks


def _every_one(slowdown: Slowdown, late: _Late, senders: Ints) -> bool:
    """Whether each of these ranks is late by itself, in whatever it sends and takes: then they need not be so by the same, as
    a ring makes more of it than what two exchange. Over sockets nothing shows by whom its sends are kept back."""
    if uses_sockets(slowdown.window) or len(senders) < 2:
        return False
    own, copy = slowdown.waits[Wait.NETWORK], late.copy
    everywhere = (own.n >= EVERY_MIN * own.of) & (copy.n >= EVERY_MIN * copy.of) & (copy.of > 0)
    return bool(everywhere[senders].all()) and all(_only_sends_slowly(late.edges, int(at)) is True for at in senders)


def _is_the_way(slowdown: Slowdown, edges: Edges, at: int) -> bool:
    """Whether all that a rank sends slowly goes to NICs that are slow with other nodes, too: what lies at the rank then waits
    for room, as its buffers are full of what is on the way."""
    nic, node = slowdown.ranks.nic[slowdown.at], slowdown.nodes
    end = np.where(nic >= 0, nic, -1 - np.arange(len(nic)))
    grown, known = edges.grown(), edges.receiver >= 0
    ends = np.stack([edges.sender, np.where(known, edges.receiver, edges.sender)])
    elsewhere = (node[ends] != node[at]).all(axis=0)
    mine = (edges.sender == at) & known & (grown >= GROWN_MIN)
    for one in np.unique(end[edges.receiver[mine]]):
        others = grown[elsewhere & (end[ends] == one).any(axis=0)]
        slow = grown[mine & (end[edges.receiver] == one)]
        if not len(others) or np.median(others) < WAY_MIN * slow.max():
            return False
    return bool(mine.any())


def _end_at_one_nic(slowdown: Slowdown, edges: Edges, senders: Ints) -> bool:
    """Whether several connections of these ranks are slow, all towards the users of one NIC."""
    is_slow = np.isin(edges.sender, senders) & (edges.receiver >= 0) & (edges.grown() >= GROWN_MIN)
    ends = np.unique(edges.receiver[is_slow])
    nics = np.unique(slowdown.ranks.nic[slowdown.at[ends]])
    return is_slow.sum() > 1 and len(nics) == 1 and bool(nics[0] >= 0)


def _slow(slowdown: Slowdown, late: _Late, at: Ints, cost_ns: float) -> Finding:
    of_node = int((slowdown.nodes == slowdown.node(at[:1])[0]).sum())
    is_whole = len(at) == of_node > 1
    whole = "all ranks of the node" if is_whole else f"{len(at)} of {of_node} ranks of the node"
    found = finding_of(
        RULE, VERSION, slowdown, tuple(at.tolist()), Component.PROXY, FaultKind.COMPUTATION_FAIL_SLOW,
        min(cost_ns, slowdown.lost_ns), f"at {whole}, on the wire and off it alike",
        "The proxy of {who} looks late at what it could pass on", "chunks waited for the proxy, more than usual", TOLD,
        (int(late.wire.n[at[0]]), int(late.wire.of[at[0]])),
    )  # fmt: skip
    return of_whole_node(found) if is_whole else found


def _asleep(slowdown: Slowdown, at: int, times: int, examined: int) -> Finding:
    return finding_of(
        RULE, VERSION, slowdown, (at,), Component.PROXY, FaultKind.COMPUTATION_FAIL_SLOW, slowdown.lost_ns,
        f"caught in {times} of the {examined} longest iterations",
        "The proxy of {who} sleeps now and then, and leaves undone what it could do at once",
        "lost per iteration, on average", TOLD, (0, len(slowdown.iterations.kind[slowdown.iterations.places_of(at)])),
    )  # fmt: skip


def _sleepers(slowdown: Slowdown, settings: Settings) -> list[tuple[int, int, int]]:
    """(rank position, times caught, stretches examined) of ranks whose proxy was seen asleep in several stretches."""
    lengths = np.nan_to_num(lengths_ns(slowdown.iterations))
    more = lengths - slowdown.usual_ns
    runs = long_runs(slowdown.slow & (lengths >= LONG_MIN * slowdown.usual_ns), more)
    examined = [run for run in runs if more[run].sum() >= STILL_TIMES * settings.still_ns][:EXAMINED_MAX]
    caught: dict[int, int] = {}
    for run in examined:
        for rank in _deaf_ranks(slowdown, int(run[0]), float(lengths[run].sum()), settings):
            caught[rank] = caught.get(rank, 0) + 1
    at = {int(rank): i for i, rank in enumerate(slowdown.iterations.ranks)}
    often = [(at[rank], times) for rank, times in caught.items() if times >= max(CAUGHT_MIN, len(examined) // 2)]
    return [(rank_at, times, len(examined)) for rank_at, times in often]


def long_runs(is_long: Mask, more_ns: Floats) -> list[Ints]:
    """Long iterations, the costliest first, those that follow each other in pairs, each iteration once.

    Where some ranks launch ahead of others a pause falls into both; so of a row of them those pair that cost most together.
    """
    first = np.flatnonzero(is_long[:-1] & is_long[1:])
    free, found = is_long.copy(), list[Ints]()
    for at in first[np.argsort(-(more_ns[first] + more_ns[first + 1]), kind="stable")]:
        if free[at : at + 2].all():
            free[at : at + 2] = False
            found.append(np.array([at, at + 1]))
    found += [np.array([at]) for at in np.flatnonzero(free)]
    return sorted(found, key=lambda run: -float(more_ns[run].sum()))


def _deaf_ranks(slowdown: Slowdown, iteration: int, length_ns: float, settings: Settings) -> set[int]:
    """Global ranks whose proxy is provably idle when most flows of the iteration stand still, or shortly before: who waits for a
    proxy that has just woken still stands."""
    window = slowdown.window
    began = int(np.nanmin(slowdown.iterations.began[:, iteration])) + slowdown.iterations.start_ns
    flow = window.rows("flow")
    tick = flow["tick_ns"]
    stuck = (tick >= began) & (tick < began + length_ns) & (flow["stuck_ns"] > settings.still_ns)
    if not stuck.any():
        return set()
    ticks, counts = np.unique(tick[stuck] // TICK_NS, return_counts=True)
    until = int(ticks[counts.argmax()] + 1) * TICK_NS
    return _deaf_at(window, until, settings) | _deaf_at(window, until - JUST_BEFORE_NS, settings)


def _deaf_at(window: Window, until: int, settings: Settings) -> set[int]:
    """Global ranks whose proxy was provably idle at that moment."""
    tables = {name: rows_at(rows, _is_until(name, rows, until)) for name, rows in window.tables.items()}
    nodes = window.nodes.copy()
    nodes["watermark_ns"] = np.minimum(nodes["watermark_ns"], until)
    state = state_of(replace(window, end_ns=until, now_ns=until, nodes=nodes, tables=tables), settings)
    return set(state.ranks.names(np.flatnonzero(state.is_deaf | _takes_nothing(state))))


def _takes_nothing(state: Progress) -> Mask:
    """(R,) the one rank that all data on its way goes to, where nothing of its own is lost: over sockets, that is no proof, since
    the way may be at fault (Mycroft §5.3 takes the receiver); but a way that comes and goes is not what is asked here."""
    found = np.zeros(state.n_ranks, bool)
    lost = state.pairs.where(state.stalls.is_lost)
    receivers = np.unique(lost.receiver)
    if len(receivers) == 1 and receivers[0] >= 0 and (lost.transport == SOCKET).all():
        found[receivers] = not np.isin(receivers, lost.sender).any()
    return found


def _is_until(table: str, rows: np.ndarray[tuple[int], np.dtype[np.void]], until_ns: int) -> Mask:
    column = "done_ns" if table == "op" else "tick_ns"
    if column not in (rows.dtype.names or ()):
        return np.zeros(len(rows), bool)
    found: Mask = (rows[column] <= until_ns) & (rows[column] > until_ns - 5 * SECOND_NS)
    return found


def _only_sends_slowly(edges: Edges, at: int) -> bool | None:
    """Whether what the rank sends is much longer on the wire and what it is sent is not: None when rows do not say.

    The receiving NIC acknowledges, so a rank whose proxy is slow makes its own sends seem long and nobody else's.
    """
    sent, taken = edges.grown()[edges.sender == at], edges.grown()[edges.receiver == at]
    if not len(sent) or not len(taken):
        return None
    return bool(np.median(sent) * ONLY_MAX >= np.median(taken))
