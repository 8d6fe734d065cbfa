"""The REST API of jobs over time, ranks, nodes, recurrence, and every look of the trigger."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from django.utils import timezone
from django.utils.decorators import method_decorator
from django.views.decorators.gzip import gzip_page
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import caller_of
from console.dashboard import jobs
from console.dashboard.job_api import find_job
from console.dashboard.jobs import NodeRow
from console.dashboard.schema import ERROR, an_object
from console.fleet import nodes as node_page
from console.fleet.job_figures import MINUTES, job_figures
from console.fleet.looks import Looked, read_looks
from console.fleet.losses import Losses, read_losses
from console.fleet.ranks import RankNow, find_rank, ops_figure, rank_now
from console.fleet.recurrence import DAYS_MAX, Recurrences, read_recurrences
from console.incidents.lifecycle import BadAct
from console.incidents.live import IncidentRow
from console.incidents.rows import iso
from ingest.models import Attempt, Node
from ingest.sums.summed import TooMuch

DAYS: Final = 30
FIGURE: Final = an_object(data=list[dict[str, Any]], layout=dict[str, Any], config=dict[str, Any], text=str)
DAYS_GIVEN: Final = OpenApiParameter("days", int, description=f"{DAYS} if left out, {DAYS_MAX} at most.")


class FiguresQuery(serializers.Serializer[Any]):
    minutes = serializers.ChoiceField(MINUTES, required=False, default=MINUTES[0])


class LooksQuery(serializers.Serializer[Any]):
    before = serializers.IntegerField(min_value=1, max_value=2**63 - 1, required=False)
    saw_something = serializers.BooleanField(required=False, default=False)


class DaysQuery(serializers.Serializer[Any]):
    days = serializers.IntegerField(min_value=1, max_value=DAYS_MAX, required=False, default=DAYS)


@method_decorator(gzip_page, name="dispatch")
class JobFigures(APIView):
    @extend_schema(
        "job_figures",
        parameters=[OpenApiParameter("minutes", int, enum=list(MINUTES))],
        responses={
            200: an_object(server_at=str, minutes=int, steps=FIGURE, communication=FIGURE, bandwidth=FIGURE, losses=Losses),
            400: ERROR, 404: ERROR,
        },
    )  # fmt: skip
    def get(self, request: Request, job_id: int) -> Response:
        """The job over time: length of steps, communication, bandwidth by kind of op, and what of its traces was lost."""
        minutes = _asked(FiguresQuery, request)["minutes"]
        attempt = _newest(request, job_id)
        try:
            figures = job_figures(attempt, minutes)
        except TooMuch as error:
            raise BadAct(f"{error} Choose a shorter time.") from error
        losses = dataclasses.asdict(read_losses(attempt))
        return Response({"server_at": iso(timezone.now()), "minutes": minutes, **figures, "losses": losses})


@method_decorator(gzip_page, name="dispatch")
class JobLooks(APIView):
    @extend_schema(
        "job_looks",
        parameters=[
            OpenApiParameter("before", int, description="`older` of the page before"),
            OpenApiParameter("saw_something", bool, description="Only looks at which something was wrong, or that failed."),
        ],
        responses={200: an_object(server_at=str, looks=list[Looked], older=int | None), 400: ERROR, 404: ERROR},
    )  # fmt: skip
    def get(self, request: Request, job_id: int) -> Response:
        """Every look of the trigger that is still kept (two days, a thousand), newest first, and what it saw."""
        asked = _asked(LooksQuery, request)
        found, older = read_looks(_newest(request, job_id), asked.get("before"), asked["saw_something"])
        rows = [dataclasses.asdict(one) for one in found]
        return Response({"server_at": iso(timezone.now()), "looks": rows, "older": older})


@method_decorator(gzip_page, name="dispatch")
class JobRank(APIView):
    @extend_schema(
        "job_rank",
        responses={200: an_object(server_at=str, job=str, attempt=int, rank=RankNow, ops=FIGURE, blamed=Recurrences), 404: ERROR},
    )  # fmt: skip
    def get(self, request: Request, job_id: int, rank: int) -> Response:
        """One rank of the newest attempt: where it runs, how far it is, its flows, its ops, and who was blamed there before."""
        attempt = _newest(request, job_id)
        row = find_rank(attempt, rank)
        blamed = read_recurrences(caller_of(request.user).team_ids, DAYS, [row.node.name])
        return Response(
            {
                "server_at": iso(timezone.now()), "job": attempt.job.name, "attempt": attempt.number,
                "rank": dataclasses.asdict(rank_now(attempt, row)), "ops": ops_figure(attempt, rank),
                "blamed": dataclasses.asdict(blamed),
            }
        )  # fmt: skip


@method_decorator(gzip_page, name="dispatch")
class NodeDetail(APIView):
    @extend_schema(
        "node_read",
        parameters=[DAYS_GIVEN],
        responses={
            200: an_object(
                server_at=str, name=str, nodes=list[NodeRow], ranks=list[node_page.RankOnNode], incidents=list[IncidentRow],
                traffic=FIGURE, blamed=Recurrences,
            ),
            400: ERROR, 404: ERROR,
        },
    )  # fmt: skip
    def get(self, request: Request, name: str) -> Response:
        """One node in the newest attempts that ran on it: its ranks, its NICs' traffic, its incidents."""
        asked, teams = _asked(DaysQuery, request), caller_of(request.user).team_ids
        found = node_page.attempts_on(teams, name)
        if not found:
            raise Node.DoesNotExist
        incidents = [dataclasses.asdict(row) for row in node_page.incidents_at(teams, name)]
        return Response(
            {
                "server_at": iso(timezone.now()), "name": name,
                "nodes": [dataclasses.asdict(row) for row in node_page.rows_of(found)],
                "ranks": [dataclasses.asdict(row) for row in node_page.ranks_on(found)], "incidents": incidents,
                "traffic": node_page.traffic_figure(found[0]),
                "blamed": dataclasses.asdict(read_recurrences(teams, asked["days"], [name])),
            }
        )  # fmt: skip


class Recurrence(APIView):
    @extend_schema(
        "recurrence", parameters=[DAYS_GIVEN], responses={200: an_object(server_at=str, blamed=Recurrences), 400: ERROR}
    )
    def get(self, request: Request) -> Response:
        """Nodes, GPUs and NICs by how often somebody was blamed there."""
        days = _asked(DaysQuery, request)["days"]
        found = read_recurrences(caller_of(request.user).team_ids, days)
        return Response({"server_at": iso(timezone.now()), "blamed": dataclasses.asdict(found)})


def _asked(fields: type[serializers.Serializer[Any]], request: Request) -> dict[str, Any]:
    given = fields(data=request.query_params)
    given.is_valid(raise_exception=True)
    asked: dict[str, Any] = given.validated_data
    return asked


def _newest(request: Request, job_id: int) -> Attempt:
    """Of a job the caller may see. Attempt.DoesNotExist when nothing was ever heard of it."""
    found = jobs.newest_attempt(find_job(caller_of(request.user), job_id))
    if found is None:
        raise Attempt.DoesNotExist
    return found
