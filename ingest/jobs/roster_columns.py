"""An attempt's nodes, ranks and members as the columns of a window, and the join of trace rows with them.

Ranks and members change only when the roster's version does, so they are remembered by it; nodes change with every
batch and are read each time.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ingest.door.arrival import HasColumns
from ingest.jobs.members import unsigned
from ingest.models import CommMember, Node, Rank
from ingest.window import MEMBER, NODE, RANK, Rows
from nccl_instrument.tables import DATA_LOSSES

ROSTERS_KEPT: Final = 32
_RANK_FIELDS = (
    "pid", "local_rank", "tp", "pp", "dp", "ep", "rank_inferred", "coordinates_inferred", "transport", "counters_seen",
)  # fmt: skip
_NODE_FIELDS = ("name", "watermark_ns", "received_ns", "first_ns", "clock_offset_ns", "losses", "catching_up", "rack")
_RANK_TEXTS = ("gpu_bus_id", "gpu_uuid", "nic", "ip")

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Roster:
    """node_ids: (N,) primary keys, sorted: a node's place here is its index in the window. ranks, members: as Window, the
    members by (comm_id, comm_rank).

    processes: (P, 3) node index, pid, rank of every process, sorted by the first two.
    """

    attempt_id: int
    node_ids: Ints
    ranks: Rows
    members: Rows
    processes: Ints

    @cached_property
    def comm_ids(self) -> npt.NDArray[np.uint64]:
        """Every communicator once, sorted."""
        comm_id = self.members["comm_id"]
        return comm_id[np.append(True, comm_id[1:] != comm_id[:-1])[: len(comm_id)]]

    @cached_property
    def member_keys(self) -> Ints:
        """(M,) one number per member, ascending: its communicator's place, and its own there."""
        place = np.searchsorted(self.comm_ids, self.members["comm_id"]).astype(np.int64)
        return place << 32 | self.members["comm_rank"]

    def nodes(self, known: Sequence[tuple[Any, ...]] | None = None) -> Rows:
        """(N,) NODE, as they are now. known: what `read_node_values` has just read."""
        found = {row[0]: row[1:] for row in (read_node_values(self.attempt_id) if known is None else known)}
        counts = (
            np.bincount(self.ranks["node"], minlength=len(self.node_ids)) if len(self.node_ids) else np.zeros(0, int)
        )
        rows = [_node_row(found.get(pk), int(n)) for pk, n in zip(self.node_ids.tolist(), counts, strict=True)]
        return np.array(rows, NODE)

    def nodes_of(self, names: Collection[str], ranks: Collection[int]) -> list[int]:
        """Primary keys of the nodes of these names and of those that these ranks run on."""
        at = self.ranks["node"][np.isin(self.ranks["rank"], list(ranks))]
        named = Node.objects.filter(pk__in=self.node_ids.tolist(), name__in=names).values_list("pk", flat=True)
        return sorted({*self.node_ids[at].tolist(), *named})

    def node_index(self, node_ids: Ints) -> npt.NDArray[np.int32]:
        """(n,) index into nodes(); every stored batch's node is there."""
        return np.searchsorted(self.node_ids, node_ids).astype(np.int32)

    def largest_communicator(self) -> int:
        """The most ranks any communicator has: the world size when nobody declared it. 0 when there is none."""
        return int(self.members["n_ranks"].max()) if len(self.members) else 0


def read_node_values(attempt_id: int) -> list[tuple[Any, ...]]:
    """Primary key and fields of every node of an attempt, by key."""
    return list(Node.objects.filter(attempt_id=attempt_id).order_by("pk").values_list("pk", *_NODE_FIELDS))


def racks_of(known: Sequence[tuple[Any, ...]]) -> dict[str, str]:
    """Name → rack of the nodes whose agents declare one. known: as `read_node_values` reads them."""
    return {row[1]: row[-1] for row in known if row[-1]}


def read_roster(attempt_id: int, version: int, known: Sequence[tuple[Any, ...]] | None = None) -> Roster:
    """The roster of an attempt; nodes may join without a new version, so they are part of the key. known: its nodes."""
    nodes = read_node_values(attempt_id) if known is None else known
    return _read_roster(attempt_id, version, tuple(row[0] for row in nodes))


def place_ranks(roster: Roster, table: str, rows: Rows) -> npt.NDArray[np.int32]:
    """(n,) global rank of each row: by communicator, else by process; -1 where it is not known (and for NICs)."""
    if "comm_id" in (rows.dtype.names or ()):
        return place_members(roster, rows)
    if table in ("process", "status", "recorder", "stage", "side"):
        joined = _by_process(roster.processes, rows)
        return np.where(rows["global_rank"] >= 0, rows["global_rank"], joined).astype(np.int32)
    return _by_process(roster.processes, rows) if table == "loss" else np.full(len(rows), -1, np.int32)


def place_members(roster: Roster, rows: HasColumns) -> npt.NDArray[np.int32]:
    """(n,) global rank of the member of a communicator that each row is of."""
    comm_ids, keys, members = roster.comm_ids, roster.member_keys, roster.members
    comm_id, comm_rank = rows["comm_id"], rows["comm_rank"]
    if len(comm_ids) == 0 or len(comm_id) == 0:
        return np.full(len(comm_id), -1, np.int32)
    place = np.minimum(np.searchsorted(comm_ids, comm_id), len(comm_ids) - 1)
    wanted = place.astype(np.int64) << 32 | comm_rank
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    known = (keys[at] == wanted) & (comm_ids[place] == comm_id)
    return np.where(known, members["rank"][at], -1).astype(np.int32)


def _by_process(processes: Ints, rows: Rows) -> npt.NDArray[np.int32]:
    if len(processes) == 0 or len(rows) == 0:
        return np.full(len(rows), -1, np.int32)
    keys = processes[:, 0] << 32 | processes[:, 1]
    wanted = rows["node"].astype(np.int64) << 32 | np.maximum(rows["pid"], 0).astype(np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where((keys[at] == wanted) & (rows["pid"] >= 0), processes[at, 2], -1).astype(np.int32)


@lru_cache(maxsize=ROSTERS_KEPT)
def _read_roster(attempt_id: int, version: int, node_ids: tuple[int, ...]) -> Roster:
    index = {pk: i for i, pk in enumerate(node_ids)}
    seen = Rank.objects.filter(attempt_id=attempt_id, replaced=False, node_id__in=node_ids)
    columns = ("rank", "node_id", *_RANK_FIELDS, *_RANK_TEXTS)
    current = list(seen.order_by("rank", "pk").values_list(*columns))  # a node that joined since is in the next reading
    ranks = np.array([(rank, index[node_id], *rest) for rank, node_id, *rest in current if rank >= 0], RANK)
    places = sorted((index[node_id], max(pid, 0), rank) for rank, node_id, pid, *_ in current)
    processes = np.array(places, np.int64).reshape(-1, 3)
    members = np.array(_member_rows(attempt_id), MEMBER)
    members.sort(order=("comm_id", "comm_rank"))
    ranks.flags.writeable = members.flags.writeable = False  # every window of the layout has these very arrays
    return Roster(attempt_id, np.array(node_ids, np.int64), ranks, members, processes)


def _node_row(node: tuple[Any, ...] | None, n_ranks: int) -> tuple[Any, ...]:
    if node is None:
        return ("", 0, 0, 0, 0, 0, False, n_ranks)
    *known, losses, catching_up, _ = node
    lost = sum(int(losses.get(kind, 0)) for kind in DATA_LOSSES) if losses else 0
    return (*known, lost, catching_up, n_ranks)


def _member_rows(attempt_id: int) -> list[tuple[Any, ...]]:
    found = CommMember.objects.filter(communicator__attempt_id=attempt_id).values_list(
        "communicator__comm_id",
        "comm_rank",
        "process__rank",
        "communicator__n_ranks",
        "communicator__n_nodes",
        "communicator__name",
    )
    return [(unsigned(comm_id), *rest) for comm_id, *rest in found]
