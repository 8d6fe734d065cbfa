"""The ranks of a job and what is directly seen of each: its process, its NIC's port, whether its node still reports.

These are the facts that need no reasoning about ops. They come first in a diagnosis: a stopped process waits for
nobody, whatever its last counters say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ingest.columns import rows_at
from ingest.window import Window
from nccl_instrument.tables import PORT_STATES, PROCESS_GONE
from rca.keys import Index, Ints, Mask, Rows, latest, mix
from rca.settings import SECOND_NS, Settings

PORT_UNKNOWN, PORT_UP, PORT_DOWN = (PORT_STATES.index(name) for name in ("unknown", "up", "down"))
UNKNOWN_COUNT = 2**64 - 1
STOPPED = ord("T")
ZOMBIE = ord("Z")

IO_SPAN_NS = 3 * SECOND_NS
TICKED = ("flow", "live_op", "progress", "process")
TICKED_ONCE = ("progress", "process")
"""Those that agents write once a second; of a job that goes on they say when a rank was last seen as well as the others."""


ALIVE_NS = 6 * SECOND_NS
"""What ends later than this after a node's last news was not under way when it came: clocks may differ by five seconds
(ingest/door/clock.py), and a batch is of one."""
UNHEARD_TIMES = 2
"""As long as a silent node's is the patience with one whose ranks the job goes on with."""


@dataclass(frozen=True, slots=True)
class Ranks:
    """Arrays of (R,), ordered by global rank.

    has_process: its process was seen in the window; whether others live nobody knows.
    rank: global rank. node: index into window.nodes, -1 unknown. seen_ns: newest tick of any row, 0 never. state: letter
    of /proc/<pid>/stat, 0 unknown. nic: position in `nics` of the NIC the rank uses, -1 not known; fallen: for those not
    known, of the one NIC of its node that went down inside the window. io_rate: bytes read and written per second.
    is_silent: its node sends nothing while others do.
    """

    rank: Ints
    node: Ints
    seen_ns: Ints
    state: Ints
    is_gone: Mask
    is_stopped: Mask
    has_process: Mask
    last_callback_ns: Ints
    io_rate: Ints
    nic: Ints
    fallen: Ints
    port: Ints
    is_silent: Mask
    nics: Rows

    def position(self, rank: Ints) -> Ints:
        """(n,) position of each global rank, -1 where it is unknown."""
        if not len(self.rank):
            return np.full(len(rank), -1, np.int64)
        if int(self.rank[-1]) == len(self.rank) - 1:  # all from 0 on: the rank is its position
            return np.where((rank >= 0) & (rank < len(self.rank)), rank, -1).astype(np.int64)
        place = np.minimum(np.searchsorted(self.rank, rank), len(self.rank) - 1)
        return np.where(self.rank[place] == rank, place, -1)

    def names(self, positions: Ints) -> tuple[int, ...]:
        """The global ranks at these positions, in order."""
        return tuple(int(rank) for rank in np.sort(self.rank[np.asarray(positions, np.int64)]))


def known_ranks(window: Window, settings: Settings, ticked: Sequence[str] = TICKED) -> Ranks:
    """Every rank that any of these tables of `window` mentions, or its members."""
    places = window.ranks
    tables = [_newest_ticks(window.rows(name)) for name in ticked]
    mentioned = [places["rank"], window.members["rank"], *(of_rank for of_rank, _ in tables)]
    rank = np.unique(np.concatenate(mentioned)).astype(np.int64)
    rank = rank[rank >= 0]
    at = np.searchsorted(rank, places["rank"])
    node = np.full(len(rank), -1, np.int64)
    node[at] = places["node"]
    seen = np.zeros(len(rank), np.int64)
    for of_rank, tick in tables:
        place = np.searchsorted(rank, of_rank)
        seen[place] = np.maximum(seen[place], tick)
    process = window.rows("process")
    state, is_alive, last_callback, io_rate = _processes(rows_at(process, process["rank"] >= 0), rank)
    nics, nic = _nics(window, at, len(rank))
    port = np.where(nic >= 0, nics["port_state"][nic] if len(nics) else 0, PORT_UNKNOWN)
    return Ranks(
        rank=rank, node=node, seen_ns=seen, state=state,
        is_gone=~is_alive | (state == PROCESS_GONE) | (state == ZOMBIE), is_stopped=state == STOPPED,
        has_process=np.isin(rank, process["rank"]),
        last_callback_ns=last_callback, io_rate=io_rate, nic=nic,
        fallen=_fallen(window, nics, node, nic), port=port.astype(np.int64),
        is_silent=silent_nodes(window, settings)[node], nics=nics,
    )  # fmt: skip


def silent_nodes(window: Window, settings: Settings) -> Mask:
    """(N + 1,) nodes without data for `silence_ns` while another reports; the last entry stands for "no node".

    A node that drains its spool is late, not silent; one whose last news was the end of its processes has finished. When
    nobody with a living process reports, the trouble is the server's or the network's, or the job is over. After such an
    outage agents return one by one: until all could have, who has not returned is unheard, not silent.
    """
    nodes = window.nodes
    lag = window.now_ns - nodes["watermark_ns"]
    has_rows, lives = _living(window)
    is_silent = (lag >= settings.silence_ns) & ~nodes["catching_up"] & (nodes["watermark_ns"] > 0)
    somebody_reports = bool((lives & (lag < settings.silence_ns // 2)).any())
    somebody_reports &= window.now_ns - window.heard_since_ns >= settings.return_ns
    return np.append(is_silent & ~(has_rows & ~lives) & somebody_reports, False)


def lost_nodes(window: Window, settings: Settings) -> Ints:
    """Silent nodes, ascending. One with which the job goes on has trouble to reach us, and twice as long to get over it."""
    is_silent, lag_ns = silent_nodes(window, settings)[:-1], window.now_ns - window.nodes["watermark_ns"]
    if not is_silent.any():
        return np.zeros(0, np.int64)
    is_told = (lag_ns >= UNHEARD_TIMES * settings.silence_ns) | ~are_alive_unheard(window, settings)
    return np.flatnonzero(is_silent & is_told)


def are_alive_unheard(window: Window, settings: Settings) -> Mask:
    """(N,) nodes without whose ranks others could not have completed what they did of late, and long after each was last heard:
    it lives, and so do its processes; what does not is its agent, or the way from it. Told by communicators in which nothing
    passes between two alone, and by two ranks of each, where it has so many: one may have got what it waited for before."""
    newest_ns = np.zeros(len(window.nodes), np.int64)
    comm_ids, done_ns = _done_by_two(window)
    if not len(comm_ids):
        return newest_ns > 0
    ranks, members = window.ranks, window.members
    at = Index(ranks["rank"]).find(members["rank"])
    node = np.where(at >= 0, ranks["node"][at], -1)
    place = np.minimum(np.searchsorted(comm_ids, members["comm_id"]), len(comm_ids) - 1)
    is_told = (node >= 0) & (comm_ids[place] == members["comm_id"])
    np.maximum.at(newest_ns, node[is_told], done_ns[place[is_told]])
    least_ns = np.maximum(window.nodes["watermark_ns"] + ALIVE_NS, window.now_ns - settings.silence_ns // 2)
    found: Mask = newest_ns > least_ns
    return found


def _done_by_two(window: Window) -> tuple[Rows, Ints]:
    """Communicators without transfers between two alone, and until when two of its ranks (of two the one) have completed ops."""
    rows = window.rows("progress")
    of_pairs = np.unique(rows["comm_id"][rows["n_p2p_enqueued"] > 0])
    rows = rows_at(rows, ~np.isin(rows["comm_id"], of_pairs))
    rows = rows_at(rows, latest(mix(rows["comm_id"], rows["rank"]), rows["tick_ns"]))
    order = np.lexsort((rows["last_done_ns"], rows["comm_id"]))
    comm_ids, first, n = np.unique(rows["comm_id"][order], return_index=True, return_counts=True)
    members = np.sort(window.members["comm_id"])
    size = np.searchsorted(members, comm_ids, side="right") - np.searchsorted(members, comm_ids)
    back = np.where(size <= 2, 1, 2)
    done_ns = rows["last_done_ns"][order][first + np.maximum(n - back, 0)].astype(np.int64)
    return comm_ids, np.where(n >= back, done_ns, 0)


def _living(window: Window) -> tuple[Mask, Mask]:
    """(N,) nodes with process rows in the window, and those whose newest rows show a process that lives."""
    rows = window.rows("process")
    rows = rows_at(rows, rows["node"] >= 0)
    rows = rows_at(rows, latest(mix(rows["node"], rows["pid"]), rows["tick_ns"]))
    has_rows, lives = np.zeros(len(window.nodes), bool), np.zeros(len(window.nodes), bool)
    has_rows[rows["node"]] = True
    lives[rows["node"][rows["alive"] != 0]] = True
    return has_rows, lives


def _newest_ticks(rows: Rows) -> tuple[Ints, Ints]:
    """Every known rank that these rows speak of, and the newest of their ticks."""
    rank, tick = np.ascontiguousarray(rows["rank"]), np.ascontiguousarray(rows["tick_ns"])
    starts = np.flatnonzero(np.append(True, rank[1:] != rank[:-1])[: len(rank)])  # rows come in long runs of one rank
    if not len(starts):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    found, place = np.unique(rank[starts], return_inverse=True)
    newest = np.zeros(len(found), np.int64)
    np.maximum.at(newest, place, np.maximum.reduceat(tick, starts))
    return found[found >= 0].astype(np.int64), newest[found >= 0]


def _processes(rows: Rows, rank: Ints) -> tuple[Ints, Mask, Ints, Ints]:
    """State letter, alive, last callback and I/O rate of every rank, from its newest row in the window."""
    state, callback = np.zeros(len(rank), np.int64), np.zeros(len(rank), np.int64)
    is_alive, io_rate = np.ones(len(rank), bool), np.zeros(len(rank), np.int64)
    newest = rows_at(rows, latest(mix(rows["rank"]), rows["tick_ns"]))
    at = np.searchsorted(rank, newest["rank"])
    state[at] = newest["state"]
    is_alive[at] = newest["alive"] != 0
    callback[at] = newest["last_callback_ns"]
    io_rate[at] = _io_rate(rows, newest)
    return state, is_alive, callback, io_rate


def _io_rate(rows: Rows, newest: Rows) -> Ints:
    """(n,) bytes per second each process moved in its last IO_SPAN_NS; 0 where that cannot be told."""
    own, of = mix(rows["rank"], rows["pid"]), Index(mix(newest["rank"], newest["pid"]))
    place = of.find(own)
    lately = np.flatnonzero((place >= 0) & (rows["tick_ns"] >= newest["tick_ns"][place] - IO_SPAN_NS))
    oldest = np.zeros(len(newest), np.int64)
    first = lately[latest(own[lately], -rows["tick_ns"][lately])]
    oldest[place[first]] = first
    elapsed = newest["tick_ns"] - rows["tick_ns"][oldest]
    moved = newest["io_bytes"].astype(np.float64) - rows["io_bytes"][oldest].astype(np.float64)
    rate = np.where(elapsed >= SECOND_NS // 2, moved / np.maximum(elapsed, 1) * SECOND_NS, 0)
    return np.clip(rate, 0, 2.0**62).astype(np.int64)


def _nics(window: Window, at: Ints, n_ranks: int) -> tuple[Rows, Ints]:
    """Newest row of every NIC, and which of them each rank uses: by name, else the only NIC of its node, if that was ever in use:
    of many machines a port that was never connected is the only one that is listed."""
    every = window.rows("nic")
    own = mix(every["node"], every["index"])
    newest = latest(own, every["tick_ns"])
    rows, places = rows_at(every, newest), window.ranks
    names = np.concatenate([np.char.decode(rows["name"], "ascii", "replace"), places["nic"]])
    _, word = np.unique(names, return_inverse=True)
    found = Index(mix(rows["node"], word[: len(rows)])).find(mix(places["node"], word[len(rows) :]))
    nodes, first, counts = np.unique(rows["node"], return_index=True, return_counts=True)
    sent = rows["tx_bytes"]
    is_in_use = (sent > 0) & (sent != UNKNOWN_COUNT) | np.isin(own[newest], own[every["port_state"] == PORT_UP])
    only = np.full(len(window.nodes) + 1, -1, np.int64)
    only[nodes[counts == 1]] = np.where(is_in_use, np.arange(len(rows)), -1)[first[counts == 1]]
    nic = np.full(n_ranks, -1, np.int64)
    nic[at] = np.where((found < 0) & (places["nic"] == ""), only[places["node"]], found)
    return rows, nic


def _fallen(window: Window, nics: Rows, node: Ints, nic: Ints) -> Ints:
    """(R,) the NIC that went down on the rank's node, where it is not known which one the rank uses; -1 when none or several.

    Only ports that were up earlier in the window count: many machines have ports that were never connected.
    """
    rows = window.rows("nic")
    was_up = mix(rows["node"], rows["index"])[rows["port_state"] == PORT_UP]
    fell = np.flatnonzero((nics["port_state"] == PORT_DOWN) & np.isin(mix(nics["node"], nics["index"]), was_up))
    of_node = np.full(len(window.nodes) + 1, -1, np.int64)
    nodes, first, counts = np.unique(nics["node"][fell], return_index=True, return_counts=True)
    of_node[nodes[counts == 1]] = fell[first[counts == 1]]
    return np.where(nic < 0, of_node[node], -1)
