"""The REST API of incidents. Views parse, call and serialise; what may be done is decided in lifecycle and access."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Final

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.utils import timezone
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
from console.dashboard.jobs import read_job_row
from console.dashboard.schema import ERROR, an_object, schema_of
from console.incidents import asking, lifecycle, read
from console.incidents.evidence import incident_grid, incident_lanes
from console.incidents.export import incident_window, question_of, window_bytes
from console.incidents.grid import Grid
from console.incidents.lanes import Lanes
from console.incidents.live import IncidentRow, JobRow, TimelineRow
from console.incidents.models import ActorKind, Incident
from console.incidents.rows import incident_row, iso, timeline_row
from console.incidents.seen_before import SeenBefore, read_seen_before
from console.incidents.streams import Position, incident_stream, position, team_stream
from console.operations.metrics import SNAPSHOTS

REQUEST_KEY_MAX: Final = 100
STREAM: Final = an_object(name=str, epoch=str, offset=int)
STREAMS: Final = {"type": "array", "items": STREAM}
ACTED: Final = an_object(incident=IncidentRow, entry=TimelineRow)
CONFLICT: Final = {**ERROR, "properties": {**ERROR["properties"], "incident": schema_of(IncidentRow)}}
ACT_ANSWERS: Final = {200: ACTED, 400: ERROR, 403: ERROR, 404: ERROR, 409: CONFLICT}
REQUEST_KEY: Final = OpenApiParameter(
    "Idempotency-Key", str, OpenApiParameter.HEADER, description="Repeating a request with the same key acts once."
)


def stream_of(place: Position) -> dict[str, Any]:
    return dataclasses.asdict(place)


def team_streams(caller: Caller) -> dict[str, Any]:
    """`streams`: where each of the caller's teams' streams stands; `stream`: the first of them."""
    streams = [stream_of(position(team_stream(team_id))) for team_id in caller.team_ids]
    return {"stream": streams[0] if streams else stream_of(Position("", "", 0)), "streams": streams}


def actor_of(caller: Caller) -> lifecycle.Actor:
    """The caller as timelines and histories name them."""
    return lifecycle.Actor(caller.name, ActorKind(caller.kind), caller.id)


class IncidentList(APIView):
    @extend_schema(
        operation_id="incidents_list",
        parameters=[
            OpenApiParameter("state", str, description="Comma-separated: open, acknowledged, resolved."),
            OpenApiParameter("symptom", str, description="Comma-separated symptom kinds."),
            OpenApiParameter("job", str, description="Comma-separated job names."),
            OpenApiParameter("q", str, description="Looked for in headlines, job names and numbers."),
            OpenApiParameter("page", int),
        ],
        responses={
            200: an_object(
                stream=STREAM, streams=STREAMS, server_at=str, total=int, page=int, pages=int,
                incidents=list[IncidentRow], facets=dict[str, dict[str, int]],
            )
        },
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """Incidents that match, newest first."""
        caller = caller_of(request.user)
        head = {**team_streams(caller), "server_at": iso(timezone.now())}
        filters = {name: [part for part in request.GET.get(name, "").split(",") if part] for name in read.FACETS}
        page = request.GET.get("page", "1")
        number = int(page) if page.isdecimal() and len(page) < 7 else 1
        found = read.read_page(caller.team_ids, filters, request.GET.get("q", "").strip()[:200], number)
        return Response({**head, **dataclasses.asdict(found)})


class IncidentDetail(APIView):
    @extend_schema(
        operation_id="incident_read",
        responses={
            200: an_object(
                stream=STREAM, server_at=str, incident=IncidentRow, job=JobRow,
                diagnosis=dict[str, Any] | None, diagnosis_id=int | None, revisions=list[read.RevisionRow],
                timeline=list[TimelineRow], may=list[str], previous=int | None, next=int | None,
                seen_before=list[SeenBefore],
                asked_at=str | None, pages=bool, dumps_wanted=list[str],
            ),
            404: ERROR,
        },
    )  # fmt: skip
    def get(self, request: Request, number: int) -> Response:
        """One incident with its newest diagnosis and its timeline."""
        SNAPSHOTS.labels("incident").inc()
        caller = caller_of(request.user)
        stream = position(incident_stream(number))  # before the rows: what comes later is then sent once more
        incident = read.find_incident(number, caller.team_ids)
        revision = read.newest_revision(incident)
        before, after = read.read_neighbours(incident, caller.team_ids)
        return Response(
            {
                "stream": stream_of(stream),
                "server_at": iso(timezone.now()),
                "incident": dataclasses.asdict(incident_row(incident)),
                "job": dataclasses.asdict(read_job_row(incident.job)),
                "diagnosis": revision and read.diagnosis_for_browser(revision.body),
                "diagnosis_id": revision and revision.number,
                "revisions": [dataclasses.asdict(row) for row in read.read_revisions(incident)],
                "timeline": [dataclasses.asdict(row) for row in read.read_timeline(incident)],
                "may": acts_allowed(caller, incident),
                "previous": before,
                "next": after,
                "seen_before": [dataclasses.asdict(one) for one in read_seen_before(incident)],
                "asked_at": iso(incident.asked_at),
                "pages": incident.pages,
                "dumps_wanted": incident.dumps_wanted,
            }
        )


class IncidentDiagnosis(APIView):
    @extend_schema(
        operation_id="incident_diagnosis",
        responses={200: an_object(id=int, at=str, diagnosis=dict[str, Any]), 404: ERROR},
    )
    def get(self, request: Request, number: int, revision: int) -> Response:
        """One revision of an incident's diagnosis, as it was when it was made."""
        incident = read.find_incident(number, caller_of(request.user).team_ids)
        found = incident.revisions.get(number=revision)
        return Response({"id": found.number, "at": iso(found.at), "diagnosis": read.diagnosis_for_browser(found.body)})


class ActFields(Fields):
    """`version`: the incident's version you saw."""

    version = serializers.IntegerField(min_value=1)
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=lifecycle.NOTE_CHARS_MAX)


class ResolveFields(Fields):
    version = serializers.IntegerField(min_value=1)
    reason = serializers.CharField(max_length=lifecycle.NOTE_CHARS_MAX)


class AgainFields(Fields):
    note = serializers.CharField(required=False, allow_blank=True, default="", max_length=lifecycle.NOTE_CHARS_MAX)


class CommentFields(Fields):
    text = serializers.CharField(max_length=lifecycle.NOTE_CHARS_MAX)


class LaneQuery(Fields):
    from_ns = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    to_ns = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    ranks = serializers.RegexField(r"^\d{1,6}(,\d{1,6}){0,63}$", required=False)


class _Act(APIView):
    """One verb on one incident."""

    verb: ClassVar[str]
    fields: ClassVar[type[serializers.Serializer[Any]]] = ActFields

    def act(self, request: Request, number: int) -> Response:
        caller = caller_of(request.user)
        incident = read.find_incident(number, caller.team_ids)
        if not caller.may(self.verb, incident.team_id):
            raise PermissionDenied
        given = self.fields(data=request.data)
        given.is_valid(raise_exception=True)
        actor = actor_of(caller)
        key = request.headers.get("Idempotency-Key", "")[:REQUEST_KEY_MAX]
        changed, entry = self.call(number, actor, key, given.validated_data)
        changed = read.find_incident(changed.pk, caller.team_ids)
        return Response(
            {"incident": dataclasses.asdict(incident_row(changed)), "entry": dataclasses.asdict(timeline_row(entry))}
        )

    def call(self, number: int, actor: lifecycle.Actor, key: str, given: dict[str, Any]) -> Any:
        note = given.get("reason") or given.get("note", "")
        return lifecycle.move(number, self.verb, actor, version=given["version"], note=note, request_key=key)


class Acknowledge(_Act):
    verb = "acknowledge"

    @extend_schema("incident_acknowledge", request=ActFields, responses=ACT_ANSWERS, parameters=[REQUEST_KEY])
    def post(self, request: Request, number: int) -> Response:
        """Say that you are on it."""
        return self.act(request, number)


class Unacknowledge(_Act):
    verb = "unacknowledge"

    @extend_schema("incident_unacknowledge", request=ActFields, responses=ACT_ANSWERS, parameters=[REQUEST_KEY])
    def post(self, request: Request, number: int) -> Response:
        """Hand it back: nobody is on it."""
        return self.act(request, number)


class Resolve(_Act):
    verb = "resolve"
    fields = ResolveFields

    @extend_schema("incident_resolve", request=ResolveFields, responses=ACT_ANSWERS, parameters=[REQUEST_KEY])
    def post(self, request: Request, number: int) -> Response:
        """Close it, with the reason."""
        return self.act(request, number)


class Reopen(_Act):
    verb = "reopen"

    @extend_schema("incident_reopen", request=ActFields, responses=ACT_ANSWERS, parameters=[REQUEST_KEY])
    def post(self, request: Request, number: int) -> Response:
        """Open a resolved incident again."""
        return self.act(request, number)


class Comment(_Act):
    verb = "comment"
    fields = CommentFields

    @extend_schema("incident_comment", request=CommentFields, responses=ACT_ANSWERS, parameters=[REQUEST_KEY])
    def post(self, request: Request, number: int) -> Response:
        """Add a comment to the timeline."""
        return self.act(request, number)

    def call(self, number: int, actor: lifecycle.Actor, key: str, given: dict[str, Any]) -> Any:
        return lifecycle.comment(number, actor, given["text"], key)


class DiagnoseAgain(_Act):
    verb = "diagnose"
    fields = AgainFields

    @extend_schema(
        "incident_diagnose", request=AgainFields, responses={**ACT_ANSWERS, 429: ERROR}, parameters=[REQUEST_KEY]
    )
    def post(self, request: Request, number: int) -> Response:
        """Diagnose it again from its pinned traces, by today's rules and thresholds; the answer is in the timeline."""
        return self.act(request, number)

    def call(self, number: int, actor: lifecycle.Actor, key: str, given: dict[str, Any]) -> Any:
        return asking.diagnose_again(number, actor, given["note"], key)


def acts_allowed(caller: Caller, incident: Incident) -> list[str]:
    """What this caller may do with the incident now."""
    legal = [verb for verb, (allowed, _) in lifecycle.MOVES.items() if incident.state in allowed]
    return [verb for verb in [*legal, "comment", "diagnose"] if caller.may(verb, incident.team_id)]


@method_decorator(gzip_page, name="dispatch")
class IncidentGrid(APIView):
    @extend_schema(operation_id="incident_grid", responses={200: schema_of(Grid), 404: ERROR})
    def get(self, request: Request, number: int) -> Response:
        """The state of every rank of the incident's job, as columns."""
        incident = read.find_incident(number, caller_of(request.user).team_ids)
        return Response(dataclasses.asdict(incident_grid(incident)))


@method_decorator(gzip_page, name="dispatch")
class IncidentLanes(APIView):
    @extend_schema(
        operation_id="incident_lanes",
        parameters=[
            OpenApiParameter("from_ns", int),
            OpenApiParameter("to_ns", int),
            OpenApiParameter("ranks", str, description="Comma-separated; culprits and first victims if left out."),
        ],
        responses={200: schema_of(Lanes), 400: ERROR, 404: ERROR},
    )
    def get(self, request: Request, number: int) -> Response:
        """Progress of flows over time, as columns per flow."""
        incident = read.find_incident(number, caller_of(request.user).team_ids)
        given = LaneQuery(data={name: request.GET[name] for name in LaneQuery().fields if request.GET.get(name)})
        given.is_valid(raise_exception=True)
        asked = given.validated_data
        ranks = [int(rank) for rank in asked.get("ranks", "").split(",") if rank]
        return Response(dataclasses.asdict(incident_lanes(incident, asked.get("from_ns"), asked.get("to_ns"), ranks)))


class WindowQuery(Fields):
    seconds = serializers.IntegerField(required=False)


class IncidentWindow(APIView):
    @extend_schema(
        operation_id="incident_window",
        parameters=[
            OpenApiParameter("seconds", int, description="How much time it covers; left out: as its diagnosis.")
        ],
        responses={(200, "application/octet-stream"): OpenApiTypes.BINARY, 400: ERROR, 403: ERROR, 404: ERROR},
    )
    def get(self, request: Request, number: int) -> HttpResponse:
        """The traces around the incident as a file for `python -m rca`. Only who may act may take traces away."""
        caller = caller_of(request.user)
        incident = read.find_incident(number, caller.team_ids)
        if not caller.may("export", incident.team_id):
            raise PermissionDenied
        given = WindowQuery(data=request.GET.dict())
        given.is_valid(raise_exception=True)
        body = window_bytes(incident_window(incident, given.validated_data.get("seconds")), question_of(incident))
        disposition = f'attachment; filename="incident-{incident.pk}.npz"'
        return HttpResponse(body, content_type="application/octet-stream", headers={"Content-Disposition": disposition})
