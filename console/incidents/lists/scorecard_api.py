"""The REST API of the scorecard."""

from __future__ import annotations

import dataclasses
from typing import Final

from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import caller_of
from console.dashboard.given import Fields
from console.dashboard.schema import ERROR, schema_of
from console.incidents.lists.scorecard import DAYS_MAX, Card, read_card

DAYS: Final = 30


class CardQuery(Fields):
    days = serializers.IntegerField(min_value=1, max_value=DAYS_MAX, required=False, default=DAYS)


class Scorecard(APIView):
    @extend_schema(
        operation_id="scorecard",
        parameters=[OpenApiParameter("days", int, description=f"Of how many days; {DAYS} when left out.")],
        responses={200: schema_of(Card), 400: ERROR},
    )
    def get(self, request: Request) -> Response:
        """How often the console was right, by what people found out afterwards, and how fast it was."""
        given = CardQuery(data=request.GET.dict())
        given.is_valid(raise_exception=True)
        card = read_card(caller_of(request.user).team_ids, given.validated_data["days"])
        return Response(dataclasses.asdict(card))
