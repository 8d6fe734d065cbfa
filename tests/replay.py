"""A window from the batches of a simulated job, without a server: what ingest would know at a given moment.

`python -m tests.replay FOLDER window.npz [--at 20] [--span 60]` saves it for `python -m rca`. Decoding, dropping of
impossible rows, placing on the clock and cutting windows are ingest's own functions; only the database in between is left out.
"""

from __future__ import annotations

import argparse
import os
from collections import deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import django
import numpy as np
import numpy.typing as npt
from django.apps import apps

if not apps.ready:  # ingest's cutting lies beside its models
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    os.environ.setdefault("DIOGENES_SECRET_KEY", "replay")
    django.setup()

from ingest.door.arrival import losses_of, receive_batch
from ingest.door.clock import BootClock, place_batch
from ingest.jobs.roster_columns import Roster
from ingest.traces.cutting import GROUP_OF, Bounds, Group, cut
from ingest.window import MEMBER, NODE, RANK, TRACE_TABLES, LateTables, Rows, Window, save_window
from nccl_instrument.simulate.files import read_batches
from nccl_instrument.tables import DATA_LOSSES

SECOND = 10**9


@dataclass(frozen=True, slots=True)
class Placed:
    """A batch on the server's clock, as it is stored: its table groups still packed."""

    start_ns: int
    end_ns: int
    shift_ns: int
    groups: dict[str, bytes]


@dataclass
class Node:
    """What is known of a node: its row's numbers, and its batches."""

    watermark_ns: int = 0
    received_ns: int = 0
    first_ns: int = 0
    offset_ns: int = 0
    lost: int = 0
    is_catching_up: bool = False
    clocks: dict[bytes, BootClock] = field(default_factory=dict)
    placed: deque[Placed] = field(default_factory=deque)


@dataclass
class Replay:
    """Takes batches as they arrive; `window` cuts what is known now."""

    keep_ns: int = 120 * SECOND
    nodes: dict[str, Node] = field(default_factory=dict)
    comms: list[tuple[str, int, Rows]] = field(default_factory=list)
    job: str = ""
    _known: tuple[int, int] = (0, 0)  # batches with comm rows, and nodes, that the roster was made from
    _roster: tuple[Roster, int] | None = None

    def take(self, arrives_ns: int, encoded: bytes) -> None:
        """A batch reaches the server at arrives_ns."""
        arrival = receive_batch(1, encoded, arrives_ns)
        batch, node = arrival.batch, self.nodes.setdefault(arrival.batch.node, Node())
        found = place_batch(node.clocks.get(batch.boot_id, BootClock()), batch.wall_ns, batch.mono_ns, arrives_ns)
        node.clocks[batch.boot_id], self.job = found.clock, batch.job
        start_ns, end_ns = arrival.start_mono_ns + found.shift_ns, arrival.end_mono_ns + found.shift_ns
        node.first_ns = min(node.first_ns or end_ns, start_ns)
        node.watermark_ns, node.received_ns = max(node.watermark_ns, end_ns), arrives_ns
        node.offset_ns, node.is_catching_up = found.offset_ns, found.catching_up
        node.lost += sum(losses_of(batch).get(kind, 0) for kind in DATA_LOSSES)
        groups = {name: raw for name, raw in arrival.groups.items() if raw is not None}
        node.placed.append(Placed(start_ns, end_ns, found.shift_ns, groups))
        while node.placed[0].end_ns < end_ns - self.keep_ns:
            node.placed.popleft()
        if len(batch.rows("comm")):
            self.comms.append((batch.node, found.shift_ns, batch.rows("comm").copy()))

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
        rest_ns: Mapping[str, int] | None = None,
        late: Collection[str] = (),
        last: Collection[str] = (),
        ranks: npt.NDArray[np.int64] | None = None,
        narrow: Mapping[str, Collection[str] | None] | None = None,
    ) -> Window:
        """The last `span_s` seconds, in data time; of these trace tables and these nodes only, where they are given.

        since_ns, rest_ns: table groups of which fewer batches are wanted, as ingest/traces/stored.py has them; late, last, ranks,
        narrow: as ingest/traces/frame.py.
        """
        end_ns = self.newest_ns + 1 if end_ns is None else end_ns
        bounds = Bounds(end_ns - int(span_s * SECOND), end_ns, tuple(last), ranks)
        tables, (roster, world_size) = tuple(tables), self._roster_now()
        names = sorted(self.nodes)
        at = [i for i, name in enumerate(names) if only is None or name in only]
        cutting = partial(self._cut, roster, names, bounds, since_ns or {}, rest_ns or {}, narrow or {})
        known = cutting([table for table in tables if table not in late], at)

        def of_nodes(table: str, nodes: npt.NDArray[np.int64] | None, comms: npt.NDArray[np.uint64] | None) -> Rows:
            rows = cutting([table], at if nodes is None else nodes.tolist())[table]
            return rows if comms is None else rows[np.isin(rows["comm_id"], comms)]

        later = LateTables(known, late, of_nodes)
        n_ranks = np.bincount(roster.ranks["node"], minlength=len(names)).tolist()
        nodes = np.array([self._node_row(name, n) for name, n in zip(names, n_ranks, strict=True)], NODE)
        start_ns = bounds.start_ns
        return Window(
            self.job,
            1,
            start_ns,
            end_ns,
            end_ns,
            world_size,
            nodes,
            roster.ranks,
            roster.members,
            later if late else known,
        )

    def _cut(
        self, roster: Roster, names: list[str], bounds: Bounds, since_ns: Mapping[str, int], rest_ns: Mapping[str, int],
        narrow: Mapping[str, Collection[str] | None], tables: list[str], nodes: Iterable[int],
    ) -> dict[str, Rows]:  # fmt: skip
        found: dict[str, list[Group]] = {GROUP_OF[table]: [] for table in tables}
        for at in nodes:
            node = self.nodes[names[at]]
            told_ns = min(node.watermark_ns, bounds.end_ns)
            least_ns = {**since_ns, **{group: told_ns - ns for group, ns in rest_ns.items()}}
            for one in node.placed:
                if one.end_ns >= bounds.start_ns and one.start_ns < bounds.end_ns:
                    for group in found.keys() & one.groups.keys():
                        if one.end_ns >= least_ns.get(group, 0):
                            found[group].append(Group(at, one.shift_ns, one.end_ns, one.groups[group]))
        return cut(tables, found, roster, bounds, narrow)[0]

    def _node_row(self, name: str, n_ranks: int) -> tuple[Any, ...]:
        node = self.nodes[name]
        times = (node.watermark_ns, node.received_ns, node.first_ns, node.offset_ns)
        return (name, *times, node.lost, node.is_catching_up, n_ranks)

    def _roster_now(self) -> tuple[Roster, int]:
        """Who belongs to the job, and how large it is said to be."""
        if self._roster is None or self._known != (len(self.comms), len(self.nodes)):
            self._known, self._roster = (len(self.comms), len(self.nodes)), self._roster_of(sorted(self.nodes))
        return self._roster

    def _roster_of(self, names: list[str]) -> tuple[Roster, int]:
        index = {name: at for at, name in enumerate(names)}
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
        order = np.lexsort((comms["comm_rank"], comms["comm_id"]))
        comm_id, place = comms["comm_id"][order], comms["comm_rank"][order]
        first = order[np.append(True, (comm_id[1:] != comm_id[:-1]) | (place[1:] != place[:-1]))]
        members = np.zeros(len(first), MEMBER)
        for name in ("comm_id", "comm_rank", "n_ranks", "n_nodes"):
            members[name] = comms[name][first]
        members["rank"], members["name"] = comms["global_rank"][first], np.char.decode(comms["name"][first])
        processes = np.stack([ranks["node"], ranks["pid"], ranks["rank"]], axis=1).astype(np.int64)
        processes = processes[np.lexsort((processes[:, 1], processes[:, 0]))]
        roster = Roster(0, np.arange(len(names)), ranks, members, processes)
        return roster, int(comms["world_size"].max())


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
