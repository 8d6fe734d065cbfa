"""The REST API of the grid's colour layers. They are read when they are asked for, once for all who ask the same."""

from __future__ import annotations

import threading
from typing import Final

from django.http import HttpResponse
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.views import APIView

from console.accounts.access import caller_of
from console.dashboard.given import Fields
from console.dashboard.job_api import find_job
from console.dashboard.kept import Busy, kept_once
from console.dashboard.schema import ERROR, schema_of
from console.incidents import read
from console.incidents.models import Incident
from console.incidents.pictures.answers import packed_answer
from console.incidents.pictures.layers import LAYERS, By, Layer, pack_layer
from console.incidents.pictures.layers_read import Asked, asked_of, read_layer
from ingest.models import Attempt

KEPT_SECONDS: Final = 8
SETTLED_SECONDS: Final = 600
PAST_SECONDS: Final = 60
"""Of earlier moments there are many, and each is looked at for a moment."""
WAIT_SECONDS: Final = 5.0
_reading = threading.BoundedSemaphore(1)
"""Of a large job a layer is hundreds of megabytes for seconds: a process that also takes acknowledgements reads one at a time."""
QUERY: Final = [
    OpenApiParameter("by", str, enum=LAYERS, required=True, description="Which layer."),
    OpenApiParameter("at_ns", int, description="An earlier moment, unix ns; the newest if left out."),
]
ANSWERS: Final = {200: schema_of(Layer), 400: ERROR, 404: ERROR, 503: ERROR}


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
    _, packed = kept_once(
        f"layer:{of}:{by}:{asked.at_ns}", lambda: _packed(by, asked), lambda made: _seconds(asked, made[0])
    )
    return packed_answer(request, packed)


def _packed(by: By, asked: Asked) -> tuple[bool, bytes]:
    """Whether it is settled, and the layer."""
    if not _reading.acquire(timeout=WAIT_SECONDS):
        raise Busy
    try:
        layer = read_layer(by, asked)
        return layer.is_settled, pack_layer(layer)
    finally:
        _reading.release()


def _seconds(asked: Asked, is_settled: bool) -> float:
    if not is_settled:
        return KEPT_SECONDS
    return SETTLED_SECONDS if asked.at_ns is None else PAST_SECONDS
