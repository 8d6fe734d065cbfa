"""The REST API of one question: why was this rank not blamed?"""

from __future__ import annotations

import time
from typing import Any, Final

from django.core.cache import cache
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import APIException
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import Caller, caller_of
from console.celery import app
from console.dashboard.given import Fields
from console.dashboard.kept import AWAY
from console.dashboard.schema import ERROR, schema_of
from console.incidents import read
from console.incidents.lifecycle import BadAct, TooMany
from console.incidents.models import Incident
from console.incidents.pictures.why_not import WhyNot, ask_once, check_rank, key_of
from console.incidents.tasks import answer_why_not

CELERY: Final = app  # the application that tasks are sent by, in whichever process this is
RANK_MAX: Final = 10_000_000
WAIT_SECONDS: Final = 10.0
POLL_SECONDS: Final = 0.1
MINUTE_SECONDS: Final = 60
QUESTIONS_MAX: Final = 20
"""Of one caller in a minute, not counting those whose answer is known."""


class NobodyToAsk(APIException):
    status_code = 503
    default_detail = "Workers cannot be asked: Valkey does not answer."
    default_code = "valkey_away"
    wait = 5
    """Retry-After, seconds."""


class RankQuery(Fields):
    rank = serializers.IntegerField(min_value=0, max_value=RANK_MAX)


class IncidentWhyNot(APIView):
    @extend_schema(
        operation_id="incident_why_not",
        parameters=[OpenApiParameter("rank", int, required=True, description="A global rank of the incident's job.")],
        responses={200: schema_of(WhyNot), 400: ERROR, 404: ERROR, 429: ERROR, 503: ERROR},
    )
    def get(self, request: Request, number: int) -> Response:
        """Why the newest diagnosis does not blame this rank, with evidence."""
        caller = caller_of(request.user)
        incident = read.find_incident(number, caller.team_ids)
        given = RankQuery(data=request.GET.dict())
        given.is_valid(raise_exception=True)
        rank = given.validated_data["rank"]
        check_rank(incident, rank)
        try:
            said = _said(caller, incident, rank, key_of(incident, rank))
        except AWAY as away:
            raise NobodyToAsk from away
        if said is None:
            error = {"error": "The answer is still being worked out. Ask again in a moment.", "code": "busy"}
            return Response(error, 503, headers={"Retry-After": "2"})
        if "error" in said:
            raise BadAct(said["error"])
        return Response(said["answer"])


def _said(caller: Caller, incident: Incident, rank: int, key: str) -> dict[str, Any] | None:
    """Raises one of AWAY: workers are asked by way of Valkey."""
    said: dict[str, Any] | None = cache.get(key)
    if said is None:
        _count(caller)
        said = _ask_worker(incident, rank, key)
    return said


def _count(caller: Caller) -> None:
    """Raises TooMany."""
    key = f"why-not:{caller.kind}:{caller.id}:{int(time.time() // MINUTE_SECONDS)}"
    cache.add(key, 0, 2 * MINUTE_SECONDS)
    if cache.incr(key) > QUESTIONS_MAX:
        raise TooMany(f"At most {QUESTIONS_MAX} questions a minute.")


def _ask_worker(incident: Incident, rank: int, key: str) -> dict[str, Any] | None:
    """What a worker says within WAIT_SECONDS; None when it takes longer: it is kept, then."""
    if ask_once(key):
        answer_why_not.delay(incident.pk, rank, key)
    give_up_at = time.monotonic() + WAIT_SECONDS
    found: dict[str, Any] | None = None
    while (found := cache.get(key)) is None and time.monotonic() < give_up_at:
        time.sleep(POLL_SECONDS)
    return found
