"""The REST API of one question: why was this rank not blamed?"""

from __future__ import annotations

import dataclasses

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import caller_of
from console.dashboard.given import Fields
from console.dashboard.schema import ERROR, schema_of
from console.incidents import read
from console.incidents.why_not import WhyNot, why_not_rank

RANK_MAX = 10_000_000


class RankQuery(Fields):
    rank = serializers.IntegerField(min_value=0, max_value=RANK_MAX)


class IncidentWhyNot(APIView):
    @extend_schema(
        operation_id="incident_why_not",
        parameters=[OpenApiParameter("rank", int, required=True, description="A global rank of the incident's job.")],
        responses={200: schema_of(WhyNot), 400: ERROR, 404: ERROR},
    )
    def get(self, request: Request, number: int) -> Response:
        """Why the newest diagnosis does not blame this rank, with evidence."""
        incident = read.find_incident(number, caller_of(request.user).team_ids)
        given = RankQuery(data=request.GET.dict())
        given.is_valid(raise_exception=True)
        return Response(dataclasses.asdict(why_not_rank(incident, given.validated_data["rank"])))
