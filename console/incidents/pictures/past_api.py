"""The REST API of the time scrubber: what moments there are, and the grid of ranks at one of them.

The grid is binary (past.py has its layout), as a page asks for it many times while somebody drags. Its ETag names what was
stored when it was made: asked again, nothing is read from the traces. What nothing can change any more may be kept.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from django.http import HttpResponse
from django.utils.cache import get_conditional_response
from django.utils.decorators import method_decorator
from django.views.decorators.gzip import gzip_page
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiExample, OpenApiParameter, OpenApiResponse, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import caller_of
from console.dashboard.given import Fields
from console.dashboard.job_api import find_job
from console.dashboard.schema import ERROR, schema_of
from console.incidents import read
from console.incidents.pictures.moments import Moments, incident_moments, job_moments
from console.incidents.pictures.past_read import Asked, incident_past, job_past
from ingest.models import Attempt

KEPT_SECONDS: Final = 24 * 3600
AT: Final = OpenApiParameter(
    "at_ns", int, required=True, description="The moment, unix ns; between the attempt's first and newest data.",
    examples=[OpenApiExample("a moment", 1_795_421_021_000_000_000)],
)  # fmt: skip
REVISION: Final = OpenApiParameter(
    "revision",
    int,
    description="Whose verdict blames; the newest diagnosis' if left out. With it, answers may be kept.",
)
UNCHANGED: Final = OpenApiResponse(description="As the answer whose ETag If-None-Match names.")
GRID: Final = {
    (200, "application/octet-stream"): OpenApiTypes.BINARY, 304: UNCHANGED, 400: ERROR, 404: ERROR,
}  # fmt: skip


class PastQuery(Fields):
    at_ns = serializers.IntegerField(min_value=0, max_value=2**63 - 1)
    revision = serializers.IntegerField(required=False, min_value=1, max_value=2**31 - 1)


class JobPastQuery(Fields):
    at_ns = serializers.IntegerField(min_value=0, max_value=2**63 - 1)


@method_decorator(gzip_page, name="dispatch")
class IncidentMoments(APIView):
    @extend_schema("incident_moments", responses={200: schema_of(Moments), 404: ERROR})
    def get(self, request: Request, number: int) -> Response:
        """Ten minutes around the incident: of which time traces are stored, and what happened when."""
        incident = read.find_incident(number, caller_of(request.user).team_ids)
        return Response(dataclasses.asdict(incident_moments(incident)))


@method_decorator(gzip_page, name="dispatch")
class IncidentGridAt(APIView):
    @extend_schema("incident_grid_at", parameters=[AT, REVISION], responses=GRID)
    def get(self, request: Request, number: int) -> HttpResponse:
        """The state of every rank at an earlier moment, from what is stored of that time; binary, see the console's docs."""
        incident = read.find_incident(number, caller_of(request.user).team_ids)
        asked = _given(PastQuery, request)
        past = incident_past(incident, asked["at_ns"], asked.get("revision"))
        return _answer(request, past, may_be_kept="revision" in asked)


@method_decorator(gzip_page, name="dispatch")
class JobMoments(APIView):
    @extend_schema("job_moments", responses={200: schema_of(Moments), 404: ERROR})
    def get(self, request: Request, job_id: int) -> Response:
        """The newest ten minutes of the job's newest attempt: of which time traces are stored, and what happened when."""
        return Response(dataclasses.asdict(job_moments(_newest_attempt(request, job_id))))


@method_decorator(gzip_page, name="dispatch")
class JobGridAt(APIView):
    @extend_schema("job_grid_at", parameters=[AT], responses=GRID)
    def get(self, request: Request, job_id: int) -> HttpResponse:
        """The same of a job's newest attempt."""
        return _answer(request, job_past(_newest_attempt(request, job_id), _given(JobPastQuery, request)["at_ns"]))


def _newest_attempt(request: Request, job_id: int) -> Attempt:
    """Attempt.DoesNotExist when nothing was ever heard of the job."""
    return Attempt.objects.filter(job=find_job(caller_of(request.user), job_id)).latest("number")


def _answer(request: Request, asked: Asked, may_be_kept: bool = False) -> HttpResponse:
    """A browser keeps it for whoever has its session; a proxy never does."""
    is_kept = may_be_kept and asked.is_settled
    headers = {"Cache-Control": f"private, max-age={KEPT_SECONDS}, immutable" if is_kept else "private, no-cache"}
    known = get_conditional_response(request._request, etag=asked.etag)
    if known is not None:
        return HttpResponse(status=304, headers={**headers, "ETag": asked.etag})
    return HttpResponse(asked.body(), content_type="application/octet-stream", headers={**headers, "ETag": asked.etag})


def _given(fields: type[Fields], request: Request) -> dict[str, Any]:
    given = fields(data=request.GET.dict())
    given.is_valid(raise_exception=True)
    found: dict[str, Any] = given.validated_data
    return found
