"""Where the waiting ends: the sinks of the wait-for graph.

Every chain of waiting ends in a rank, a NIC, a link, or a cycle. A cycle inside one op is a ring in which everybody
waits for its neighbour: the rank that has sent least started it (Algorithm 2, MinData). A cycle over several ops, each
begun on one side and queued on the other, is a deadlock.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from weakref import WeakKeyDictionary

import numpy as np

from rca.hang.cut import first_of
from rca.hang.earliest import earliest_of
from rca.hang.in_ring import standing_in_ring
from rca.hang.kernels import unbegun
from rca.hang.orders import Crossing, Orders
from rca.hang.pairs import SEEN
from rca.hang.progress import Progress
from rca.hang.waits import Edges
from rca.keys import Ints

SINKS_MAX = 64


@dataclass(frozen=True, slots=True)
class Sink:
    """One end of waiting. Exactly one of ranks, nic (≥ 0), link (≥ 0) and is_never_heard (ranks nobody ever heard of) is given.
    waiters: rank positions that reach it.

    is_deadlock: `ranks` wait for each other in different ops. tied: ranks inside a cycle that cannot be told apart from
    `ranks`. is_least: chosen because it has sent least. crossing: the two ops of a deadlock that the order of enqueueing shows.
    is_in_node: stopped together behind an op that has a part inside their node (rca/hang/together.py). is_by_ring: told by what a
    ring took into their node and sent out of it (rca/hang/in_ring.py).
    """

    vertex: int
    waiters: frozenset[int]
    ranks: tuple[int, ...] = ()
    nic: int = -1
    link: int = -1
    is_deadlock: bool = False
    is_least: bool = False
    tied: tuple[int, ...] = ()
    crossing: Crossing | None = None
    is_in_node: bool = False
    is_by_ring: bool = False
    is_never_heard: bool = False


_FOUND: WeakKeyDictionary[Progress, list[Sink]] = WeakKeyDictionary()


def sinks(state: Progress) -> list[Sink]:
    """The sinks that somebody waits for, those with most waiters first; found once per state, since several rules ask."""
    if state not in _FOUND:
        plain = [_sink(state, component) for component in _last_components(state)]
        orders = Orders(state, np.array([at for sink in plain for at in sink.ranks], np.int64))
        found = _once([_narrowed(state, _crossed(state, sink, orders)) for sink in plain])
        found = without_receivers(state, found)
        _FOUND[state] = sorted(found, key=lambda sink: (-len(sink.waiters), sink.vertex))
    return _FOUND[state]


def _last_components(state: Progress) -> list[list[int]]:
    """Components that lead nowhere else and that somebody waits for; at most SINKS_MAX, most direct waiters first."""
    graph = state.graph
    components = graph.components()
    place = [0] * graph.n
    for number, component in enumerate(components):
        for vertex in component:
            place[vertex] = number
    last = [
        component
        for number, component in enumerate(components)
        if (len(component) > 1 or graph.into[component[0]])
        and all(place[other] == number for vertex in component for other in graph.out[vertex])
    ]
    last.sort(key=lambda component: -sum(len(graph.into[v]) for v in component))
    return list(first_of(state, last, SINKS_MAX, "sinks"))


def _sink(state: Progress, component: list[int]) -> Sink:
    vertex = min(component)
    reached = frozenset(v for v in state.graph.reaching(component) if v < state.n_ranks)
    if vertex == state.never_heard:
        return Sink(vertex, reached, is_never_heard=True)
    if vertex >= state.first_link:
        return Sink(vertex, reached, link=vertex - state.first_link)
    if vertex >= state.n_ranks:
        return Sink(vertex, reached, nic=vertex - state.n_ranks)
    ranks = tuple(sorted(v for v in component if v < state.n_ranks))
    if len(ranks) == 1:
        return Sink(vertex, reached - {vertex}, ranks)
    return _cycle(state, component, ranks, reached)


def _once(found: list[Sink]) -> list[Sink]:
    """Without the sinks that the same crossing explains."""
    crossings = [sink.crossing for sink in found]
    return [sink for i, sink in enumerate(found) if sink.crossing is None or sink.crossing not in crossings[:i]]


def without_receivers(state: Progress, found: list[Sink]) -> list[Sink]:
    """Without the ranks that may only wait: of their op nothing but receives is seen, so that nothing shows whether their kernels
    have begun, and who should send to them is held up by another sink, which they then wait for."""
    maybe = {i: _senders_to(state, sink) for i, sink in enumerate(found)}
    kept = {i: sink for i, sink in enumerate(found) if not maybe[i]}
    for i, senders in maybe.items():
        over = next((at for at, sink in kept.items() if not maybe[at] and senders & {*sink.ranks, *sink.waiters}), -1)
        if not senders:
            continue
        if over < 0:
            kept[i] = found[i]
        else:
            kept[over] = replace(
                kept[over], waiters=(kept[over].waiters | {*found[i].ranks} | found[i].waiters) - {*kept[over].ranks}
            )
    return [kept[i] for i in sorted(kept)]


def _senders_to(state: Progress, sink: Sink) -> set[int]:
    """Whose data ranks of a sink wait for, if their kernels have begun; none where it is known that these have not, or more is
    known of the ranks."""
    ranks = list(sink.ranks)
    if not ranks or sink.is_deadlock or state.is_cut[ranks].any() or any(_is_unbegun(state, at) for at in ranks):
        return set()
    pairs, fronts = state.pairs, state.fronts
    sends = np.isin(pairs.sender, ranks) & fronts.blocks(pairs.sender, pairs.key)
    asked = np.isin(pairs.receiver, ranks) & fronts.blocks(pairs.receiver, pairs.key) & state.stalls.wants_data
    if sends.any() or pairs.p2p[asked].any() or not np.isin(ranks, pairs.receiver[asked]).all():
        return set()
    return {int(at) for at in pairs.sender[asked] if at >= 0}


def _is_unbegun(state: Progress, at: int) -> bool:
    """Whether the rank's GPU itself tells that it has not begun a kernel that others are inside of."""
    return unbegun(state.kernels, state.members, at) is not None


def _crossed(state: Progress, sink: Sink, orders: Orders) -> Sink:
    """The sink as a deadlock, where its ranks are held by the order in which some enqueued two ops."""
    if not sink.ranks or state.is_cut[list(sink.ranks)].any():
        return sink
    crossing = orders.crossing_at(sink.ranks)
    if crossing is None or (sink.is_deadlock and not crossing.deviating):
        return sink
    ranks, waiters = crossing.deviating or crossing.ranks, state.graph.reaching({*sink.ranks, *crossing.ranks})
    reached = frozenset(v for v in waiters if v < state.n_ranks) - set(ranks)
    return Sink(sink.vertex, reached, ranks, is_deadlock=True, crossing=crossing)


def _narrowed(state: Progress, sink: Sink) -> Sink:
    """The sink with those of its tied ranks that have come least far, and at which a ring through them stands: they, or one of
    them, keep the others."""
    tied = np.array(sink.tied, np.int64)
    early = earliest_of(state, tied)
    left = standing_in_ring(state, early)
    if len(left) == len(tied):
        return sink
    kept, others = tuple(left.tolist()), frozenset(np.setdiff1d(tied, left).tolist())
    return replace(
        sink, ranks=kept, tied=kept if len(kept) > 1 else (), waiters=(sink.waiters | others) - set(kept),
        is_by_ring=len(left) < len(early),
    )  # fmt: skip


def _cycle(state: Progress, component: list[int], ranks: tuple[int, ...], reached: frozenset[int]) -> Sink:
    inside = np.isin(state.certain.waiter, component) & np.isin(state.certain.target, component)
    certain = state.certain.where(inside)
    waiting = set(certain.waiter.tolist())
    free = tuple(rank for rank in ranks if rank not in waiting)
    if free:
        # Only a possible wait inside the node leads on from these, so the others wait for them.
        return Sink(ranks[0], reached - set(free), free, tied=() if len(free) == 1 else free)
    ops = np.unique(np.stack([certain.comm, certain.op], axis=1), axis=0)
    crossed = _out_of_order(state, certain) if len(ops) > 1 else ()
    if crossed:
        return Sink(ranks[0], reached - set(crossed), crossed, is_deadlock=True)
    least = check_min_data(state, ranks, ops)
    return Sink(ranks[0], reached - set(least), least, is_least=True, tied=() if len(least) == 1 else least)


def _out_of_order(state: Progress, certain: Edges) -> tuple[int, ...]:
    """Ranks of a cycle that hold back an op another has begun, while they are in another that is held; () unless two ops are."""
    fronts = state.fronts
    begun = {
        (int(at), int(comm), int(op)): bool(is_begun)
        for at, comm, op, is_begun in zip(fronts.at, fronts.comm, fronts.op, fronts.has_begun, strict=True)
    }
    held: set[tuple[int, tuple[int, int]]] = set()
    for waiter, target, comm, op in zip(certain.waiter, certain.target, certain.comm, certain.op, strict=True):
        place = (int(comm), int(op))
        if begun.get((int(waiter), *place)) and begun.get((int(target), *place)) is False:
            held.add((int(target), place))
    # Who has begun none of the ops that are held does not wait in them: something else keeps it.
    for _ in range(len(held)):
        places = {place for _, place in held}
        inside = {at for at, comm, op in (one for one, is_begun in begun.items() if is_begun) if (comm, op) in places}
        left = {(at, place) for at, place in held if at in inside}
        if left == held:
            break
        held = left
    return tuple(sorted({at for at, _ in held})) if len({place for _, place in held}) > 1 else ()


def check_min_data(state: Progress, ranks: tuple[int, ...], ops: Ints) -> tuple[int, ...]:
    """Algorithm 2's MinData: of `ranks`, those whose flows in `ops` ((O, 2) communicator, op) have transmitted least."""
    pairs = state.pairs
    wanted = np.isin(pairs.comm, ops[:, 0]) & np.isin(pairs.op, ops[:, 1]) & (pairs.sender_end == SEEN)
    wanted &= np.isin(pairs.sender, ranks)
    if not wanted.any():
        return ranks
    sent = pairs.where(wanted)
    least = np.unique(sent.sender[sent.sent[:, 2] == sent.sent[:, 2].min()])
    # What the network does not see lies between these and the mates that feed them.
    fed_by = state.hidden.target[np.isin(state.hidden.waiter, least) & np.isin(state.hidden.target, ranks)]
    return tuple(sorted({*least.tolist(), *fed_by.tolist()}))
