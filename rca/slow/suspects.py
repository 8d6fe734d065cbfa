"""Which nodes of a large slow job are worth reading: those unlike their replicas in one slow iteration (Mycroft §5).

A slow job of thousands of GPUs is gigabytes, and nearly all of it says the same: waited for somebody. Ranks that run the same
part of the model on their own data (replicas) do the same work, so what each does in one slow iteration tells who is unlike the
others: who waits for nobody while they wait, or whose chunks take longer to copy or to cross the wire. Sums suffice for
that; why it is so is left to the rules, which get all that these nodes, their peers and some others as the norm have told.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import FUNC_RECV, FUNC_SEND, SOCKET
from rca.keys import Index, Ints, Keys, Mask, distinct, grouped, is_p2p, mix
from rca.slow.iterations import iterations_of
from rca.slow.slowdown import lengths_ns
from rca.slow.streams import Floats

NORM_REPLICAS: Final = 4  # as many as must be slow alike before all are (cover.py)
NORM_NODES: Final = 64
CLOCKED_NODES: Final = 4  # whose iterations say which is the longest
GLIMPSE_NS: Final = 2_000_000_000  # at least: the shortest iterations differ by chance
GROUP_MIN: Final = 4  # replicas with a median
DEVIATIONS: Final = 4.0  # of a group's usual, by its median deviation
LEAST: Final = 0.1  # of the lost time: the rules ask for twice as much
ALIKE: Final = 0.7  # of what the one that stands out most has: as much as it
FEW: Final = 8  # nodes that stand out as much: more are no matter of a few
BY_EACH: Final = 12  # nodes looked at for what one measure says: hundreds follow one culprit by some of what it costs
BESIDE: Final = 0.5  # of what the one that stands out most has: where more than BY_EACH stand out
OF_ALL_OPS: Final = 3  # measures; by the others few may be told besides, and many are no matter
SUSPECTS_MAX: Final = 4 * BY_EACH + 2 * FEW
GLIMPSED: Final = (
    "comm_id", "comm_rank", "rank", "node", "op", "func", "flags", "n_flows", "done_ns", "gpu_wait_ns", "peer_wait_ns",
    "net_wait_ns", "receive_gpu_wait_ns", "receive_peer_wait_ns", "receive_net_wait_ns",
)  # fmt: skip
"""Columns of ops that the sums are made of, and when they were over."""


def norm_nodes(frame: Window) -> Ints:
    """Some nodes that together hold whole replicas of the model, evenly mixed; at most about NORM_NODES. frame: needs no rows."""
    ranks = frame.ranks
    known = ranks["node"] >= 0
    if len(ranks) and (ranks["dp"][known] >= 0).all() and known.any():
        replicas = _mixed(distinct(ranks["dp"][known]).astype(np.int64))[:NORM_REPLICAS]
        found = distinct(ranks["node"][known & np.isin(ranks["dp"], replicas)]).astype(np.int64)
        if len(found) <= NORM_NODES:
            return found
    return np.sort(_mixed(np.arange(len(frame.nodes)))[:NORM_NODES])


def slow_span(some: Window, onset_ns: int) -> tuple[int, int, float] | None:
    """[start, end) of the longest slow iteration that is known whole, and how many ns it lost; None where none is.

    some: the ops of CLOCKED_NODES nodes."""
    iterations = iterations_of(some)
    if not iterations.n:
        return None
    lengths, began = lengths_ns(iterations), iterations.began
    first = np.fmin.reduce(began, axis=0, initial=np.inf) + iterations.start_ns
    slow = np.flatnonzero((first >= onset_ns) & np.isfinite(lengths))
    usual = np.flatnonzero((first < onset_ns) & np.isfinite(lengths))
    if not len(slow) or not len(usual):
        return None
    longest = int(slow[lengths[slow].argmax()])
    start_ns = int(first[longest])
    end_ns = max(int(np.nanmax(began[:, longest + 1])) + iterations.start_ns, start_ns + GLIMPSE_NS)
    back_ns = max(end_ns - some.end_ns, 0)
    n = (end_ns - start_ns) / lengths[longest]
    return start_ns - back_ns, end_ns - back_ns, float(n * (lengths[longest] - np.median(lengths[usual])))


def suspects(glimpse: Window, lost_ns: float) -> Ints | None:
    """(k,) nodes with a rank that is unlike its replicas or has too few to be compared with, ascending; None when there are
    many of these, or many are unlike them alike, and by more than few are by anything else that is measured: where few are by
    more, the many may follow them.

    glimpse: the ops of all nodes of as long as lost_ns were lost in.
    """
    found, measured = _unlike(glimpse)
    few = many = 0.0  # the most that is seen by a measure that few, or many, stand out by alike
    for worst in measured[:OF_ALL_OPS]:
        odd, most = _ordered(worst, lost_ns), float(worst.max(initial=0.0))
        if len(_alike(worst, odd)) > FEW:
            many = max(many, most)
        elif len(odd):
            few = max(few, most)
            found[odd if len(odd) <= BY_EACH else odd[worst[odd] >= BESIDE * most][:BY_EACH]] = True
    found[_few_besides(measured, lost_ns)] = True
    chosen = np.flatnonzero(found)
    return chosen if len(chosen) <= SUSPECTS_MAX and few >= many else None


def foremost(glimpse: Window, lost_ns: float) -> Ints:
    """(k,) nodes that stand out most by each measure, however many do, ascending; at most SUSPECTS_MAX. By a measure of some
    ops alone only those of a few."""
    untold, measured = _unlike(glimpse)
    by_each = [_ordered(worst, lost_ns)[:BY_EACH] for worst in measured[:OF_ALL_OPS]]
    others = [_few_besides(measured, lost_ns), np.flatnonzero(untold)[:BY_EACH]]
    return np.unique(np.concatenate([*by_each, *others])).astype(np.int64)


def peers(window: Window, nodes: Ints) -> Ints:
    """(k,) other nodes that these exchange something with, ascending."""
    flow, own = window.rows_on("flow", nodes), window.rows("op")
    sent = own[np.flatnonzero(np.isin(own["node"], nodes) & is_p2p(own))]
    asked = distinct(np.concatenate([mix(rows["comm_id"], rows["peer"]) for rows in (flow, sent)]))
    members = window.members
    at = Index(mix(members["comm_id"], members["comm_rank"])).find(asked)
    rank = members["rank"][at[at >= 0]]
    place = Index(mix(window.ranks["rank"])).find(mix(rank))
    found = distinct(window.ranks["node"][place[place >= 0]]).astype(np.int64)
    return found[(found >= 0) & ~np.isin(found, nodes)]


def _unlike(glimpse: Window) -> tuple[Mask, list[Floats]]:
    """(nodes,) with a rank that told less than its replicas, or has too few for a median, so that nobody can say that it is like
    them; and by each measure, (nodes,) how far a rank of each is beyond its replicas at most."""
    of, n_ranks = np.asarray(glimpse.rows("op")["rank"], np.int64), int(glimpse.ranks["rank"].max(initial=-1)) + 1
    group, node, has_mates = _replicas(glimpse, of, n_ranks), _nodes(glimpse, n_ranks), np.zeros(n_ranks, bool)
    groups, is_placed = _members(group), node >= 0
    has_mates[np.concatenate([*groups, np.zeros(0, np.int64)])] = True
    n_ops = np.bincount(of[(of >= 0) & (of < n_ranks)], minlength=n_ranks)
    untold = np.zeros(len(glimpse.nodes), bool)
    untold[node[(_says_less(n_ops, groups) | (group >= 0) & ~has_mates) & is_placed]] = True
    measured = list[Floats]()
    for values in _measures(glimpse, of, n_ranks):
        more, worst = _beyond(values, groups), np.zeros(len(glimpse.nodes))
        np.maximum.at(worst, node[is_placed], more[is_placed])
        measured.append(worst)
    return untold, measured


def _ordered(worst: Floats, lost_ns: float) -> Ints:
    """The nodes that stand out, the one that does most first."""
    order: Ints = np.argsort(-worst, kind="stable")
    return order[: np.count_nonzero(worst >= LEAST * lost_ns)]


def _alike(worst: Floats, odd: Ints) -> Ints:
    """Of the nodes that stand out, those that do nearly as much as the first."""
    found: Ints = odd[worst[odd] >= ALIKE * worst.max(initial=0.0)]
    return found


def _few_besides(measured: Sequence[Floats], lost_ns: float) -> Ints:
    """The nodes that few stand out with by a measure of sends and receives alone."""
    by_each = [_alike(worst, _ordered(worst, lost_ns)) for worst in measured[OF_ALL_OPS:]]
    return np.concatenate([alike for alike in by_each if len(alike) <= FEW] + [np.zeros(0, np.int64)])


def _measures(glimpse: Window, of: Ints, n_ranks: int) -> tuple[Floats, ...]:
    """Of each rank (n_ranks,) what tells it from its replicas, in ns of one flow; more is what a culprit has.

    How little it waits for others; and for how long its own chunks wait for its GPU, and are on the wire. These are OF_ALL_OPS;
    then the last two of sends and receives alone: in trees replicas have other places, and differ by more than what is slow.
    """
    told = glimpse.rows("op")
    wait = {name: told[f"{name}_wait_ns"].astype(np.float64) for name in ("gpu", "peer", "net")}
    func, flows = told["func"], np.maximum(told["n_flows"].astype(np.float64), 1.0)
    is_alone = (func == FUNC_SEND) | (func == FUNC_RECV)
    n = np.where(is_alone, flows, np.maximum(flows / 2, 1.0))
    received = told["receive_net_wait_ns"].astype(np.float64)
    known = of >= 0

    def summed(values: Floats, those: Mask = known) -> Floats:
        return np.bincount(of[those], weights=(values / n)[those], minlength=n_ranks)[:n_ranks].astype(np.float64)

    others, wire = summed(wait["peer"]), wait["net"] - received
    if (glimpse.ranks["transport"] == SOCKET).any():  # what is on the wire may wait for its receiver
        wire = wire + wait["peer"]
    alone = known & is_alone
    return -others, summed(wait["gpu"]), summed(wire), summed(wait["gpu"], alone), summed(wire, alone)


def _beyond(values: Floats, groups: Sequence[Ints]) -> Floats:
    """(n,) by how much each value exceeds the median of its group, where it clearly does."""
    found = np.zeros(len(values))
    for at in groups:
        middle = np.median(values[at])
        more = values[at] - middle
        noise = 1.4826 * np.median(np.abs(more))
        found[at] = np.where(more > DEVIATIONS * noise, more, 0.0)
    return found


def _says_less(n_ops: Ints, groups: Sequence[Ints]) -> Mask:
    """(n,) who told of less than half of the ops that its replicas told of: why is to be seen."""
    found = np.zeros(len(n_ops), bool)
    for at in groups:
        found[at] = 2 * n_ops[at] < np.median(n_ops[at])
    return found


def _members(group: Ints) -> list[Ints]:
    """The positions of each group of at least GROUP_MIN."""
    order = np.argsort(group, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    return [part for part in parts if len(part) >= GROUP_MIN and group[part[0]] >= 0]


def _replicas(glimpse: Window, of: Ints, n_ranks: int) -> Ints:
    """(n_ranks,) equal for ranks that do the same: by their coordinates, else by what they call in communicators of which
    sizes. -1 of ranks that do not exist."""
    places, key = glimpse.ranks[glimpse.ranks["rank"] >= 0], np.zeros(n_ranks, np.uint64)
    if len(places) and (places["dp"] >= 0).all():
        key[places["rank"]] = mix(places["tp"], places["pp"], places["ep"])
    else:
        key = _called(glimpse, of, n_ranks)
    found: Ints = grouped(key)[2]
    exists = np.zeros(n_ranks, bool)
    exists[places["rank"]] = True
    return np.where(exists, found, -1)


def _called(glimpse: Window, of: Ints, n_ranks: int) -> Keys:
    """(n_ranks,) a key of the kinds of ops of each rank."""
    told, members = glimpse.rows("op"), glimpse.members
    known = np.flatnonzero(of >= 0)
    comm = Index(mix(members["comm_id"])).find(mix(told["comm_id"][known]))
    size = np.where(comm >= 0, members["n_ranks"][comm], 0)
    _, first, _ = grouped(mix(of[known], told["func"][known], size))
    found = np.zeros(n_ranks, np.uint64)
    np.add.at(found, of[known][first], mix(told["func"][known][first], size[first]))
    return found


def _nodes(window: Window, n_ranks: int) -> Ints:
    """(n_ranks,) the node of each rank, -1 unknown."""
    found, places = np.full(n_ranks, -1, np.int64), window.ranks[window.ranks["rank"] >= 0]
    found[places["rank"]] = places["node"]
    return found


def _mixed(values: Ints) -> Ints:
    """The values in an order that no stride of theirs meets."""
    return values[np.argsort(mix(values), kind="stable")]
