"""The REST API of the network tab: what one group's bytes did on the wire, around an incident or now."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
from django.utils.decorators import method_decorator
from django.views.decorators.gzip import gzip_page
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import NotFound
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import caller_of
from console.dashboard import jobs
from console.dashboard.given import Fields
from console.dashboard.job_api import find_job
from console.dashboard.kept import kept_once
from console.dashboard.schema import ERROR, an_object
from console.incidents import read as incident_read
from console.incidents.models import Incident
from console.incidents.rows import iso_from_ns
from console.network import figures
from console.network.panel import panel_answer
from console.network.read import (
    NODES_MAX,
    ROWS_MAX,
    GroupRow,
    Span,
    first_rank,
    groups_of_rank,
    members_of,
    nodes_at_once,
    nodes_near,
    nodes_read,
    own_window,
    read_traffic,
    read_unfinished,
    span_of,
    verdict_group,
)
from console.network.unfinished import by_group, by_rank, standing_ops, unfinished_of
from console.network.unowned import unowned_of
from console.network.volumes import volumes_of
from ingest.models import Attempt
from ingest.window import Window
from nccl_instrument.tables import TRAFFIC_SOURCES
from rca.flows.granularity import sight_of
from rca.flows.measured import incomplete_share
from rca.flows.pictures import OpTimes, finished_times, groups_of, left_out, op_times, paths_of

FIGURE: Final = an_object(data=list[dict[str, Any]], layout=dict[str, Any], config=dict[str, Any], text=str)
COUNTED: Final = an_object(n_ops=int, started_at=str | None, ended_at=str | None, is_before=bool)
NETWORK: Final = an_object(
    rank=int | None, groups=list[GroupRow], group=str, is_custom=bool, started_at=str | None, ended_at=str | None,
    unfinished=dict[str, Any] | None, counted=COUNTED,
    measured=dict[str, Any], ranks=list[dict[str, Any]], times=FIGURE, rates=FIGURE, paths=FIGURE, matrix=dict[str, Any] | None,
)  # fmt: skip
PANEL: Final = an_object(
    rank=int | None, iteration_ms=float | None, bubble=dict[str, Any], communication=list[dict[str, Any]],
    layout=list[dict[str, Any]], omitted=int, says=str, doubts=list[str], microbatches=dict[str, Any] | None, read_of=str,
)  # fmt: skip
NO_TIMES: Final = OpTimes(*(np.zeros(0, kind) for kind in "qqqqdddq"))
KEPT_SECONDS: Final = 10
"""Pages ask every 15 s, each viewer's by itself: those who look at the same thing share one reading of it."""
QUERY: Final = [
    OpenApiParameter("rank", int, description="Whose groups; the first culprit's, else the first rank's if left out."),
    OpenApiParameter(
        "group",
        str,
        description="Communicator, 16 hexadecimal digits; the verdict's, else the one that moved most, if left out.",
    ),
]


class NetworkQuery(Fields):
    rank = serializers.IntegerField(required=False, min_value=0, max_value=999_999)
    group = serializers.RegexField(r"^[0-9a-f]{16}$", required=False)


@method_decorator(gzip_page, name="dispatch")
class IncidentNetwork(APIView):
    @extend_schema("incident_network", parameters=QUERY, responses={200: NETWORK, 400: ERROR, 404: ERROR})
    def get(self, request: Request, number: int) -> Response:
        """Actual communication times, rates and paths of a culprit's group, from shortly before the first symptom on."""
        incident = incident_read.find_incident(number, caller_of(request.user).team_ids)
        return Response(_network(request, incident.attempt, incident))


@method_decorator(gzip_page, name="dispatch")
class JobNetwork(APIView):
    @extend_schema("job_network", parameters=QUERY, responses={200: NETWORK, 400: ERROR, 404: ERROR})
    def get(self, request: Request, job_id: int) -> Response:
        """The same of the newest seconds of the job's newest attempt."""
        attempt = jobs.newest_attempt(find_job(caller_of(request.user), job_id))
        return Response(_network(request, attempt, None) if attempt else _nothing(None, [], ""))


@method_decorator(gzip_page, name="dispatch")
class JobParallelism(APIView):
    @extend_schema("job_parallelism", parameters=QUERY[:1], responses={200: PANEL, 400: ERROR, 404: ERROR})
    def get(self, request: Request, job_id: int) -> Response:
        """What each kind of parallelism costs an iteration of the groups of a rank, its pipeline's microbatches, the layout."""
        attempt = jobs.newest_attempt(find_job(caller_of(request.user), job_id))
        query = NetworkQuery(data={name: request.GET[name] for name in ("rank",) if request.GET.get(name)})
        query.is_valid(raise_exception=True)
        rank = query.validated_data.get("rank", first_rank(attempt, None) if attempt else None)
        if attempt is None or rank is None:
            raise NotFound("Nothing was ever heard of this job's ranks.")
        return Response(kept(f"parallelism:{attempt.pk}:{rank}", partial(_parallelism, attempt, rank)))


def kept(key: str, answer: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The answer, or the one that somebody else was given a moment ago."""
    return kept_once(f"network:{key}", answer, KEPT_SECONDS)


def _parallelism(attempt: Attempt, rank: int) -> dict[str, Any]:
    span = span_of(attempt, None)
    n_max = nodes_at_once(own_window(attempt, span, rank))
    nodes, n_nodes = nodes_near(attempt, rank, n_max)
    window = read_traffic(attempt, span, nodes)
    return {"rank": rank, "read_of": _of_nodes(nodes, n_nodes, n_max), **panel_answer(window)}


def _of_nodes(nodes: list[str], n_nodes: int, n_max: int) -> str:
    """How much of what there is was read, and by which limit where that is the rows'; "" for all of it."""
    if len(nodes) >= n_nodes:
        return ""
    return f"{len(nodes)} of {n_nodes} nodes" + (f" (of {ROWS_MAX:,} rows at most)" if n_max < NODES_MAX else "")


def _network(request: Request, attempt: Attempt, incident: Incident | None) -> dict[str, Any]:
    query = NetworkQuery(data={name: request.GET[name] for name in ("rank", "group") if request.GET.get(name)})
    query.is_valid(raise_exception=True)
    rank = query.validated_data.get("rank", first_rank(attempt, incident))
    groups = groups_of_rank(attempt, rank) if rank is not None else []
    asked = query.validated_data.get("group", "")
    if rank is None or not groups:
        return _nothing(rank, groups, asked)
    asked = asked if any(one.comm_id == asked for one in groups) else ""
    span = span_of(attempt, incident)
    key = f"{attempt.pk}:{span.onset_ns}:{rank}:{asked}"
    verdict = verdict_group(incident)
    first = verdict if any(one.comm_id == verdict for one in groups) else ""
    return kept(f"{key}:{first}", partial(_of_group, attempt, span, rank, groups, asked or first))


def _of_group(attempt: Attempt, span: Span, rank: int, groups: list[GroupRow], asked: str) -> dict[str, Any]:
    """The answer for the group that is asked for, else for the rank's busiest."""
    own = own_window(attempt, span, rank)
    n_max = nodes_at_once(own)
    group = asked or _busiest(own, groups)
    members = members_of(attempt, int(group, 16))
    nodes, n_nodes = nodes_read(members, rank, n_max), len({node for _, node in members})
    window = own if n_nodes == 1 else read_traffic(attempt, span, nodes)
    now = read_unfinished(attempt, span, nodes)
    read_of, read = _of_nodes(nodes, n_nodes, n_max), [of for of, node in members if node in set(nodes)]
    return _drawn(window, now, span, rank, groups, group, read_of, read)


def _busiest(own: Window, groups: list[GroupRow]) -> str:
    """The group in which the rank's own node moved most bytes, the first where nothing is known."""
    found = [f"{one.comm_id:016x}" for one in groups_of(own)]
    known = {group.comm_id for group in groups}
    return next((one for one in found if one in known), groups[0].comm_id)


def _drawn(
    window: Window,
    now: Window,
    span: Span,
    rank: int,
    groups: list[GroupRow],
    group: str,
    read_of: str,
    read: list[int],
) -> dict[str, Any]:
    comm_id = int(group, 16)
    times = finished_times(op_times(window, comm_id))
    is_custom = any(one.comm_id == comm_id and one.is_custom for one in groups_of(window))
    since = span.onset_ns if (times.start_ns >= span.onset_ns).any() else 0
    paths = paths_of(window, comm_id, by_peer=is_custom, since_ns=since)
    n_ranks = next((one.n_ranks for one in groups if one.comm_id == group), 0)
    standing = standing_ops(now)
    unfinished = unfinished_of(now, standing, comm_id, read, len(read) if read_of else max(n_ranks, len(read)))
    return {
        "rank": rank, "groups": _with_unfinished(groups, by_group(standing, rank)), "group": group, "is_custom": is_custom,
        "started_at": iso_from_ns(span.start_ns), "ended_at": iso_from_ns(span.end_ns),
        "unfinished": dataclasses.asdict(unfinished), "counted": _counted(times, since, span.onset_ns),
        "measured": _measured(window, comm_id, read_of),
        "ranks": figures.rank_rows(times, since, by_rank(standing, comm_id)),
        "times": figures.times_figure(times, since, n_ranks),
        "rates": figures.rates_figure(times, figures.drawn_ranks(times, rank, since)),
        "paths": figures.paths_figure(paths, n_ranks, by_peer=is_custom),
        "matrix": figures.matrix_figure(paths) if is_custom else None,
    }  # fmt: skip


def _with_unfinished(groups: list[GroupRow], unfinished: dict[int, int]) -> list[dict[str, Any]]:
    return [{**dataclasses.asdict(one), "unfinished": unfinished.get(int(one.comm_id, 16), 0)} for one in groups]


def _counted(times: OpTimes, since_ns: int, onset_ns: int) -> dict[str, Any]:
    """Of which ops the comparison is. is_before: of those before the first symptom, as none has ended since."""
    kept = times.only(times.start_ns >= since_ns)
    first, last = (kept.start_ns.min(), kept.end_ns.max()) if len(kept.rank) else (0, 0)
    return {
        "n_ops": len(kept.rank), "started_at": iso_from_ns(int(first)) if first else None,
        "ended_at": iso_from_ns(int(last)) if last else None, "is_before": bool(onset_ns and not since_ns and len(kept.rank)),
    }  # fmt: skip


def _measured(window: Window, comm_id: int, read_of: str) -> dict[str, Any]:
    """What the pictures rest on, and what is missing in them."""
    rows = window.rows("traffic")
    mine = rows[rows["comm_id"] == comm_id]
    sight = sight_of(mine, window.rows("nic"))
    sources = [TRAFFIC_SOURCES[code] for code in sorted(set(mine["source"].tolist())) if code < len(TRAFFIC_SOURCES)]
    return {
        "n_rows": len(mine), "sources": sources, "incomplete_share": round(incomplete_share(window), 4),
        "left_out": left_out(window), "sight": sight.sentence if sight else "", "read_of": read_of,
        "unowned": unowned_of(window, comm_id), "volumes": dataclasses.asdict(volumes_of(window, comm_id)),
    }  # fmt: skip


def _nothing(rank: int | None, groups: list[GroupRow], group: str) -> dict[str, Any]:
    """Nobody, or no group of theirs, is known."""
    empty: dict[str, Any] = {"data": [], "layout": {}, "config": {}, "text": ""}
    return {
        "rank": rank, "groups": [dataclasses.asdict(one) for one in groups], "group": group, "is_custom": False,
        "started_at": None, "ended_at": None, "unfinished": None, "counted": _counted(NO_TIMES, 0, 0),
        "measured": {
            "n_rows": 0, "sources": [], "incomplete_share": 0.0, "left_out": 0, "sight": "", "read_of": "",
            "unowned": {"share": 0.0, "n_ranks": 0, "ranks": []},
            "volumes": {"n_compared": 0, "n_other": 0, "n_unknown": 0, "says": ""},
        },
        "ranks": [], "times": empty, "rates": empty, "paths": empty, "matrix": None,
    }  # fmt: skip
