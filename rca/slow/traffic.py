"""What a NIC carries for others: the bytes a second by which that has grown, against what passed it before.

    before:  job's bytes / its iteration ──┐                 now:  fewer a second, as iterations take longer
             others' ──────────────────────┴─▶ counted             others' as before, or more ─▶ counted

Others who are always there send as much a second however long the job's iterations get, so it is bytes a second that are
compared, less the job's own, which are as many in every iteration. Those are known by the ops' records: a send's bytes, and of a
collective those of its flows that were seen in progress. What was not seen counts as others', who then seem to have grown less,
never more. The job sends in bursts, and counters are read about once a second: a difference which that explains is nobody's
traffic. Each direction counts for itself; a port that does not count one of them, or was reset, says nothing of it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ingest.columns import rows_at, taken
from nccl_instrument.tables import FUNC_RECV, FUNC_SEND, RDMA_TRANSMITTED, RECEIVE, RECEIVED, SEND
from rca.keys import Index, Ints, Keys, Mask, Rows, distinct, is_p2p, mix
from rca.slow.slowdown import Slowdown
from rca.slow.streams import Floats

TICKS_MIN = 3
DIRECTIONS = (("tx_bytes", SEND), ("rx_bytes", RECEIVE))
CARRIED = {SEND: RDMA_TRANSMITTED, RECEIVE: RECEIVED}  # chunks whose bytes a flow has counted


class Ports(NamedTuple):
    """What ports counted: rows by port and time, the key of each one's port. at: (N,) place of each of the ranks' NICs among the
    distinct keys, -1 unknown."""

    rows: Rows
    key: Keys
    at: Ints


def ports_of(slowdown: Slowdown) -> Ports:
    """The readings of all ports."""
    rows = slowdown.window.rows("nic")
    key = mix(rows["node"], rows["index"])
    order = np.lexsort((rows["tick_ns"], key))
    rows, key = rows[order], key[order]
    nics = slowdown.ranks.nics
    return Ports(rows, key, Index(np.unique(key)).find(mix(nics["node"], nics["index"])))


def foreign_shares(slowdown: Slowdown) -> Floats:
    """(N,) of each of the ranks' NICs the share of the bytes now, of the direction with more, by which others' have grown.

    NaN where it cannot be told: fewer than three readings of one of the two times, or nothing counted.
    """
    ports = ports_of(slowdown)
    found = np.full(len(ports.at), np.nan)
    if not len(ports.key):
        return found
    for counter, direction in DIRECTIONS:
        usual, now = (rates(slowdown, ports, counter, those) for those in (slowdown.usual, slowdown.slow))
        most = share_of((usual[0] * slowdown.usual_ns / slowdown.slow_ns, usual[1]), (now[0], now[1]))
        more = np.nan_to_num(most) > 0  # of the others nothing is asked: it would be less still
        own = job_bytes(slowdown, direction, more) if more.any() else usual[0] * 0.0
        own = np.minimum(own / slowdown.usual_ns, usual[0])
        left = usual[0] - own * (1.0 - slowdown.usual_ns / slowdown.slow_ns)  # if the others' are as many as before
        found = np.fmax(found, np.where(ports.at >= 0, share_of((left, usual[1]), (now[0], now[1])), np.nan))
    return found


def share_of(usual: tuple[Floats, Floats], now: tuple[Floats, Floats]) -> Floats:
    """Share of what passes now beyond the usual, both with the error they may have; 0 when the errors explain it."""
    more = now[0] - usual[0]
    found: Floats = np.where(more > usual[1] + now[1], more / np.where(now[0] > 0, now[0], 1.0), more * 0.0)
    return found


def per_ns(key: Keys, tick_ns: Ints, counted: Ints) -> tuple[Floats, Floats]:
    """(K,) rate at which each key's counter grew, and by how much that may be off: both ends may lie anywhere in a burst.

    NaN of those with too few readings or one that went back. The rows are ordered by key, then time.
    """
    is_first = np.ones(len(key), bool)
    is_first[1:] = key[1:] != key[:-1]
    first = np.flatnonzero(is_first)
    if not len(first):
        return np.zeros(0), np.zeros(0)
    of, n = np.cumsum(is_first) - 1, np.diff(np.append(first, len(key)))
    passed, grown = ((one - one[first][of]).astype(np.float64) for one in (tick_ns, counted))
    last = first + n - 1
    steps = np.diff(grown, prepend=0.0)
    is_known = (n >= TICKS_MIN) & (passed[last] > 0)
    is_known &= np.minimum.reduceat(np.where(is_first, 0.0, steps), first) >= 0
    span = np.where(is_known, passed[last], np.nan)
    rate = grown[last] / span
    off = np.maximum.reduceat(np.abs(grown - np.nan_to_num(rate)[of] * passed), first)
    return rate, 2.0 * off / span


def job_bytes(slowdown: Slowdown, direction: int, asked: Mask) -> Floats:
    """(N,) bytes that pass each of these NICs in an iteration for the job, as far as its records tell. asked: (N,)."""
    iterations, n_nics = slowdown.iterations, len(slowdown.ranks.nics)
    nic = slowdown.ranks.nic[slowdown.at][iterations.rank_at]
    alone = FUNC_SEND if direction == SEND else FUNC_RECV
    is_alone, is_shared = iterations.func == alone, (iterations.func != FUNC_SEND) & (iterations.func != FUNC_RECV)
    of_op = np.nan_to_num(np.nanmax(iterations.column("bytes"), axis=1, initial=0.0)) if iterations.n else 0.0
    bytes_of = np.where(is_alone, of_op, 0.0) + np.where(is_shared, _of_flows(slowdown, direction, asked), 0.0)
    known = nic >= 0
    found: Floats = np.bincount(nic[known], weights=bytes_of[known], minlength=n_nics).astype(np.float64)
    return found


def _of_flows(slowdown: Slowdown, direction: int, asked: Mask) -> Floats:
    """(P,) bytes of an op of each place in this direction, by those of its flows that were seen in progress."""
    iterations = slowdown.iterations
    rows = slowdown.window.rows_on("flow", distinct(slowdown.ranks.nics["node"][asked].astype(np.int64)))
    passed = rows["counters"][:, CARRIED[direction]]
    rows = rows_at(rows, (rows["direction"] == direction) & (passed > 0) & ~is_p2p(rows))
    place, iteration = np.nonzero(iterations.row >= 0)
    op = iterations.row[place, iteration]
    ops = iterations.ops
    keys = mix(*(taken(ops, name, op) for name in ("rank", "comm_id", "op")), iterations.func[place])
    at = Index(keys).find(mix(rows["rank"], rows["comm_id"], rows["op"], rows["func"]))
    rows, of = rows_at(rows, at >= 0), place[at[at >= 0]]
    _, flow, of_flow = np.unique(mix(of, rows["channel"], rows["peer"]), return_index=True, return_inverse=True)
    passed = rows["counters"][:, CARRIED[direction]]
    carried, chunks = (np.bincount(of_flow, weights=one, minlength=len(flow)) for one in (rows["bytes"], passed))
    total = rows["total_chunks"][flow] * carried / np.maximum(chunks, 1)
    found: Floats = np.bincount(of[flow], weights=total, minlength=len(iterations.rank)).astype(np.float64)
    return found


def rates(slowdown: Slowdown, ports: Ports, counter: str, those: Mask) -> Floats:
    """(2, N) by how much a ns the counter of each of the ranks' NICs grew during these iterations, and the error that may have;
    NaN unknown. `ports` holds readings."""
    rows, key, iterations, keys = ports.rows, ports.key, slowdown.iterations, np.unique(ports.key)
    since = np.nanmin(iterations.began[:, those]) + iterations.start_ns
    until = np.nanmax(iterations.began[:, those]) + iterations.start_ns
    counted = rows[counter].astype(np.int64)  # a port that does not count it says 2⁶⁴ - 1
    inside = (rows["tick_ns"] >= since) & (rows["tick_ns"] <= until) & (counted >= 0)
    found = np.full((2, len(keys)), np.nan)
    found[:, Index(keys).find(np.unique(key[inside]))] = per_ns(key[inside], rows["tick_ns"][inside], counted[inside])
    return found[:, ports.at]
