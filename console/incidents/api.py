"""The REST API of one incident: what it is, and what may be done. Acts: acts_api.py; lists: lists_api.py; pictures:
pictures_api.py. Views parse, call and serialise; what may be done is decided in lifecycle and access.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import Caller, caller_of
from console.dashboard.given import Fields
from console.dashboard.jobs import read_job_row
from console.dashboard.schema import ERROR, an_object
from console.incidents import lifecycle, read
from console.incidents.acts.handling import assignable
from console.incidents.lists.listing import Wanted, read_neighbours
from console.incidents.live import IncidentRow, JobRow, TimelineRow
from console.incidents.models import ActorKind, Incident, State
from console.incidents.pictures.export import incident_window, question_of, window_bytes
from console.incidents.presence import looking_at
from console.incidents.read import ReviewRow
from console.incidents.rows import incident_row, iso
from console.incidents.streams import Position, incident_stream, position, team_stream
from console.incidents.watching.seen_before import SeenBefore, read_seen_before
from console.operations.metrics import SNAPSHOTS

REQUEST_KEY_MAX: Final = 100
REQUEST_KEY: Final = OpenApiParameter(
    "Idempotency-Key", str, OpenApiParameter.HEADER, description="Repeating a request with the same key acts once."
)
STREAM: Final = an_object(name=str, epoch=str, offset=int)
STREAMS: Final = {"type": "array", "items": STREAM}


def stream_of(place: Position) -> dict[str, Any]:
    return dataclasses.asdict(place)


def team_streams(caller: Caller) -> dict[str, Any]:
    """`streams`: where each of the caller's teams' streams stands; `stream`: the first of them."""
    streams = [stream_of(position(team_stream(team_id))) for team_id in caller.team_ids]
    return {"stream": streams[0] if streams else stream_of(Position("", "", 0)), "streams": streams}


def request_key(request: Request) -> str:
    return str(request.headers.get("Idempotency-Key", ""))[:REQUEST_KEY_MAX]


def actor_of(caller: Caller) -> lifecycle.Actor:
    """The caller as timelines and histories name them."""
    return lifecycle.Actor(caller.name, ActorKind(caller.kind), caller.id)


class TimelineQuery(Fields):
    timeline_before = serializers.IntegerField(required=False, min_value=1, max_value=2**63 - 1)


class IncidentDetail(APIView):
    @extend_schema(
        operation_id="incident_read",
        parameters=[OpenApiParameter("timeline_before", int, description="An entry's id: the timeline before it.")],
        responses={
            200: an_object(
                stream=STREAM, server_at=str, incident=IncidentRow, job=JobRow,
                diagnosis=dict[str, Any] | None, diagnosis_id=int | None, revisions=list[read.RevisionRow],
                timeline=list[TimelineRow], timeline_left_out=int, may=list[str], previous=int | None, next=int | None,
                seen_before=list[SeenBefore], attached=list[IncidentRow], looking=list[str],
                review=ReviewRow | None, assignable=list[str],
                asked_at=str | None, pages=bool, dumps_wanted=list[str],
            ),
            400: ERROR,
            404: ERROR,
        },
    )  # fmt: skip
    def get(self, request: Request, number: int) -> Response:
        """One incident with its newest diagnosis and its timeline: the newest entries, with `timeline_before` older ones."""
        SNAPSHOTS.labels("incident").inc()
        caller = caller_of(request.user)
        stream = position(incident_stream(number))  # before the rows: what comes later is then sent once more
        incident = read.find_incident(number, caller.team_ids)
        revision = read.newest_revision(incident)
        before, after = read_neighbours(number, caller.team_ids, Wanted({}))
        review = read.read_review(incident)
        given = {name: request.GET[name] for name in ("timeline_before",) if request.GET.get(name)}
        asked = TimelineQuery(data=given)
        asked.is_valid(raise_exception=True)
        timeline, left_out = read.read_timeline(incident, asked.validated_data.get("timeline_before"))
        return Response(
            {
                "stream": stream_of(stream),
                "server_at": iso(timezone.now()),
                "incident": dataclasses.asdict(incident_row(incident)),
                "job": dataclasses.asdict(read_job_row(incident.job)),
                "diagnosis": revision and read.diagnosis_for_browser(revision.body),
                "diagnosis_id": revision and revision.number,
                "revisions": [dataclasses.asdict(row) for row in read.read_revisions(incident)],
                "timeline": [dataclasses.asdict(row) for row in timeline],
                "timeline_left_out": left_out,
                "may": acts_allowed(caller, incident),
                "previous": before,
                "next": after,
                "seen_before": [dataclasses.asdict(one) for one in read_seen_before(incident)],
                "attached": [dataclasses.asdict(incident_row(one)) for one in read.read_attached(incident)],
                "looking": looking_at(number),
                "review": review and dataclasses.asdict(review),
                "assignable": assignable(incident.team_id),
                "asked_at": iso(incident.asked_at),
                "pages": incident.pages,
                "dumps_wanted": incident.dumps_wanted,
            },
            headers={"ETag": f'"{incident.version}"'},
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


def acts_allowed(caller: Caller, incident: Incident) -> list[str]:
    """What this caller may do with the incident now."""
    legal = [verb for verb, (allowed, _) in lifecycle.MOVES.items() if incident.state in allowed]
    legal += ["comment", "diagnose", "assign", "silence", "review"]
    if incident.attached_to_id is not None:
        legal.append("detach")
    elif incident.state != State.RESOLVED and not incident.n_attached:
        legal.append("attach")
    return [verb for verb in legal if caller.may(verb, incident.team_id)]


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
