"""The REST API of what people do to incidents, to one or to many at once.

An act names the version that was seen: `version` in the body is refused only when somebody else acted since (409), the
header If-Match when anything at all has changed (412). Either answer holds the row as it is now.
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Final

from django.core.exceptions import PermissionDenied
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import Caller, caller_of
from console.dashboard.given import Fields
from console.dashboard.schema import ERROR, an_object, schema_of
from console.incidents import lifecycle, read
from console.incidents.acts import asking, handling
from console.incidents.acts.bulk import TARGETS_MAX, Outcome, act_on_many
from console.incidents.api import REQUEST_KEY, actor_of, request_key
from console.incidents.live import IncidentRow, TimelineRow
from console.incidents.models import Alarm, Verdict
from console.incidents.record import NOTE_CHARS_MAX, UNSEEN, Actor, BadAct, Seen
from console.incidents.rows import incident_row, timeline_row

VERSION_MAX: Final = 2**31 - 1
NUMBER_MAX: Final = 2**53
ACTED: Final = an_object(incident=IncidentRow, entry=TimelineRow)
CONFLICT: Final = {**ERROR, "properties": {**ERROR["properties"], "incident": schema_of(IncidentRow)}}
ACT_ANSWERS: Final = {200: ACTED, 400: ERROR, 403: ERROR, 404: ERROR, 409: CONFLICT, 412: CONFLICT}
HEADERS: Final = [
    REQUEST_KEY,
    OpenApiParameter(
        "If-Match", str, OpenApiParameter.HEADER, description="The ETag of the incident; instead of `version`."
    ),
]


def _note() -> serializers.CharField:
    return serializers.CharField(required=False, allow_blank=True, default="", max_length=NOTE_CHARS_MAX)


def _version() -> serializers.IntegerField:
    return serializers.IntegerField(min_value=1, max_value=VERSION_MAX, required=False)


class ActFields(Fields):
    """`version`: the incident's version you saw, refused (409) only when a person or script acted since."""

    version = _version()
    note = _note()


class AcknowledgeFields(ActFields):
    """`minutes`: after how long it ends by itself, 0 never; left out: as the server is set."""

    minutes = serializers.IntegerField(min_value=0, max_value=lifecycle.MINUTES_MAX, required=False)


class ResolveFields(Fields):
    version = _version()
    reason = serializers.CharField(max_length=NOTE_CHARS_MAX)


class AssignFields(ActFields):
    """`assignee`: who should handle it, empty for nobody."""

    assignee = serializers.CharField(allow_blank=True, max_length=150)


class AttachFields(ActFields):
    """`root`: the number of the incident it follows from."""

    root = serializers.IntegerField(min_value=1, max_value=NUMBER_MAX)


class AgainFields(Fields):
    note = _note()


class CommentFields(Fields):
    text = serializers.CharField(max_length=NOTE_CHARS_MAX)


class ReviewFields(Fields):
    """alarm: whether telling people was right; verdict: whether the right one was blamed; the rest: the true cause."""

    alarm = serializers.ChoiceField(Alarm.choices)
    verdict = serializers.ChoiceField(Verdict.choices)
    cause = serializers.CharField(required=False, allow_blank=True, default="", max_length=4000)
    component = serializers.CharField(required=False, allow_blank=True, default="", max_length=32)
    culprits = serializers.ListField(
        child=serializers.IntegerField(min_value=0, max_value=handling.RANK_MAX - 1), required=False, default=list,
        max_length=handling.CULPRITS_MAX,
    )  # fmt: skip
    node = serializers.CharField(required=False, allow_blank=True, default="", max_length=handling.NAME_CHARS_MAX)


def seen_by(request: Request, given: dict[str, Any]) -> Seen:
    """The version the request names. BadAct when it names none, or one that cannot be."""
    said = str(request.headers.get("If-Match", "")).strip()
    if not said:
        if given.get("version") is None:
            raise BadAct(
                "Say which version you saw: `version`, refused only when somebody acted since,"
                " or the header If-Match, refused when anything changed."
            )
        return Seen(given["version"])
    if said == "*":
        return UNSEEN
    number = said.removeprefix("W/").strip('"')
    if not (number.isascii() and number.isdecimal() and len(number) < 10):
        raise BadAct("If-Match is the ETag of what you saw, or *.")
    return Seen(int(number), exact=True)


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
        asked = given.validated_data
        seen = seen_by(request, asked) if "version" in given.fields else UNSEEN
        changed, entry = self.call(number, actor_of(caller), request_key(request), asked, seen)
        changed.job, changed.attempt = incident.job, incident.attempt
        body = {"incident": dataclasses.asdict(incident_row(changed)), "entry": dataclasses.asdict(timeline_row(entry))}
        return Response(body, headers={"ETag": f'"{changed.version}"'})

    def call(self, number: int, actor: Actor, key: str, given: dict[str, Any], seen: Seen) -> Any:
        note = given.get("reason") or given.get("note", "")
        minutes = given.get("minutes")
        return lifecycle.move(number, self.verb, actor, seen=seen, note=note, minutes=minutes, request_key=key)


class Acknowledge(_Act):
    verb = "acknowledge"
    fields = AcknowledgeFields

    @extend_schema("incident_acknowledge", request=AcknowledgeFields, responses=ACT_ANSWERS, parameters=HEADERS)
    def post(self, request: Request, number: int) -> Response:
        """Say that you are on it, for ever or for some minutes."""
        return self.act(request, number)


class Unacknowledge(_Act):
    verb = "unacknowledge"

    @extend_schema("incident_unacknowledge", request=ActFields, responses=ACT_ANSWERS, parameters=HEADERS)
    def post(self, request: Request, number: int) -> Response:
        """Hand it back: nobody is on it."""
        return self.act(request, number)


class Resolve(_Act):
    verb = "resolve"
    fields = ResolveFields

    @extend_schema("incident_resolve", request=ResolveFields, responses=ACT_ANSWERS, parameters=HEADERS)
    def post(self, request: Request, number: int) -> Response:
        """Close it, with the reason."""
        return self.act(request, number)


class Reopen(_Act):
    verb = "reopen"

    @extend_schema("incident_reopen", request=ActFields, responses=ACT_ANSWERS, parameters=HEADERS)
    def post(self, request: Request, number: int) -> Response:
        """Open a resolved incident again."""
        return self.act(request, number)


class Assign(_Act):
    verb = "assign"
    fields = AssignFields

    @extend_schema("incident_assign", request=AssignFields, responses=ACT_ANSWERS, parameters=HEADERS)
    def post(self, request: Request, number: int) -> Response:
        """Say who should handle it."""
        return self.act(request, number)

    def call(self, number: int, actor: Actor, key: str, given: dict[str, Any], seen: Seen) -> Any:
        return handling.assign(number, actor, given["assignee"], seen=seen, note=given["note"], request_key=key)


class Attach(_Act):
    verb = "attach"
    fields = AttachFields

    @extend_schema("incident_attach", request=AttachFields, responses=ACT_ANSWERS, parameters=HEADERS)
    def post(self, request: Request, number: int) -> Response:
        """Say that it follows from another incident, whose handling is its own from now on."""
        return self.act(request, number)

    def call(self, number: int, actor: Actor, key: str, given: dict[str, Any], seen: Seen) -> Any:
        return handling.attach(number, actor, given["root"], seen=seen, note=given["note"], request_key=key)


class Detach(_Act):
    verb = "detach"

    @extend_schema("incident_detach", request=ActFields, responses=ACT_ANSWERS, parameters=HEADERS)
    def post(self, request: Request, number: int) -> Response:
        """Say that it is one of its own after all."""
        return self.act(request, number)

    def call(self, number: int, actor: Actor, key: str, given: dict[str, Any], seen: Seen) -> Any:
        return handling.detach(number, actor, seen=seen, note=given["note"], request_key=key)


class Comment(_Act):
    verb = "comment"
    fields = CommentFields

    @extend_schema("incident_comment", request=CommentFields, responses=ACT_ANSWERS, parameters=HEADERS[:1])
    def post(self, request: Request, number: int) -> Response:
        """Add a comment to the timeline."""
        return self.act(request, number)

    def call(self, number: int, actor: Actor, key: str, given: dict[str, Any], seen: Seen) -> Any:
        return lifecycle.comment(number, actor, given["text"], key)


class ReviewIncident(_Act):
    verb = "review"
    fields = ReviewFields

    @extend_schema("incident_review", request=ReviewFields, responses=ACT_ANSWERS, parameters=HEADERS[:1])
    def post(self, request: Request, number: int) -> Response:
        """Record afterwards whether it was worth telling people, whether the verdict was right, and the true cause."""
        return self.act(request, number)

    def call(self, number: int, actor: Actor, key: str, given: dict[str, Any], seen: Seen) -> Any:
        found = handling.Found(**{**given, "culprits": tuple(given["culprits"])})
        return handling.review(number, actor, found, request_key=key)


class DiagnoseAgain(_Act):
    verb = "diagnose"
    fields = AgainFields

    @extend_schema(
        "incident_diagnose", request=AgainFields, responses={**ACT_ANSWERS, 429: ERROR}, parameters=HEADERS[:1]
    )
    def post(self, request: Request, number: int) -> Response:
        """Diagnose it again from its pinned traces, by today's rules and thresholds; the answer is in the timeline."""
        return self.act(request, number)

    def call(self, number: int, actor: Actor, key: str, given: dict[str, Any], seen: Seen) -> Any:
        return asking.diagnose_again(number, actor, given["note"], key)


class TargetFields(Fields):
    """One of many. `version`: the one you saw; left out, it is taken as it is."""

    number = serializers.IntegerField(min_value=1, max_value=NUMBER_MAX)
    version = _version()


class BulkFields(Fields):
    """`verb`: acknowledge, unacknowledge, resolve, reopen, comment, assign, attach or detach; the rest as for one."""

    verb = serializers.CharField(max_length=32)
    targets = TargetFields(many=True)
    note = _note()
    minutes = serializers.IntegerField(min_value=0, max_value=lifecycle.MINUTES_MAX, required=False)
    assignee = serializers.CharField(required=False, allow_blank=True, max_length=150)
    root = serializers.IntegerField(min_value=1, max_value=NUMBER_MAX, required=False)


OUTCOME: Final = an_object(number=int, incident=IncidentRow | None, code=str, error=str)


class ActOnMany(APIView):
    @extend_schema(
        "incidents_act",
        request=BulkFields,
        responses={200: an_object(n_done=int, outcomes={"type": "array", "items": OUTCOME}), 400: ERROR, 403: ERROR},
        parameters=HEADERS[:1],
    )
    def post(self, request: Request) -> Response:
        """Do the same to many incidents. Each is done or refused for itself: see `code` of its outcome."""
        caller: Caller = caller_of(request.user)
        if not isinstance(request.data, dict):
            raise BadAct("The body is an object.")
        if isinstance(targets := request.data.get("targets"), list) and len(targets) > TARGETS_MAX:
            raise BadAct(f"1 to {TARGETS_MAX} incidents at once.")
        given = BulkFields(data=request.data)
        given.is_valid(raise_exception=True)
        asked = given.validated_data
        if not any(caller.verbs_in(team_id) - {"look"} for team_id in caller.team_ids):
            raise PermissionDenied
        targets = [(one["number"], one.get("version")) for one in asked["targets"]]
        outcomes = act_on_many(caller, actor_of(caller), asked["verb"], targets, asked, request_key(request))
        n_done = sum(not outcome.code for outcome in outcomes)
        return Response({"n_done": n_done, "outcomes": [_outcome(outcome) for outcome in outcomes]})


def _outcome(outcome: Outcome) -> dict[str, Any]:
    row = outcome.incident and dataclasses.asdict(incident_row(outcome.incident))
    return {"number": outcome.number, "incident": row, "code": outcome.code, "error": outcome.error}
