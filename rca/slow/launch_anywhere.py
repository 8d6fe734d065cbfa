"""Who launches late, asked of all nodes of a job: where trees hide whose ops begin late, hosts may still tell.

    node 3   ▪▪▪▪ enqueue together, all waiting for one of other nodes          as evenly as ever
    node 6   ▪ ▪  ▪▪   each when its own GPU is through with its work           less evenly than it used to

A rank whose step ends with more work than its mates' begins the next one later than they do. A node whose GPUs are all slow
enqueues the ops inside it less evenly, as far as its hosts follow their GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from ingest.columns import picked, taken
from rca.keys import Index, Ints, Keys, Mask, grouped, is_p2p, mix
from rca.slow.launch_lead import LEAD_MIN_NS, before_and_since, leads_ns, meetings_of
from rca.slow.ops_of import ops_of, ranks_told
from rca.slow.slowdown import Slowdown
from rca.slow.streams import Floats

NODES_ASKED = 8
OWN_MIN = 0.5  # of its lead
UNEVEN_TIMES = 2.0  # as uneven as before
BESIDE_TIMES = 1.5  # as much so as half of the other nodes that are asked


@dataclass(frozen=True, slots=True)
class Enqueued:
    """Collectives as their ranks enqueued them, (n,). rank, and at_ns since the window's start. of: the op each is of; first:
    (O,) where each op comes first. comm: position in `comms`, (C,), which are sorted."""

    rank: Ints
    at_ns: Floats
    of: Ints
    first: Ints
    comm: Ints
    comms: Keys


_ENQUEUED: Final[WeakKeyDictionary[Slowdown, Enqueued]] = WeakKeyDictionary()
"""Made for one question, kept for the next, which takes it out: it is as long as the ops."""


def leads_anywhere_ns(slowdown: Slowdown) -> dict[int, float]:
    """leads_ns of all nodes of the job, of those who take longer from what ends last on their node to their next step: asked
    of the NODES_ASKED nodes where somebody stands out most at first sight."""
    node = np.append(slowdown.ranks.node, -1)[slowdown.ranks.position(ranks_told(slowdown.window))]
    enqueued = _ENQUEUED[slowdown] = _enqueued_of(slowdown)
    later = _at_first_sight_ns(slowdown, enqueued)
    known = (node >= 0) & (later >= LEAD_MIN_NS)
    most = np.zeros(int(node.max(initial=-1)) + 1)
    np.maximum.at(most, node[known], later[known])
    asked = [int(one) for one in np.argsort(-most, kind="stable")[:NODES_ASKED] if most[one] > 0]
    found = dict[int, float]()
    for one in asked:
        there = slowdown.ranks.rank[slowdown.ranks.node == one]
        leads = leads_ns(slowdown, there)
        found |= {rank: lead for rank, lead in leads.items() if _takes_ns(slowdown, rank, there) >= OWN_MIN * lead}
    if found:
        del _ENQUEUED[slowdown]
    return found


def uneven_nodes(slowdown: Slowdown) -> tuple[int, ...]:
    """Nodes (positions) all of whose ranks now enqueue their ops less evenly than they used to, where most of the job do not:
    what is inherited is inherited alike, work that takes longer also varies by more."""
    comms, times = _spreads(slowdown, _ENQUEUED.pop(slowdown) if slowdown in _ENQUEUED else _enqueued_of(slowdown))
    least = np.full(len(slowdown.window.nodes), np.inf)
    np.minimum.at(least, _nodes_of(slowdown, comms), times)
    least[~np.isfinite(least)] = 0.0
    asked = np.argsort(-least, kind="stable")[:NODES_ASKED]
    uneven = np.array([_unevenness(slowdown, int(one)) for one in asked])
    if len(asked) < 2:
        return ()
    others = np.array([np.median(np.delete(uneven[:, 1], at)) for at in range(len(asked))])
    is_uneven = (uneven[:, 0] >= UNEVEN_TIMES) & (uneven[:, 0] >= BESIDE_TIMES * others)
    return tuple(asked[is_uneven].tolist())


def _unevenness(slowdown: Slowdown, node: int) -> tuple[float, float]:
    """How many times as unevenly a node's ranks enqueue now: those who do least so (0 where not all show), and the middle."""
    there = slowdown.ranks.rank[slowdown.ranks.node == node]
    meetings = [one for one in meetings_of(slowdown, there) if len(one.n) > 1]  # one op tells little
    kept = {rank for one in meetings for rank in one.members.tolist()}
    times = [float(one.uneven_now_ns.sum() / max(one.uneven_ns.sum(), 1.0)) for one in meetings]
    is_whole = len(there) > 1 and kept >= set(there.tolist())
    return (min(times) if is_whole else 0.0), float(np.median(times)) if times else 0.0


def _enqueued_of(slowdown: Slowdown) -> Enqueued:
    rows = slowdown.window.rows("op")
    at = np.flatnonzero((rows["enqueued_ns"] > 0) & (rows["rank"] >= 0) & ~is_p2p(rows))
    comms, _, comm = grouped(taken(rows, "comm_id", at))
    at_ns = taken(rows, "enqueued_ns", at).astype(np.float64) - slowdown.iterations.start_ns
    _, first, of = grouped(mix(comms[comm], taken(rows, "op", at)))
    return Enqueued(taken(rows, "rank", at).astype(np.int64), at_ns, of, first, comm, comms)


def _spreads(slowdown: Slowdown, enqueued: Enqueued) -> tuple[Keys, Floats]:
    """(C,) communicators that do not leave their node, and how many times as far apart their members now enqueue an op."""
    members = slowdown.window.members
    local = np.unique(members["comm_id"][(members["n_nodes"] == 1) & (members["n_ranks"] > 1)])
    is_local = np.isin(enqueued.comms, local)
    those = is_local[enqueued.comm[enqueued.first]]
    first = np.flatnonzero(those)
    begin, end = np.full(len(those), np.inf), np.full(len(those), -np.inf)
    np.minimum.at(begin, enqueued.of, enqueued.at_ns)
    np.maximum.at(end, enqueued.of, enqueued.at_ns)
    begin, end = begin[first], end[first]
    nth = np.cumsum(is_local) - 1
    of_comm, comms = nth[enqueued.comm[enqueued.first[first]]], enqueued.comms[is_local]
    means = [_mean_of(of_comm, end - begin, those, len(comms)) for those in before_and_since(slowdown, begin)]
    known = (means[0] > 0) & (means[1] > 0)
    return comms[known], means[1][known] / means[0][known]


def _nodes_of(slowdown: Slowdown, comms: Keys) -> Ints:
    """(C,) the node of communicators that do not leave one."""
    members = slowdown.window.members
    rank = members["rank"][Index(members["comm_id"].astype(np.uint64)).find(comms)].astype(np.int64)
    found: Ints = np.append(slowdown.ranks.node, -1)[slowdown.ranks.position(rank)]
    return found


def _takes_ns(slowdown: Slowdown, rank: int, there: Ints) -> float:
    """By how much longer a rank now takes to begin its steps, from the last end that any of `there`, its node, has seen. What
    lets mates go may itself end later for one of them."""
    rows = picked(slowdown.window.rows("op"), ops_of(slowdown.window, there), ("rank", "done_ns", "enqueued_ns"))
    start_ns = slowdown.iterations.start_ns
    ends = np.sort(rows["done_ns"][rows["done_ns"] > 0]) - start_ns
    mine = np.unique(rows["enqueued_ns"][(rows["rank"] == rank) & (rows["enqueued_ns"] > 0)]) - start_ns
    pause = np.diff(mine)
    if not len(pause):
        return 0.0
    longest = np.sort(pause)[-slowdown.iterations.n :]
    begins = mine[1:][pause >= 0.5 * np.median(longest)]
    last = np.searchsorted(ends, begins) - 1
    begins, last = begins[last >= 0], last[last >= 0]
    before, since = before_and_since(slowdown, begins.astype(np.float64))
    took = begins - ends[last]
    return float(np.median(took[since]) - np.median(took[before])) if before.any() and since.any() else 0.0


def _at_first_sight_ns(slowdown: Slowdown, enqueued: Enqueued) -> Floats:
    """(n,) by how much later each of `ranks_told` enqueues than the mean of those it does so with, less what it used to: of
    all communicators that do not leave their node, at once."""
    ranks, of, at_ns, members = ranks_told(slowdown.window), enqueued.of, enqueued.at_ns, slowdown.window.members
    rank_at = np.searchsorted(ranks, enqueued.rank)
    n = np.bincount(of)
    later = at_ns - (np.bincount(of, weights=at_ns) / n)[of]
    local = Index(members["comm_id"].astype(np.uint64)).find(enqueued.comms)
    is_local = ((local >= 0) & (members["n_nodes"][local] == 1))[enqueued.comm] & (n[of] > 1)
    before, since = before_and_since(slowdown, at_ns)
    means = [_mean_of(rank_at, later, those & is_local, len(ranks)) for those in (since, before)]
    return means[0] - means[1]


def _mean_of(rank_at: Ints, values: Floats, those: Mask, n_ranks: int) -> Floats:
    total, n = (np.bincount(rank_at[those], weights=one, minlength=n_ranks) for one in (values[those], None))
    found: Floats = total / np.maximum(n, 1)
    return found
