"""The REST API of dumps: of an incident, and the same of a job that has none. Own team only; what is another's is not there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.http import StreamingHttpResponse
from django.utils.decorators import method_decorator
from django.views.decorators.gzip import gzip_page
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import Caller, caller_of
from console.dashboard.given import Fields
from console.dashboard.job_api import find_job
from console.dashboard.schema import ERROR, an_object
from console.dumps import shown
from console.dumps.asking import ask_by_hand
from console.dumps.taken_away import one_by_one, zipped
from console.dumps.wanted import requests_for
from console.incidents import read
from console.incidents.api import REQUEST_KEY, REQUEST_KEY_MAX, actor_of
from console.incidents.lifecycle import BadAct
from console.incidents.models import Incident
from ingest.door.dumps import RANKS_MAX, progress_of, requests_of
from ingest.models import Attempt, DumpRequest
from nccl_instrument.dumps import ALL_KINDS, RECORDER, STACKS

RANK_MAX: Final = 10_000_000
REQUEST: Final = OpenApiParameter(
    "request", int, description="Which request; the newest that brought something if left out."
)
REQUEST_ROW: Final = an_object(
    id=int, asked_at=str, asked_by=str, kinds=list[str], state=str, nodes_expected=int, nodes_answered=int,
    ranks_answered=int, silent=list[dict[str, Any]], silent_count=int, left_out=int,
)  # fmt: skip
DUMPS: Final = an_object(requests={"type": "array", "items": REQUEST_ROW}, can_ask=bool, why_not=str)
STACKS_ANSWER: Final = an_object(
    request=int | None, taken_at=str | None, looks=int, commands=list[dict[str, Any]], order=dict[str, Any],
    groups=list[dict[str, Any]], other_threads=list[dict[str, Any]], tree=dict[str, Any] | None,
    silent=list[dict[str, Any]], left_out=int,
)  # fmt: skip
RANK_ANSWER: Final = an_object(rank=int, processes=list[dict[str, Any]])
RECORDER_ANSWER: Final = an_object(
    request=int | None, version=str, backend=str, groups=list[dict[str, Any]], last_ops=list[dict[str, Any]],
    findings=list[dict[str, Any]], refused=dict[str, str], silent=list[dict[str, Any]], left_out=dict[str, int],
)  # fmt: skip
ASK_ANSWERS: Final = {201: REQUEST_ROW, 400: ERROR, 403: ERROR, 404: ERROR, 429: ERROR}


class AskFields(Fields):
    """`ranks`: left out for all."""

    kinds = serializers.ListField(child=serializers.ChoiceField(choices=list(ALL_KINDS)), required=False, min_length=1)
    ranks = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=RANK_MAX),
        required=False,
        min_length=1,
        max_length=RANKS_MAX,
    )
    request_key = serializers.CharField(required=False, max_length=REQUEST_KEY_MAX, allow_blank=True)


class DumpQuery(Fields):
    request = serializers.IntegerField(required=False, min_value=1, max_value=2**62)
    against = serializers.IntegerField(required=False, min_value=0, max_value=RANK_MAX)


@dataclass(frozen=True, slots=True)
class Source:
    """Whose dumps are meant: an incident's, or a job's newest attempt's."""

    team_id: int
    attempt_id: int
    requests: list[DumpRequest]
    incident: Incident | None = None


def incident_source(caller: Caller, number: int) -> Source:
    incident = read.find_incident(number, caller.team_ids)
    return Source(incident.team_id, incident.attempt_id, requests_for(incident), incident)


def job_source(caller: Caller, number: int) -> Source:
    job = find_job(caller, number)
    attempt = Attempt.objects.filter(job=job).latest("number")
    return Source(job.team_id, attempt.pk, requests_of(attempt.pk))


class _Dumps(APIView):
    """What incidents and jobs have in common."""

    def source(self, caller: Caller, number: int) -> Source:
        raise NotImplementedError

    def dumps(self, request: Request, number: int) -> Response:
        source = self.source(caller_of(request.user), number)
        answer = shown.dumps_answer(source.attempt_id, source.requests)
        if not caller_of(request.user).may("diagnose", source.team_id):
            answer |= {"can_ask": False, "why_not": answer["why_not"] or "Your role does not allow this."}
        return Response(answer)

    def ask(self, request: Request, number: int) -> Response:
        caller = caller_of(request.user)
        source = self.source(caller, number)
        if not caller.may("diagnose", source.team_id):
            raise PermissionDenied
        given = AskFields(data=request.data)
        given.is_valid(raise_exception=True)
        asked = given.validated_data
        key = asked.get("request_key") or request.headers.get("Idempotency-Key", "")[:REQUEST_KEY_MAX]
        made = ask_by_hand(
            source.attempt_id, actor_of(caller), asked.get("kinds"), asked.get("ranks"), key, source.incident
        )
        return Response(shown.request_row(made), 201)

    def stacks(self, request: Request, number: int) -> Response:
        source = self.source(caller_of(request.user), number)
        chosen = shown.chosen(source.requests, asked_of(request).get("request"), STACKS)
        return Response(shown.stacks_answer(source.attempt_id, chosen))

    def rank(self, request: Request, number: int, rank: int) -> Response:
        source, asked = self.source(caller_of(request.user), number), asked_of(request)
        chosen = shown.chosen(source.requests, asked.get("request"), STACKS)
        return Response(shown.rank_answer(chosen, min(rank, RANK_MAX), asked.get("against")))

    def recorder(self, request: Request, number: int) -> Response:
        source = self.source(caller_of(request.user), number)
        return Response(
            shown.recorder_answer(shown.chosen(source.requests, asked_of(request).get("request"), RECORDER))
        )


class _OfIncident(_Dumps):
    def source(self, caller: Caller, number: int) -> Source:
        return incident_source(caller, number)


class _OfJob(_Dumps):
    def source(self, caller: Caller, number: int) -> Source:
        return job_source(caller, number)


class IncidentDumps(_OfIncident):
    @extend_schema("incident_dumps", responses={200: DUMPS, 404: ERROR})
    def get(self, request: Request, number: int) -> Response:
        """Requests for stacks and Flight Recorder dumps of this incident, how far they are, and who gave none and why."""
        return self.dumps(request, number)

    @extend_schema("incident_dumps_ask", request=AskFields, responses=ASK_ANSWERS, parameters=[REQUEST_KEY])
    def post(self, request: Request, number: int) -> Response:
        """Ask the nodes for stacks and Flight Recorder dumps now."""
        return self.ask(request, number)


class IncidentDumpsFile(_OfIncident):
    @extend_schema(
        "incident_dumps_file",
        parameters=[REQUEST],
        responses={(200, "application/zip"): OpenApiTypes.BINARY, 400: ERROR, 403: ERROR, 404: ERROR},
    )
    def get(self, request: Request, number: int) -> StreamingHttpResponse:
        """What came for a request as a zip for `python -m rca bundle`. Only who may act may take dumps away."""
        caller = caller_of(request.user)
        source = self.source(caller, number)
        if not caller.may("export", source.team_id):
            raise PermissionDenied
        chosen = shown.chosen(source.requests, asked_of(request).get("request"), STACKS)
        if chosen is None:
            raise DumpRequest.DoesNotExist
        progress = progress_of(chosen.pk)
        if not progress.ranks_answered and not progress.silent_count:
            raise BadAct("No node has answered yet, so there is nothing to take away.")
        name = f"incident-{number}-dumps-{chosen.pk}.zip"
        headers = {"Content-Disposition": f'attachment; filename="{name}"'}
        return StreamingHttpResponse(one_by_one(zipped(chosen)), content_type="application/zip", headers=headers)


class JobDumps(_OfJob):
    @extend_schema("job_dumps", responses={200: DUMPS, 404: ERROR})
    def get(self, request: Request, number: int) -> Response:
        """Requests for dumps of the job's newest attempt."""
        return self.dumps(request, number)

    @extend_schema("job_dumps_ask", request=AskFields, responses=ASK_ANSWERS, parameters=[REQUEST_KEY])
    def post(self, request: Request, number: int) -> Response:
        """Ask the nodes of this job for dumps, whether it has an incident or not."""
        return self.ask(request, number)


@method_decorator(gzip_page, name="dispatch")
class IncidentStacks(_OfIncident):
    @extend_schema("incident_stacks", parameters=[REQUEST], responses={200: STACKS_ANSWER, 404: ERROR})
    def get(self, request: Request, number: int) -> Response:
        """Python stacks of all ranks, grouped by kind of process and by what they do."""
        return self.stacks(request, number)


@method_decorator(gzip_page, name="dispatch")
class JobStacks(_OfJob):
    @extend_schema("job_stacks", parameters=[REQUEST], responses={200: STACKS_ANSWER, 404: ERROR})
    def get(self, request: Request, number: int) -> Response:
        """The same of a job."""
        return self.stacks(request, number)


AGAINST: Final = OpenApiParameter("against", int, description="Another rank to compare with instead of the majority.")


class IncidentRankStacks(_OfIncident):
    @extend_schema("incident_rank_stacks", parameters=[REQUEST, AGAINST], responses={200: RANK_ANSWER, 404: ERROR})
    def get(self, request: Request, number: int, rank: int) -> Response:
        """The stacks of one rank's processes as text, and how its trainer differs from the majority."""
        return self.rank(request, number, rank)


class JobRankStacks(_OfJob):
    @extend_schema("job_rank_stacks", parameters=[REQUEST, AGAINST], responses={200: RANK_ANSWER, 404: ERROR})
    def get(self, request: Request, number: int, rank: int) -> Response:
        """The same of a job."""
        return self.rank(request, number, rank)


@method_decorator(gzip_page, name="dispatch")
class IncidentRecorder(_OfIncident):
    @extend_schema("incident_recorder", parameters=[REQUEST], responses={200: RECORDER_ANSWER, 404: ERROR})
    def get(self, request: Request, number: int) -> Response:
        """The Flight Recorder, group by group: who is behind, who has not entered, and what follows."""
        return self.recorder(request, number)


@method_decorator(gzip_page, name="dispatch")
class JobRecorder(_OfJob):
    @extend_schema("job_recorder", parameters=[REQUEST], responses={200: RECORDER_ANSWER, 404: ERROR})
    def get(self, request: Request, number: int) -> Response:
        """The same of a job."""
        return self.recorder(request, number)


def asked_of(request: Request) -> dict[str, Any]:
    """Which request, and against which rank."""
    given = DumpQuery(data=request.GET.dict())
    given.is_valid(raise_exception=True)
    found: dict[str, Any] = given.validated_data
    return found
