"""The REST API of an incident's pictures: the grid of ranks, who stood still when, the lanes of flows."""

from __future__ import annotations

import dataclasses
from typing import Any

from django.http import HttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.gzip import gzip_page
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import caller_of
from console.dashboard.given import Fields
from console.dashboard.schema import ERROR, schema_of
from console.incidents import read
from console.incidents.pictures.answers import packed_answer
from console.incidents.pictures.evidence import incident_grid, incident_lanes, incident_standing
from console.incidents.pictures.grid import Grid
from console.incidents.pictures.lanes import LANES_ASKED_MAX, LANES_MAX, Lanes
from console.incidents.pictures.topology import PACKED, pack_unstreamed, packed_grid
from console.incidents.streams import UNREACHABLE
from rca.hang.standing import Standing


class LaneQuery(Fields):
    from_ns = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    to_ns = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    ranks = serializers.RegexField(r"^\d{1,6}(,\d{1,6}){0,63}$", required=False)
    limit = serializers.IntegerField(required=False, min_value=1, max_value=LANES_ASKED_MAX, default=LANES_MAX)


class TimeQuery(Fields):
    from_ns = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    to_ns = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)


@method_decorator(gzip_page, name="dispatch")
class IncidentGrid(APIView):
    @extend_schema(operation_id="incident_grid", responses={200: schema_of(Grid), 404: ERROR})
    def get(self, request: Request, number: int) -> Response:
        """The state of every rank of the incident's job, as columns."""
        incident = read.find_incident(number, caller_of(request.user).team_ids)
        return Response(dataclasses.asdict(incident_grid(incident)))


class IncidentTopology(APIView):
    @extend_schema(
        operation_id="incident_topology",
        responses={200: PACKED, 404: ERROR},
    )
    def get(self, request: Request, number: int) -> HttpResponse:
        """The grid as it was drawn last, at once at any size: columns of texts are numbered. `stream` names the stream of the
        live socket that tells what changes, and where in it the grid stands; the console's docs have the frames."""
        incident = read.find_incident(number, caller_of(request.user).team_ids)
        try:
            packed = packed_grid(incident)
        except UNREACHABLE:
            packed = pack_unstreamed(incident)
        return packed_answer(request, packed)


@method_decorator(gzip_page, name="dispatch")
class IncidentLanes(APIView):
    @extend_schema(
        operation_id="incident_lanes",
        parameters=[
            OpenApiParameter("from_ns", int),
            OpenApiParameter("to_ns", int),
            OpenApiParameter("ranks", str, description="Comma-separated; culprits and first victims if left out."),
            OpenApiParameter(
                "limit", int, description=f"Flows at most; {LANES_MAX} if left out, {LANES_ASKED_MAX} at most."
            ),
        ],
        responses={200: schema_of(Lanes), 400: ERROR, 404: ERROR},
    )
    def get(self, request: Request, number: int) -> Response:
        """Progress of flows over time, as columns per flow."""
        incident = read.find_incident(number, caller_of(request.user).team_ids)
        asked = _asked(LaneQuery, request)
        ranks = [int(rank) for rank in asked.get("ranks", "").split(",") if rank]
        found = incident_lanes(incident, asked.get("from_ns"), asked.get("to_ns"), ranks, asked["limit"])
        return Response(dataclasses.asdict(found))


@method_decorator(gzip_page, name="dispatch")
class IncidentStanding(APIView):
    @extend_schema(
        operation_id="incident_standing",
        parameters=[OpenApiParameter("from_ns", int), OpenApiParameter("to_ns", int)],
        responses={200: schema_of(Standing), 400: ERROR, 404: ERROR},
    )
    def get(self, request: Request, number: int) -> Response:
        """What each rank did over time, and in which condition of Table 4 it stood still; culprits first."""
        incident = read.find_incident(number, caller_of(request.user).team_ids)
        asked = _asked(TimeQuery, request)
        return Response(dataclasses.asdict(incident_standing(incident, asked.get("from_ns"), asked.get("to_ns"))))


def _asked(fields: type[Fields], request: Request) -> dict[str, Any]:
    given = fields(data={name: request.GET[name] for name in fields().fields if request.GET.get(name)})
    given.is_valid(raise_exception=True)
    asked: dict[str, Any] = given.validated_data
    return asked
