"""The REST API of stages: the windows of a job's newest attempt or of an incident, and one window in full."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

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
from console.incidents.models import ConditionState
from console.incidents.rows import iso_from_ns
from console.stages import figures
from console.stages.models import StagePacket
from console.stages.read import (
    AROUND_NS,
    WINDOWS_DEFAULT,
    WINDOWS_MAX,
    Recording,
    WindowRow,
    led_by,
    recording_of,
    role_of,
    roles_of,
    window_row,
    windows_of,
)
from console.stages.standing import standing_since_ns
from ingest.models import Attempt, Rank
from ingest.read import latest_data_ns
from rca.frontier.report import Label
from rca.frontier.summaries import SUMMARIES
from rca.frontier.words import MEANING, profile_commands

KEPT_SECONDS: Final = 10
KEPT_NS: Final = KEPT_SECONDS * 10**9
BEFORE_NS: Final = 10 * 60 * 10**9
FIGURE: Final = an_object(data=list[dict[str, Any]], layout=dict[str, Any], config=dict[str, Any], text=str)
WINDOWS: Final = an_object(
    recording=Recording, roles=list[str], role=str, windows=list[WindowRow], shares=FIGURE,
    led=list[dict[str, Any]], newest_moved=int | None, first_symptom_at=str | None, standing_since=str | None,
    standing_until=str | None, is_standing_known=bool,
)  # fmt: skip
WINDOW: Final = an_object(
    window=WindowRow, labels=list[dict[str, str]], report=dict[str, Any], verdict=dict[str, Any], closed=str,
    steps=FIGURE, ranks=FIGURE, median=FIGURE, by_stage=list[dict[str, Any]], summaries=dict[str, dict[str, float]],
    profile=dict[str, Any] | None,
)  # fmt: skip
QUERY: Final = [
    OpenApiParameter(
        "role", str, description="The group of ranks; if left out an incident's culprit's, else the first."
    ),
    OpenApiParameter("limit", int, description=f"Newest windows at most; {WINDOWS_DEFAULT} if left out."),
]


@dataclasses.dataclass(frozen=True, slots=True)
class AsAt:
    """As at when steps are asked whether they go on, unix ns of data time. is_past: what was seen then is over."""

    ns: int
    is_past: bool = False


class WindowQuery(Fields):
    role = serializers.CharField(required=False, max_length=200, allow_blank=True)
    limit = serializers.IntegerField(required=False, min_value=1, max_value=WINDOWS_MAX, default=WINDOWS_DEFAULT)


@method_decorator(gzip_page, name="dispatch")
class JobStages(APIView):
    @extend_schema("job_stages", parameters=QUERY, responses={200: WINDOWS, 400: ERROR, 404: ERROR})
    def get(self, request: Request, job_id: int) -> Response:
        """The windows of stages of the job's newest attempt, with the frontier's shares over time."""
        attempt = jobs.newest_attempt(find_job(caller_of(request.user), job_id))
        is_running = attempt is not None and attempt.state == Attempt.State.RUNNING
        at = AsAt(latest_data_ns(attempt.pk)) if attempt and is_running else None
        return Response(_windows(request, attempt, None, at))


@method_decorator(gzip_page, name="dispatch")
class IncidentStages(APIView):
    @extend_schema("incident_stages", parameters=QUERY, responses={200: WINDOWS, 400: ERROR, 404: ERROR})
    def get(self, request: Request, number: int) -> Response:
        """The same around an incident: from ten minutes before its first symptom to shortly after it was last seen."""
        incident = incident_read.find_incident(number, caller_of(request.user).team_ids)
        span = incident.first_symptom_ns - BEFORE_NS, max(incident.last_seen_ns, incident.triggered_ns) + AROUND_NS
        is_over = incident.condition == ConditionState.CLEAR or incident.attempt.state != Attempt.State.RUNNING
        at = AsAt(incident.last_seen_ns, is_past=True) if is_over else AsAt(latest_data_ns(incident.attempt_id))
        theirs = role_of(incident.attempt, incident.suspects[0], span) if incident.suspects else None
        found = _windows(request, incident.attempt, span, at, theirs)
        return Response({**found, "first_symptom_at": iso_from_ns(incident.first_symptom_ns)})


@method_decorator(gzip_page, name="dispatch")
class JobStageWindow(APIView):
    @extend_schema("job_stage_window", responses={200: WINDOW, 404: ERROR})
    def get(self, request: Request, job_id: int, window_id: int) -> Response:
        """One window: its labels in plain language, its steps, its ranks, and how to profile whom it points at."""
        job = find_job(caller_of(request.user), job_id)
        found = StagePacket.objects.filter(pk=window_id, attempt__job=job).first()
        if found is None:
            raise NotFound("There is no such window, or it is no longer kept.")
        return Response(_window(found))


def _windows(
    request: Request, attempt: Attempt | None, span: tuple[int, int] | None, at: AsAt | None, first: str | None = None
) -> dict[str, Any]:
    """first: the group that is shown unless another is asked for; None: the first."""
    query = WindowQuery(data=request.query_params)
    query.is_valid(raise_exception=True)
    roles = roles_of(attempt) if attempt else []
    role = query.validated_data.get("role", first or next(iter(roles), ""))
    packets = windows_of(attempt, role, span, query.validated_data["limit"]) if attempt else []
    recording = recording_of(attempt) if attempt else Recording(False, 0, "")
    return {
        "recording": dataclasses.asdict(recording), "roles": roles, "role": role,
        "windows": [dataclasses.asdict(window_row(one)) for one in packets], "shares": figures.shares_figure(packets),
        "led": _with_nodes(attempt, led_by(packets)) if attempt else [], "newest_moved": _newest_moved(packets),
        "first_symptom_at": None, **_standing(attempt, packets, at),
    }  # fmt: skip


def _standing(attempt: Attempt | None, packets: Sequence[StagePacket], at: AsAt | None) -> dict[str, Any]:
    """standing_until: where that is over, up to when it was seen. is_standing_known: false where steps may go on, or may not."""
    if attempt is None or not packets or at is None:
        return {"standing_since": None, "standing_until": None, "is_standing_known": True}
    since_ns = _standing_since(attempt, at, packets[-1].step_s)
    is_known = since_ns is not None or at.is_past
    until_ns = at.ns if since_ns and at.is_past else 0
    return {
        "standing_since": iso_from_ns(since_ns) if since_ns else None,
        "standing_until": iso_from_ns(until_ns) if until_ns else None, "is_standing_known": is_known,
    }  # fmt: skip


def _standing_since(attempt: Attempt, at: AsAt, step_s: float) -> int | None:
    key = f"standing:{attempt.pk}:{at.ns // KEPT_NS}:{at.is_past}:{step_s:.3f}"
    return kept_once(key, lambda: standing_since_ns(attempt, at.ns + 1, step_s, is_past=at.is_past), KEPT_SECONDS)


def _newest_moved(packets: Sequence[StagePacket]) -> int | None:
    """The window to show first."""
    return next((one.pk for one in reversed(packets) if one.verdict in ("routed", "unlocalised")), None)


def _with_nodes(attempt: Attempt, led: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A rank is not a node: beside each rank its node, and how many other ranks of that node led, too."""
    places = _places(attempt, [one["rank"] for one in led])
    nodes = [places.get(one["rank"], ("", 0))[0] for one in led]
    return [
        {**one, "node": node, "mates": nodes.count(node) - 1 if node else 0}
        for one, node in zip(led, nodes, strict=True)
    ]


def _places(attempt: Attempt, ranks: Sequence[int]) -> dict[int, tuple[str, int]]:
    """Rank → node and process number."""
    rows = Rank.objects.filter(attempt=attempt, rank__in=list(ranks), replaced=False).select_related("node")
    return {row.rank: (row.node.name, row.pid) for row in rows}


def _window(packet: StagePacket) -> dict[str, Any]:
    body, labels = packet.body, packet.body["report"]["labels"]
    return {
        "window": dataclasses.asdict(window_row(packet)),
        "labels": [{"label": one, "meaning": MEANING[Label(one)]} for one in labels],
        "report": body["report"], "verdict": body["verdict"], "closed": body["closed"],
        "steps": figures.waterfall_figure(body), "ranks": figures.ranks_figure(body),
        "median": figures.median_figure(body), "by_stage": body["by_stage"],
        "summaries": {name: body["summaries"][name] for name in SUMMARIES if name in body["summaries"]},
        "profile": _profile(packet),
    }  # fmt: skip


def _profile(packet: StagePacket) -> dict[str, Any] | None:
    """Whom to profile, and the commands; None where nobody stands out."""
    rank = packet.leader
    if rank is None:
        return None
    node, pid = _places(packet.attempt, [rank]).get(rank, ("", 0))
    commands = profile_commands(packet.stage, rank, node, pid, packet.last_step)
    return {"rank": rank, "node": node, "pid": pid or None, "stage": packet.stage, "commands": commands}
