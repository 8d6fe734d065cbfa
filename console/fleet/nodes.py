"""One node: which jobs run on it now, its ranks, its NICs over the last minutes, and what its incidents were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

from console.dashboard.figures import BARE, COLOURS, as_figure
from console.dashboard.jobs import NodeRow, node_rows_of
from console.incidents.live import IncidentRow
from console.incidents.read import visible_incidents
from console.incidents.rows import incident_row, iso_from_ns
from ingest.models import Attempt, Node, Rank
from ingest.read import read_window

SECOND: Final = 1_000_000_000
ATTEMPTS_MAX: Final = 10
RANKS_MAX: Final = 64
INCIDENTS_MAX: Final = 50
TRAFFIC_NS: Final = 300 * SECOND
NICS_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class RankOnNode:
    job_id: int
    job: str
    attempt: int
    is_newest: bool
    rank: int
    local_rank: int
    pid: int
    gpu: str
    gpu_uuid: str
    nic: str
    gone_at: str | None


def attempts_on(team_ids: Sequence[int], name: str) -> list[Node]:
    """The node in the newest attempts that ran on it, newest first."""
    found = Node.objects.filter(name=name, attempt__job__team__in=team_ids).select_related("attempt__job")
    return list(found.order_by("-attempt__started_at", "-pk")[:ATTEMPTS_MAX])


def rows_of(nodes: Sequence[Node]) -> list[NodeRow]:
    """What is counted of the node in each of these attempts."""
    return [row for node in nodes for row in node_rows_of(node.attempt.job, node.attempt, node.name)]


def ranks_on(nodes: Sequence[Node]) -> list[RankOnNode]:
    newest = {node.attempt.job_id: _newest_number(node.attempt.job_id) for node in nodes}
    rows = []
    for node in nodes:
        attempt = node.attempt
        for one in Rank.objects.filter(node=node, replaced=False).order_by("rank", "pk")[:RANKS_MAX]:
            rows.append(
                RankOnNode(
                    attempt.job_id, attempt.job.name, attempt.number, attempt.number == newest[attempt.job_id], one.rank,
                    one.local_rank, one.pid, one.gpu_bus_id, one.gpu_uuid, one.nic, iso_from_ns(one.gone_ns),
                )
            )  # fmt: skip
    return rows[: RANKS_MAX * 2]


def _newest_number(job_id: int) -> int:
    return int(Attempt.objects.filter(job=job_id).order_by("-number").values_list("number", flat=True)[0])


def incidents_at(team_ids: Sequence[int], name: str) -> list[IncidentRow]:
    """Whose culprits ran on the node, newest first."""
    found = visible_incidents(team_ids).filter(culprit_nodes__contains=[name]).order_by("-id")
    return [incident_row(one) for one in found[:INCIDENTS_MAX]]


def traffic_figure(node: Node) -> dict[str, Any]:
    """What each NIC sent and received, second by second, in the newest minutes of the node's data."""
    end_ns = node.watermark_ns
    window = read_window(node.attempt_id, end_ns - TRAFFIC_NS, end_ns + 1, ("nic",), nodes=[node.name])
    place = int(np.flatnonzero(window.nodes["name"] == node.name)[0]) if len(window.nodes) else -1
    rows = window.rows("nic")
    rows = rows[rows["node"] == place]
    axes = {
        "xaxis": {"type": "date", "title": {"text": "UTC"}},
        "yaxis": {"rangemode": "tozero", "title": {"text": "Gbit/s"}},
    }
    figure = go.Figure(layout={**BARE, **axes, "uirevision": "nic"})
    said = []
    indices = np.unique(rows["index"])
    for number, index in enumerate(indices[:NICS_MAX]):
        mine = rows[rows["index"] == index]
        mine = mine[np.argsort(mine["tick_ns"])]
        name = mine["name"][-1].decode("utf-8", "replace")
        for column, word, dash in (("tx_bytes", "sent", "solid"), ("rx_bytes", "received", "dot")):
            at, rates = _rates(mine, column)
            figure.add_scatter(x=at, y=rates, name=f"{name} {word}", mode="lines",
                               line={"color": COLOURS[number % len(COLOURS)], "dash": dash})  # fmt: skip
            said += [f"{name} {word} {rates[-1]:g} Gbit/s"] if rates else []
    more = f" {len(indices) - NICS_MAX} more NICs are left out." if len(indices) > NICS_MAX else ""
    text = f"By the NICs' own counters, all traffic included. Newest: {', '.join(said)}.{more}" if said else ""
    return as_figure(figure, text or "No counters of its NICs are known.")


def _rates(rows: Any, column: str) -> tuple[list[str | None], list[float]]:
    """(ends of steps, Gbit/s in them); a counter that fell has begun anew and tells nothing of that step."""
    took = np.diff(rows["tick_ns"])
    moved = rows[column].astype(np.float64)[1:] - rows[column].astype(np.float64)[:-1]
    known = (took > 0) & (moved >= 0)
    at = [iso_from_ns(int(one)) for one in rows["tick_ns"][1:][known]]
    return at, [round(float(one), 4) for one in moved[known] * 8 / took[known]]
