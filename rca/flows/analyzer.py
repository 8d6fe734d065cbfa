"""Pulse's Analyzer (§6.2): what the two metrics of every op say of a job that has become slower.

    communication fail-slow   the connection whose bytes take longer on the wire, pauses left out; of custom collectives also
                              the rank whose rate over the last ten is lower
    computation fail-slow     an op that lasts longer, begun in time, with the usual time on the wire; the machine is the one
                              whose transfers are noticed late, by its proxy's own waits; where nobody counts those, the group
    group anomaly             all connections take longer alike: the network; nobody's do and all ops last longer: computation

Where a late start explains what is lost nothing is said here: rca/rules/late_start.py scans the starts in order. All are told
against what was measured before the slowdown.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from nccl_instrument.tables import FUNC_RECV
from rca.flows.connections import BULK_MIN, custom_rates, received_bytes, wire_edges, wire_noise, without_common
from rca.flows.followers import followers, without_followers
from rca.flows.granularity import sight_of
from rca.flows.measured import Measured
from rca.keys import Ints, Mask
from rca.settings import Settings
from rca.slow.cover import SHARE_MIN
from rca.slow.edges import Edges, edges_of
from rca.slow.ends import COVERED, GROWN_MIN, Ends, ends_of
from rca.slow.inside import Wait
from rca.slow.slowdown import Slowdown, uses_sockets
from rca.slow.streams import Floats
from rca.slow.traffic import foreign_shares

CHANCE = 5.0
"""Standard deviations of chance: what is further off is no chance."""
GROWN_LEAST = 0.1
"""Of its usual time on the wire: less is what ways that others use vary by, however quiet they were while it was learned."""
FOREIGN_MIN = 0.1
"""Of what a port counts now, not the job's: less is what counters read once a second are off by."""
FOREIGN_APART = 0.6
"""Of the largest such share: other ports that are taken have as much, the rest have less than the remainder."""
MEASURED_MIN = 2
"""Measured iterations of each of the two times: fewer are chance."""
SLOW_RATE = 0.8
"""Of its usual rate: a rank with more is not slow."""
APART_MIN = 0.5
"""Of how much the slowest rank's rate fell: ranks with more are slow too."""
WIRE_MAX = 0.25
"""Of how much longer transfers wait: what bytes are longer on the wire; with more it is not the proxy."""
OFF_WIRE_MIN = 0.5
"""Of how much longer sends wait for the network, longer for the GPU, where the proxy is late at both."""
NEARLY_ALL = 0.9
"""Of a node's ranks that wait for the network: a CPU is short for all."""
NORMAL_MAX = 0.1
"""Of what ops last longer, longer on the wire: more is not the usual time there."""
EARLY_MAX = 0.5
"""Of the lost time, explained by late starts: more is not inside the ops."""
HOT_MIN = 1.25
"""Times the bytes it is usually sent, and times what that grew for the others: experts with so many more tokens are hot."""


class By(StrEnum):
    """Which of what was measured a verdict rests on."""

    ACTUAL = "actual communication time"
    RATE = "rank-level actual rate"
    BYTES = "bytes it is sent by its group"
    PORTS = "actual communication time, and what its port counts beyond the job's bytes"
    WAITS = "the proxy's own waits beyond the time on the wire"
    PASSES = "the proxy's own waits, on the wire and off it alike"
    DURATION = "duration against actual communication time"


class What(StrEnum):
    COMMUNICATION = "communication"
    COMPUTATION = "computation"


@dataclass(frozen=True, slots=True)
class Verdict:
    """One thing the analyzer says. ranks: positions in the iterations' ranks, () where only a group can be named, which is then
    comm_ids, () for the whole job. rivals: positions of ranks that would explain as much. n_ends: NICs among them.
    excess_ns: per iteration. n, of: connections or ops that show it, of how many.
    """

    what: What
    by: By
    ranks: tuple[int, ...]
    excess_ns: float
    n: int
    of: int
    rivals: tuple[int, ...] = ()
    comm_ids: tuple[int, ...] = ()
    n_ends: int = 1


def is_measured(slowdown: Slowdown, measured: Measured) -> bool:
    """Whether enough iterations of both times were."""
    return min(measured.seen(slowdown.usual), measured.seen(slowdown.slow)) >= MEASURED_MIN


def communications(slowdown: Slowdown, measured: Measured, settings: Settings) -> tuple[Verdict, ...]:
    """Verdicts of communication: by connection, by the rank's rate where connections do not decide; () when the wire is well."""
    end_of = nic_ends(slowdown)
    edges, grown_min = wire_edges(slowdown, measured), slow_from(slowdown, measured)
    ends = ends_of(edges, end_of, grown_min)
    share = EARLY_MAX if latest_ns(slowdown) >= EARLY_MAX * slowdown.lost_ns else SHARE_MIN
    if not _costs(ends, share * slowdown.lost_ns):
        return ()
    hidden_above = _hidden_above(slowdown, measured)
    taken = _taken(slowdown, ends, end_of, hidden_above)
    if taken:
        return (replace(_of_ends(slowdown, ends, end_of, taken, ()), by=By.PORTS),)
    is_alike = ends.is_everybody
    if is_alike:
        ends = ends_of(without_common(edges), end_of, grown_min)
    if is_alike and (ends.is_everybody or not ends.chosen or not _costs(ends, share * slowdown.lost_ns)):
        return (_of_all(slowdown, edges, grown_min),)
    found = _chosen(slowdown, _without_followers(slowdown, ends, end_of, hidden_above), end_of)
    if any(not one.rivals for one in found):
        return found
    slow = _slow_senders(slowdown, measured, settings)
    return (_by_rate(slowdown, edges, slow),) if len(slow) == 1 else found or _by_sender(ends, end_of)


def proxies(slowdown: Slowdown, measured: Measured) -> tuple[Verdict, ...]:
    """Computation inside the ops, to the machine: ranks whose transfers wait longer though their bytes are on the wire no longer.

    From posting a transfer to noticing that it is done is the proxy's time and the wire's; less the wire's it is its own, and no
    peer's. A plugin's records do not tell the two apart: it knows what the proxy noticed. There the proxy is told by what it
    passes on late off the wire, too, on all ranks of the machine. Over sockets what is posted waits for the receiver, so
    nothing is said.
    """
    if uses_sockets(slowdown.window):
        return ()
    beyond, wire, n, of = _beyond(slowdown, measured)
    waits = beyond + wire
    late = (beyond >= SHARE_MIN * slowdown.lost_ns) & (wire <= WIRE_MAX * waits)
    off_wire = _late_off_wire(slowdown, waits)
    beyond, late = np.where(off_wire, waits, beyond), late | off_wire
    late &= beyond >= APART_MIN * beyond.max(initial=0.0)
    ranks = np.flatnonzero(late)
    if not len(ranks) or 2 * len(np.unique(slowdown.nodes[ranks])) > len(np.unique(slowdown.nodes)) > 1:
        return ()
    found = []
    for node in np.unique(slowdown.nodes[ranks]):
        mine = ranks[slowdown.nodes[ranks] == node]
        if not n[mine].any():
            continue  # no op of theirs waits beyond its time on the wire: it is all the wire's
        at = int(mine[beyond[mine].argmax()])
        excess = min(float(beyond[at]), slowdown.lost_ns)
        by = By.PASSES if off_wire[at] else By.WAITS
        found.append(
            Verdict(What.COMPUTATION, by, tuple(mine.tolist()), excess, int(n[mine].sum()), int(of[mine].sum()))
        )
    return tuple(found)


def _late_off_wire(slowdown: Slowdown, waits: Floats) -> Mask:
    """(R,) ranks whose sends wait longer for the network and about as much longer for what the proxy passes to and from the
    GPU, if nearly all ranks of their node that wait for the network do. A slow NIC makes its own GPU wait for nothing else."""
    copy, credit = (slowdown.sum(np.nan_to_num(slowdown.inside.excess(wait))) for wait in (Wait.COPY, Wait.CREDIT))
    waiting = waits >= SHARE_MIN * slowdown.lost_ns
    late = waiting & (copy >= OFF_WIRE_MIN * waits) & (credit <= WIRE_MAX * waits)
    for node in np.unique(slowdown.nodes[late]):
        mine = slowdown.nodes == node
        if late[mine].sum() < NEARLY_ALL * waiting[mine].sum():
            late &= ~mine
    return late


def hot_ranks(slowdown: Slowdown, measured: Measured) -> tuple[Verdict, ...]:
    """Computation that is uneven by itself: ranks that are sent far more than usual by custom collectives, as experts are that
    many tokens go to. They compute longer and start the next op last (Pulse §7.2.4); the longer way there is no slow network.
    """
    usual, now = received_bytes(slowdown)
    known = np.isfinite(usual) & np.isfinite(now) & (usual > 0)
    if known.sum() < 2:
        return ()
    grown = np.where(known, now / np.where(known, usual, 1.0), 0.0)
    hot = np.flatnonzero(grown >= HOT_MIN * max(float(np.median(grown[known])), 1.0))
    if not len(hot) or 2 * len(hot) > known.sum():
        return ()
    late = _later_ns(slowdown)
    wire = _sent_longer_ns(slowdown, measured)
    excess = float((late + wire)[hot].max())
    if excess < SHARE_MIN * slowdown.lost_ns:
        return ()
    return (
        Verdict(
            What.COMPUTATION, By.BYTES, tuple(hot.tolist()), min(excess, slowdown.lost_ns), len(hot), int(known.sum())
        ),
    )


def _sent_longer_ns(slowdown: Slowdown, measured: Measured) -> Floats:
    """(R,) by how much longer the slowest connection to each rank takes in an iteration, with the bytes it moves now; by its
    waits where too few iterations were measured."""
    edges = wire_edges(slowdown, measured, for_bytes=False) if is_measured(slowdown, measured) else edges_of(slowdown)
    found, known = np.zeros(len(slowdown.iterations.ranks)), edges.receiver >= 0
    np.maximum.at(found, edges.receiver[known], (edges.now_ns - edges.usual_ns)[known])
    return found


def latest_ns(slowdown: Slowdown) -> float:
    """How late of its own the latest rank starts its ops, per iteration, beyond what it usually has."""
    return float(_later_ns(slowdown).max(initial=0.0))


def _later_ns(slowdown: Slowdown) -> Floats:
    """(R,) the same of every rank: one that is steadily late by design is no later than ever."""
    delays = slowdown.delays
    return delays.per_iteration_ns(slowdown.slow) - delays.per_iteration_ns(slowdown.usual)


def groups(slowdown: Slowdown, measured: Measured) -> tuple[Verdict, ...]:
    """Computation inside the ops where no machine stands out: ops that last longer, began in time, with the usual actual time."""
    lasted = np.nan_to_num(slowdown.inside.lasted_slow - slowdown.inside.lasted_usual)
    usual, now = (_means(measured.actual_ns, those) for those in (slowdown.usual, slowdown.slow))
    wire = np.nan_to_num(now - usual)
    known = np.isfinite(usual) & np.isfinite(now)
    if not known.any() or latest_ns(slowdown) >= EARLY_MAX * slowdown.lost_ns:
        return ()
    longer = known & (lasted >= GROWN_MIN * np.nan_to_num(slowdown.inside.lasted_usual))
    comms, of = np.unique(slowdown.iterations.comm_id, return_inverse=True)
    n_ranks = np.maximum(_ranks_of(of, slowdown.iterations.rank, len(comms)), 1)
    excess, on_wire = (
        np.bincount(of[longer], weights=one[longer], minlength=len(comms)) / n_ranks for one in (lasted, wire)
    )
    those = np.flatnonzero((excess >= SHARE_MIN * slowdown.lost_ns) & (on_wire <= NORMAL_MAX * excess))
    if not len(those):
        return ()
    n, whole = int(longer.sum()), int(known.sum())
    is_job = len(those) == int((np.bincount(of[known], minlength=len(comms)) > 0).sum()) and len(those) > 1
    named = () if is_job else tuple(int(one) for one in comms[those])
    worst = min(float(excess[those].max()), slowdown.lost_ns)
    return (Verdict(What.COMPUTATION, By.DURATION, (), worst, n, whole, comm_ids=named),)


def nic_ends(slowdown: Slowdown) -> Ints:
    """(R,) equal for ranks that use the same NIC; a rank whose NIC is not known is an end of its own."""
    nic = slowdown.ranks.nic[slowdown.at]
    found = np.unique(np.where(nic >= 0, nic, -1 - np.arange(len(nic))), return_inverse=True)[1]
    return found.astype(np.int64)


def wire_excess_ns(slowdown: Slowdown, measured: Measured) -> Floats:
    """(R,) by how much longer the bytes of each rank are on the wire in an iteration; NaN of ranks that were not measured."""
    usual, now = (_means(measured.actual_ns, those) for those in (slowdown.usual, slowdown.slow))
    known = np.isfinite(usual) & np.isfinite(now)
    more = slowdown.sum(np.where(known, now - usual, 0.0))
    return np.where(slowdown.sum(known.astype(np.float64)) > 0, more, np.nan)


def _costs(ends: Ends, least_ns: float) -> bool:
    """Whether the slowest connection costs so much of an iteration."""
    more = (ends.now_ns - ends.usual_ns)[ends.is_slow]
    return bool(len(more)) and float(more.max()) >= least_ns


def _chosen(slowdown: Slowdown, ends: Ends, end_of: Ints) -> tuple[Verdict, ...]:
    """A verdict for the NICs without a rival, and one for each with some."""
    sure = [one for one, rivals in zip(ends.chosen, ends.rivals, strict=True) if not rivals]
    tied = [(one, rivals) for one, rivals in zip(ends.chosen, ends.rivals, strict=True) if rivals]
    found = [_of_ends(slowdown, ends, end_of, tuple(sure), ())] if sure else []
    found += [_of_ends(slowdown, ends, end_of, (one,), rivals) for one, rivals in tied]
    return (*found, *(_of_ends(slowdown, ends, end_of, group[:1], group[1:]) for group in ends.undecided))


def _of_ends(slowdown: Slowdown, ends: Ends, end_of: Ints, those: tuple[int, ...], rivals: tuple[int, ...]) -> Verdict:
    touched = np.any([ends.touched(end) for end in those], axis=0)
    slow = touched & ends.is_slow
    excess = min(float((ends.now_ns - ends.usual_ns)[slow].max(initial=0.0)), slowdown.lost_ns)
    ranks, others = (tuple(np.flatnonzero(np.isin(end_of, one)).tolist()) for one in (those, rivals))
    counts = int(slow.sum()), int(touched.sum())
    return Verdict(What.COMMUNICATION, By.ACTUAL, ranks, excess, *counts, rivals=others, n_ends=len(those))


def _hidden_above(slowdown: Slowdown, measured: Measured) -> float:
    """Share of the usual rate above which these epochs hide pauses, of the flows that carry most."""
    n_bytes = measured.rows["n_bytes"]
    bulk = measured.rows[n_bytes >= BULK_MIN * n_bytes.max(initial=0)]
    sight = sight_of(bulk, slowdown.window.rows("nic"))
    return sight.hidden_above if sight is not None else 1.0


def _without_followers(slowdown: Slowdown, ends: Ends, end_of: Ints, hidden_above: float) -> Ends:
    if len(ends.chosen) < 2:
        return ends
    return without_followers(ends, hidden_above, ends_of(edges_of(slowdown), end_of))


def _taken(slowdown: Slowdown, ends: Ends, end_of: Ints, hidden_above: float) -> tuple[int, ...]:
    """NICs whose ports count more of other people's bytes than before, and no other port does, if they touch all that is slow,
    but for what follows them.

    What a port counts is seen, so it goes before what the fewest NICs would explain: of a square whose ways are all slow
    either diagonal would.
    """
    shares = np.nan_to_num(np.append(foreign_shares(slowdown), 0.0)[slowdown.ranks.nic[slowdown.at]])
    of_end = np.zeros(int(end_of.max(initial=-1)) + 1)
    np.maximum.at(of_end, end_of, shares)
    those = np.flatnonzero((of_end >= FOREIGN_MIN) & (of_end >= FOREIGN_APART * of_end.max(initial=0.0)))
    others = np.delete(of_end, those)
    if not len(those) or not len(others) or others.max() > (1 - FOREIGN_APART) * of_end[those].min():
        return ()
    cost = np.where(ends.is_slow, ends.now_ns - ends.usual_ns, 0.0)
    explained = np.isin(ends.sender, those) | np.isin(ends.receiver, those)
    explained |= followers(ends, hidden_above, tuple(those.tolist()))
    is_whole = cost[explained].sum() >= COVERED * cost.sum() > 0
    return tuple(those.tolist()) if is_whole else ()


def slow_from(slowdown: Slowdown, measured: Measured) -> float:
    """From how much of its usual time on a connection is slow: five times what chance makes of it, within GROWN_LEAST and
    GROWN_MIN; the latter where the spread is not known."""
    noise = wire_noise(slowdown, measured)
    return float(np.clip(CHANCE * noise, GROWN_LEAST, GROWN_MIN)) if np.isfinite(noise) else GROWN_MIN


def _of_all(slowdown: Slowdown, edges: Edges, grown_min: float) -> Verdict:
    more = edges.now_ns - edges.usual_ns
    slow = edges.grown() >= grown_min
    excess = min(float(np.median(more[slow])), slowdown.lost_ns)
    return Verdict(What.COMMUNICATION, By.ACTUAL, (), excess, int(slow.sum()), len(slow), n_ends=0)


def _by_sender(ends: Ends, end_of: Ints) -> tuple[Verdict, ...]:
    """Where no end explains the slow connections: their sender, if it is one. Receivers would do as well."""
    slow = np.flatnonzero(ends.is_slow)
    senders, receivers = np.unique(ends.sender[slow]), np.unique(ends.receiver[slow])
    if len(senders) != 1:
        return ()
    ranks, others = (np.flatnonzero(np.isin(end_of, one)) for one in (senders, receivers[receivers >= 0]))
    excess = float((ends.now_ns - ends.usual_ns)[slow].max())
    of = int((ends.sender == senders[0]).sum())
    found = Verdict(What.COMMUNICATION, By.ACTUAL, tuple(ranks.tolist()), excess, len(slow), of)
    # A sender all of whose ways are slow, to several, is no receiver's doing.
    return (found if len(receivers) > 1 and of == len(slow) else replace(found, rivals=tuple(others.tolist())),)


def _slow_senders(slowdown: Slowdown, measured: Measured, settings: Settings) -> Ints:
    """Positions of ranks whose custom collectives go at a lower rate than theirs and than those of the others."""
    rates = custom_rates(slowdown, measured, settings.group_ns)
    kept = rates.kept()
    known = np.isfinite(kept)
    if known.sum() < 2:
        return np.zeros(0, np.int64)
    others = float(np.median(kept[known]))
    slow = known & (kept <= SLOW_RATE) & (kept <= SLOW_RATE * others)
    slow &= 1.0 - kept >= APART_MIN * (1.0 - np.nanmin(kept))
    return np.unique(rates.rank_at[slow])


def _by_rate(slowdown: Slowdown, edges: Edges, slow: Ints) -> Verdict:
    mine = edges.sender == slow[0]
    more = (edges.now_ns - edges.usual_ns)[mine]
    excess = min(float(more.max(initial=0.0)), slowdown.lost_ns)
    n = int((edges.grown()[mine] >= GROWN_MIN).sum())
    return Verdict(What.COMMUNICATION, By.RATE, (int(slow[0]),), excess, n, int(mine.sum()))


def _beyond(slowdown: Slowdown, measured: Measured) -> tuple[Floats, Floats, Ints, Ints]:
    """(R,) ns of an iteration by which transfers wait longer than their bytes are on the wire, by which those are longer on it,
    and in how many of how many ops."""
    usual, now = (_means(_per_flow(slowdown, measured), those) for those in (slowdown.usual, slowdown.slow))
    waits = slowdown.inside.excess(Wait.NETWORK)
    counts = np.isfinite(usual) & np.isfinite(now) & (slowdown.iterations.func != FUNC_RECV)
    wire = np.where(counts, np.maximum(np.nan_to_num(now - usual), 0.0), 0.0)
    beyond = np.where(counts, np.maximum(waits - wire, 0.0), 0.0)
    n = slowdown.sum((beyond > 0).astype(np.float64)).astype(np.int64)
    return slowdown.sum(beyond), slowdown.sum(wire), n, slowdown.sum(counts.astype(np.float64)).astype(np.int64)


def _per_flow(slowdown: Slowdown, measured: Measured) -> Floats:
    """(P, I) ns that a flow of the op moved bytes, on average over its flows."""
    shape = slowdown.iterations.row.shape
    kept = measured.place >= 0
    cell, n = measured.place[kept] * max(shape[1], 1) + measured.iteration[kept], int(np.prod(shape))
    total = np.bincount(cell, weights=measured.rows["actual_ns"][kept], minlength=n)
    count = np.bincount(cell, minlength=n)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan).reshape(shape)


def _ranks_of(of: Ints, rank: Ints, n: int) -> Ints:
    pairs = np.unique(np.stack([of, rank]), axis=1)
    return np.bincount(pairs[0], minlength=n)


def _means(values: Floats, those: Mask) -> Floats:
    chosen = values[:, those]
    n = np.isfinite(chosen).sum(axis=1)
    return np.where(n > 0, np.nansum(chosen, axis=1) / np.maximum(n, 1), np.nan)
