"""The REST API of the grid's colour layers. They are read when they are asked for, once for all who ask the same."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from django.core.cache import cache
from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import caller_of
from console.dashboard.given import Fields
from console.dashboard.job_api import find_job
from console.dashboard.schema import ERROR, schema_of
from console.incidents import read
from console.incidents.models import Incident
from console.incidents.pictures.answers import packed_answer
from console.incidents.pictures.layers import LAYERS, By, Layer, pack_layer
from console.incidents.pictures.layers_read import asked_of, read_layer
from ingest.models import Attempt

KEPT_SECONDS: Final = 8
SETTLED_SECONDS: Final = 600
PAST_SECONDS: Final = 60
"""Of earlier moments there are many, and each is looked at for a moment."""
READING_SECONDS: Final = 60
"""So long after somebody began to read a layer nobody else begins."""
WAIT_SECONDS: Final = 15.0
TIMES_KEPT: Final = 3.0
POLL_SECONDS: Final = 0.1
QUERY: Final = [
    OpenApiParameter("by", str, enum=LAYERS, required=True, description="Which layer."),
    OpenApiParameter("at_ns", int, description="An earlier moment, unix ns; the newest if left out."),
]
ANSWERS: Final = {200: schema_of(Layer), 400: ERROR, 404: ERROR, 503: ERROR}
BUSY: Final = {"error": "This is still being read. Ask again in a moment.", "code": "busy"}


class LayerQuery(Fields):
    by = serializers.ChoiceField(choices=list(LAYERS))
    at_ns = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)


class IncidentLayer(APIView):
    @extend_schema("incident_grid_layer", parameters=QUERY, responses=ANSWERS)
    def get(self, request: Request, number: int) -> HttpResponse:
        """What colours the ranks of the incident's grid: op lag, class of stacks, bandwidth or lateness in stages."""
        incident = read.find_incident(number, caller_of(request.user).team_ids)
        return _answer(request, incident.attempt, incident)


class JobLayer(APIView):
    @extend_schema("job_grid_layer", parameters=QUERY, responses=ANSWERS)
    def get(self, request: Request, job_id: int) -> HttpResponse:
        """The same of the job's newest attempt."""
        job = find_job(caller_of(request.user), job_id)
        return _answer(request, Attempt.objects.filter(job=job).latest("number"), None)


def _answer(request: Request, attempt: Attempt, incident: Incident | None) -> HttpResponse:
    given = LayerQuery(data=request.GET.dict())
    given.is_valid(raise_exception=True)
    by: By = given.validated_data["by"]
    at_ns: int | None = given.validated_data.get("at_ns")
    asked = asked_of(attempt, incident, at_ns)
    of = f"incident:{incident.pk}:{incident.condition}" if incident is not None else f"attempt:{attempt.pk}"
    seconds = KEPT_SECONDS if not asked.is_settled else SETTLED_SECONDS if at_ns is None else PAST_SECONDS
    packed = _once(f"layer:{of}:{by}:{at_ns}", seconds, lambda: pack_layer(read_layer(by, asked)))
    if packed is None:
        return Response(BUSY, 503, headers={"Retry-After": "2"})
    return packed_answer(request, packed)


def _once(key: str, seconds: float, make: Callable[[], bytes]) -> bytes | None:
    """What is kept, or what is made now; while somebody else makes it: theirs, or None when that takes long.

    Kept for as long as is said, and what took long for longer: pages ask again and again.
    """
    give_up_at = time.monotonic() + WAIT_SECONDS
    found: Any = cache.get(key)
    while found is None and not cache.add(f"{key}:reading", 1, READING_SECONDS):
        if time.monotonic() > give_up_at:
            return None
        time.sleep(POLL_SECONDS)
        found = cache.get(key)
    if found is not None:
        return bytes(found)
    began = time.monotonic()
    try:
        made = make()
        cache.set(key, made, max(seconds, TIMES_KEPT * (time.monotonic() - began)))
    finally:
        cache.delete(f"{key}:reading")
    return made
