"""One rank: where it runs, what it does in each communicator, its flows now, and how long its ops took lately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

from console.dashboard.axes import spare
from console.dashboard.figures import BARE, COLOURS, as_figure
from console.incidents.models import Incident
from console.incidents.rows import iso_from_ns
from ingest.models import Attempt, CommMember, Rank
from ingest.read import latest_data_ns, read_window
from ingest.window import Rows, Window
from nccl_instrument.tables import DIRECTIONS, FUNCS, TRANSPORTS

SECOND: Final = 1_000_000_000
NOW_NS: Final = 3 * SECOND
OPS_NS: Final = 60 * SECOND
POINTS_MAX: Final = 4000
SERIES_MAX: Final = 8
ROWS_MAX: Final = 200
INCIDENTS_MAX: Final = 20
STATE_WORDS: Final = {"R": "running", "S": "sleeping", "D": "in the kernel", "T": "stopped", "t": "traced",
                      "Z": "ended", "X": "gone", "I": "idle"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank runs; numbers are -1 and texts empty where unknown. process: its state at the newest look of the agent."""

    rank: int
    node: str
    local_rank: int
    pid: int
    gpu: str
    gpu_uuid: str
    nic: str
    ip: str
    tp: int
    pp: int
    dp: int
    ep: int
    transport: str
    process: str
    gone_at: str | None
    node_mates: list[int]


@dataclass(frozen=True, slots=True)
class InComm:
    """A communicator of the rank and how far it is in it; counts are None where they are not known.

    Collectives, then sends and receives. Of a communicator inside one node, whose ops show no network flow, none is seen done.
    kernel: what the GPU tells of its newest op there, "begun" (and not ended), "not begun" or "ended"; None where it does not.
    """

    comm_id: str
    name: str
    comm_rank: int
    n_ranks: int
    n_enqueued: int | None
    n_done: int | None
    n_p2p_enqueued: int | None
    n_p2p_done: int | None
    last_done_at: str | None
    kernel: str | None


@dataclass(frozen=True, slots=True)
class FlowNow:
    """A flow in progress at the newest tick; counters in the order a chunk passes them."""

    comm_name: str
    channel: int
    peer_rank: int
    direction: str
    func: str
    op: int
    counters: list[int]
    total_chunks: int
    stuck_ms: int


@dataclass(frozen=True, slots=True)
class RankNow:
    """A rank of an attempt. at: data time of what is said of now, None where nothing was ever heard."""

    at: str | None
    place: Place
    communicators: list[InComm]
    flows: list[FlowNow]
    left_out: int
    incidents: list[int]


def find_rank(attempt: Attempt, rank: int) -> Rank:
    """Rank.DoesNotExist when the attempt never had it."""
    known = Rank.objects.filter(attempt=attempt, rank=rank, replaced=False).select_related("node")
    found: Rank = known.get()
    return found


def rank_now(attempt: Attempt, row: Rank) -> RankNow:
    newest = latest_data_ns(attempt.pk)
    window = read_window(attempt.pk, newest - NOW_NS, newest + 1, ("progress", "process", "flow"), ranks=[row.rank])
    members = CommMember.objects.filter(process=row).select_related("communicator").order_by("communicator__name", "pk")
    progress = _newest_by(_of(window, "progress", row.rank), "comm_id")
    inside = set(window.members["comm_id"][window.members["n_nodes"] == 1].tolist())
    comms = [_in_comm(one, progress, inside) for one in members[:ROWS_MAX]]
    flows, n_flows = _flows(window, row.rank)
    blamed = Incident.objects.filter(attempt=attempt, culprits__contains=[row.rank]).order_by("-id")
    return RankNow(
        iso_from_ns(newest), _place(row, window), comms, flows, max(n_flows - ROWS_MAX, 0) + max(len(members) - ROWS_MAX, 0),
        list(blamed.values_list("pk", flat=True)[:INCIDENTS_MAX]),
    )  # fmt: skip


def _place(row: Rank, window: Window) -> Place:
    mates = Rank.objects.filter(attempt=row.attempt_id, node=row.node_id, replaced=False, rank__gte=0).order_by("rank")
    seen = window.rows("process")
    seen = seen[seen["pid"] == row.pid]
    letter = chr(int(seen[seen["tick_ns"].argmax()]["state"])) if len(seen) else ""
    return Place(
        row.rank, row.node.name, row.local_rank, row.pid, row.gpu_bus_id, row.gpu_uuid, row.nic, row.ip, row.tp, row.pp, row.dp,
        row.ep, TRANSPORTS[row.transport] if 0 <= row.transport < len(TRANSPORTS) else "Unknown",
        STATE_WORDS.get(letter, "unknown"), iso_from_ns(row.gone_ns), list(mates.values_list("rank", flat=True)),
    )  # fmt: skip


def _in_comm(member: CommMember, progress: dict[int, Any], inside: set[int]) -> InComm:
    comm = member.communicator
    comm_id = comm.comm_id % 2**64
    seen = progress.get(comm_id)

    def counted(name: str) -> int | None:
        return None if seen is None or (comm_id in inside and name.endswith("_done")) else int(seen[name])

    return InComm(
        f"{comm_id:016x}", comm.name, member.comm_rank, comm.n_ranks,
        counted("n_enqueued"), counted("n_done"), counted("n_p2p_enqueued"), counted("n_p2p_done"),
        None if seen is None else iso_from_ns(int(seen["last_done_ns"])), None if seen is None else _kernel(seen),
    )  # fmt: skip


def _kernel(seen: Any) -> str | None:
    if not seen["kernels_begun"]:
        return None
    if seen["kernels_open"]:
        return "begun"
    given = int(seen["n_enqueued"]) + int(seen["n_p2p_enqueued"])
    return "not begun" if int(seen["kernels_begun"]) < given else "ended"


def _flows(window: Window, rank: int) -> tuple[list[FlowNow], int]:
    """Those of the newest tick that has any, the longest stuck first; and how many there are."""
    rows = _of(window, "flow", rank)
    if not len(rows):
        return [], 0
    rows = rows[rows["tick_ns"] == rows["tick_ns"].max()]
    rows = rows[np.argsort(-rows["stuck_ns"], kind="stable")]
    names = {int(one["comm_id"]): str(one["name"]) for one in window.members}
    return [_flow(one, window, names) for one in rows[:ROWS_MAX]], len(rows)


def _flow(row: Any, window: Window, names: dict[int, str]) -> FlowNow:
    comm_id, members = int(row["comm_id"]), window.members
    peer = members["rank"][(members["comm_id"] == np.uint64(comm_id)) & (members["comm_rank"] == row["peer"])]
    return FlowNow(
        names.get(comm_id) or f"{comm_id:016x}", int(row["channel"]), int(peer[0]) if len(peer) else -1,
        DIRECTIONS[int(row["direction"])], FUNCS[int(row["func"])], int(row["op"]), [int(n) for n in row["counters"]],
        int(row["total_chunks"]), int(row["stuck_ns"]) // 1_000_000,
    )  # fmt: skip


def _of(window: Window, table: str, rank: int) -> Rows:
    rows = window.rows(table)
    return rows[rows["rank"] == rank]


def _newest_by(rows: Rows, name: str) -> dict[int, Any]:
    return {int(row[name]): row for row in rows[np.argsort(rows["tick_ns"])]}


def ops_figure(attempt: Attempt, rank: int) -> dict[str, Any]:
    """How long each op of the newest minute took, by communicator and kind."""
    newest = latest_data_ns(attempt.pk)
    window = read_window(attempt.pk, newest - OPS_NS, newest + 1, ("op",), ranks=[rank])
    rows = _of(window, "op", rank)
    start = np.where(rows["started_ns"] > 0, rows["started_ns"], rows["enqueued_ns"])
    known = (rows["done_ns"] > start) & (start > 0)
    rows, start = rows[known], start[known]
    order = np.argsort(rows["done_ns"])[-POINTS_MAX:]
    left_out, rows, start = len(rows) - len(order), rows[order], start[order]
    names = {int(one["comm_id"]): str(one["name"]) for one in window.members}
    axes = {
        "xaxis": {"type": "date", "title": {"text": "UTC"}},
        "yaxis": {"rangemode": "tozero", "title": {"text": "ms of an op"}},
    }
    figure, drawn = go.Figure(layout={**BARE, **axes, "uirevision": "rank-ops"}), list[list[float]]()
    groups = sorted({(int(one["comm_id"]), int(one["func"])) for one in rows[["comm_id", "func"]]})
    for number, (comm_id, func) in enumerate(groups[:SERIES_MAX]):
        mine = (rows["comm_id"] == np.uint64(comm_id)) & (rows["func"] == func)
        drawn.append([round(float(ms), 4) for ms in (rows["done_ns"][mine] - start[mine]) / 1e6])
        figure.add_scatter(
            x=[iso_from_ns(int(at)) for at in rows["done_ns"][mine]], y=drawn[-1], mode="markers",
            name=f"{names.get(comm_id) or f'{comm_id:016x}'} {FUNCS[func]}",
            marker={"size": 4, "color": COLOURS[number % len(COLOURS)], "symbol": number % 8},
        )  # fmt: skip
    beyond = spare(figure, drawn)
    more = f" {len(groups) - SERIES_MAX} more kinds are left out." if len(groups) > SERIES_MAX else ""
    cut = f" {left_out:,} older ops are left out." if left_out else ""
    said = f"{len(rows):,} ops of rank {rank} that ended in the newest minute of data.{cut}{more}{beyond}"
    return as_figure(figure, said if len(rows) else f"No op of rank {rank} ended in the newest minute of data.")
