"""A window from the batches of a simulated job, without a server: what ingest would know at a given moment.

`python -m tests.replay FOLDER window.npz [--at 20] [--span 60]` saves it for `python -m rca`. Decoding, dropping of
impossible rows and placing on the clock are ingest's own functions; only the database in between is left out.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from ingest.arrival import Arrival, completed_ns, losses_of, receive_batch
from ingest.clock import BootClock, place_batch
from ingest.window import MEMBER, NODE, RANK, TRACE_TABLES, WINDOW_DTYPE, Rows, Window, save_window
from nccl_instrument.simulate.files import read_batches
from nccl_instrument.tables import DATA_LOSSES, DTYPE, TIME_COLUMNS

SECOND = 10**9


@dataclass
class Node:
    """What is known of a node: its row's numbers, and its placed batches (shift, arrival)."""

    watermark_ns: int = 0
    received_ns: int = 0
    first_ns: int = 0
    offset_ns: int = 0
    lost: int = 0
    is_catching_up: bool = False
    clocks: dict[bytes, BootClock] = field(default_factory=dict)
    placed: list[tuple[int, Arrival]] = field(default_factory=list)


@dataclass
class Replay:
    """Takes batches as they arrive; `window` cuts what is known now."""

    keep_ns: int = 120 * SECOND
    nodes: dict[str, Node] = field(default_factory=dict)
    comms: list[tuple[str, int, Rows]] = field(default_factory=list)
    job: str = ""

    def take(self, arrives_ns: int, encoded: bytes) -> None:
        """A batch reaches the server at arrives_ns."""
        arrival = receive_batch(1, encoded, arrives_ns)
        batch, node = arrival.batch, self.nodes.setdefault(arrival.batch.node, Node())
        found = place_batch(node.clocks.get(batch.boot_id, BootClock()), batch.wall_ns, batch.mono_ns, arrives_ns)
        node.clocks[batch.boot_id], self.job = found.clock, batch.job
        end_ns = arrival.end_mono_ns + found.shift_ns
        node.first_ns = min(node.first_ns or end_ns, arrival.start_mono_ns + found.shift_ns)
        node.watermark_ns, node.received_ns = max(node.watermark_ns, end_ns), arrives_ns
        node.offset_ns, node.is_catching_up = found.offset_ns, found.catching_up
        node.lost += sum(losses_of(batch).get(kind, 0) for kind in DATA_LOSSES)
        node.placed.append((found.shift_ns, arrival))
        while node.placed and node.placed[0][1].end_mono_ns + node.placed[0][0] < end_ns - self.keep_ns:
            node.placed.pop(0)
        if len(batch.rows("comm")):
            self.comms.append((batch.node, found.shift_ns, batch.rows("comm")))

    @property
    def newest_ns(self) -> int:
        return max(node.watermark_ns for node in self.nodes.values())

    def window(
        self,
        span_s: float = 60.0,
        end_ns: int | None = None,
        tables: Iterable[str] = TRACE_TABLES,
        only: Collection[str] | None = None,
        since_ns: Mapping[str, int] | None = None,
    ) -> Window:
        """The last `span_s` seconds, in data time; of these trace tables and these nodes only, where they are given.

        since_ns: tables of which a shorter time is wanted.
        """
        end_ns = self.newest_ns + 1 if end_ns is None else end_ns
        start_ns = end_ns - int(span_s * SECOND)
        names = sorted(self.nodes)
        index = {name: at for at, name in enumerate(names)}
        ranks, members, world_size = self._roster(index)
        starts_ns = {table: max(start_ns, (since_ns or {}).get(table, start_ns)) for table in tables}
        found = {table: self._table(table, names, members, at, end_ns, only) for table, at in starts_ns.items()}
        nodes = np.array([self._node_row(name, ranks, index[name]) for name in names], NODE)
        return Window(self.job, 1, start_ns, end_ns, end_ns, world_size, nodes, ranks, members, found)

    def _node_row(self, name: str, ranks: Rows, at: int) -> tuple[Any, ...]:
        node, n_ranks = self.nodes[name], int((ranks["node"] == at).sum())
        times = (node.watermark_ns, node.received_ns, node.first_ns, node.offset_ns)
        return (name, *times, node.lost, node.is_catching_up, n_ranks)

    def _roster(self, index: dict[str, int]) -> tuple[Rows, Rows, int]:
        comms = np.concatenate([rows for _, _, rows in self.comms])
        node = np.concatenate([np.full(len(rows), index[name]) for name, _, rows in self.comms])
        _, first = np.unique(comms["global_rank"], return_index=True)
        ranks = np.zeros(len(first), RANK)
        ranks["rank"], ranks["node"] = comms["global_rank"][first], node[first]
        for name in ("pid", "local_rank", "tp", "pp", "dp", "ep", "counters_seen"):
            ranks[name] = comms[name][first]
        for name in ("gpu_bus_id", "gpu_uuid", "nic", "ip"):
            ranks[name] = np.char.decode(comms[name][first])
        np.maximum.at(ranks["transport"], np.searchsorted(ranks["rank"], comms["global_rank"]), comms["transport"] % 3)
        _, first = np.unique(comms[["comm_id", "comm_rank"]], return_index=True)
        members = np.zeros(len(first), MEMBER)
        for name in ("comm_id", "comm_rank", "n_ranks", "n_nodes"):
            members[name] = comms[name][first]
        members["rank"], members["name"] = comms["global_rank"][first], np.char.decode(comms["name"][first])
        return ranks, members, int(comms["world_size"].max())

    def _table(
        self, table: str, names: list[str], members: Rows, start_ns: int, end_ns: int, only: Collection[str] | None
    ) -> Rows:
        pieces = [
            (arrival.batch.rows(table), shift_ns, arrival.end_mono_ns + shift_ns, at)
            for at, name in enumerate(names)
            for shift_ns, arrival in self.nodes[name].placed
            if (only is None or name in only)
            and arrival.end_mono_ns + shift_ns >= start_ns
            and arrival.start_mono_ns + shift_ns < end_ns
        ]
        lengths = [len(rows) for rows, *_ in pieces]
        shift_ns, batch_end_ns, node = (
            np.repeat(np.array([piece[i] for piece in pieces], np.int64), lengths) for i in (1, 2, 3)
        )
        rows = _widened(table, [rows for rows, *_ in pieces], sum(lengths))
        for name in TIME_COLUMNS[table]:
            rows[name] = np.where(rows[name] != 0, rows[name] + shift_ns, 0)
        rows["node"] = node
        at_ns = completed_ns(rows) if table == "op" else batch_end_ns if table == "loss" else rows["tick_ns"]
        rows = rows[(at_ns >= start_ns) & (at_ns < end_ns)]
        rows["rank"] = _ranks_of(table, rows, members)
        return rows


def _widened(table: str, pieces: list[Rows], n_rows: int) -> Rows:
    """End to end in the window's dtype, of which the leading bytes are the trace table's."""
    rows = np.zeros(n_rows, WINDOW_DTYPE[table])
    wide, width = rows.view(np.uint8).reshape(n_rows, rows.itemsize), DTYPE[table].itemsize
    first = 0
    for piece in pieces:
        wide[first : first + len(piece), :width] = np.ascontiguousarray(piece).view(np.uint8).reshape(len(piece), width)
        first += len(piece)
    return rows


def _ranks_of(table: str, rows: Rows, members: Rows) -> Any:
    if table == "process":
        return rows["global_rank"]
    if "comm_id" not in (rows.dtype.names or ()) or not len(rows):
        return -1
    ids, place = np.unique(members["comm_id"], return_inverse=True)
    keys = place.astype(np.int64) << 32 | members["comm_rank"]
    order = np.argsort(keys)
    at = np.minimum(np.searchsorted(ids, rows["comm_id"]), len(ids) - 1)
    wanted = at.astype(np.int64) << 32 | rows["comm_rank"]
    found = np.minimum(np.searchsorted(keys[order], wanted), len(keys) - 1)
    is_known = (keys[order][found] == wanted) & (ids[at] == rows["comm_id"])
    return np.where(is_known, members["rank"][order][found], -1)


def replayed(batches: Iterable[tuple[int, bytes]], until_ns: int | None = None, keep_s: float = 120.0) -> Replay:
    """What the server knows after the batches that have arrived by `until_ns`."""
    replay = Replay(keep_ns=int(keep_s * SECOND))
    for arrives_ns, encoded in batches:
        if until_ns is not None and arrives_ns > until_ns:
            break
        replay.take(arrives_ns, encoded)
    return replay


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.replay", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("window", type=Path)
    parser.add_argument("--at", type=float, help="seconds after the first batch; default: after the last")
    parser.add_argument("--span", type=float, default=60.0, help="seconds before that the window holds")
    chosen = parser.parse_args()
    batches = list(read_batches(chosen.folder))
    until_ns = None if chosen.at is None else batches[0][0] + int(chosen.at * SECOND)
    save_window(chosen.window, replayed(batches, until_ns, chosen.span + 5).window(chosen.span))


if __name__ == "__main__":
    main()
