"""The REST API of silences and maintenance: what is in force, what one would cover, making and ending them."""

from __future__ import annotations

import dataclasses
from datetime import timedelta
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.db.models import Count
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import Caller, caller_of
from console.accounts.audit import about
from console.dashboard.given import Fields
from console.dashboard.schema import ERROR, an_object
from console.incidents.api import REQUEST_KEY, actor_of, request_key
from console.incidents.live import IncidentRow
from console.incidents.record import NOTE_CHARS_MAX
from console.incidents.rows import incident_row, iso
from console.silences.acts import MINUTES_MAX, end_silence, make_silence, preview_silence, words_of_silence
from console.silences.models import Kind, Silence
from ingest.models import Team

SHOWN_MAX: Final = 200
OVER_SHOWN: Final = timedelta(days=7)
COVERED_SHOWN_MAX: Final = 20


@dataclasses.dataclass(frozen=True, slots=True)
class SilenceRow:
    """A silence. state: in force, ahead, over. words: its matchers in words. n_incidents: how many it silences now."""

    id: int
    team: str
    kind: str
    state: str
    matchers: list[dict[str, Any]]
    words: str
    reason: str
    starts_at: str
    ends_at: str
    made_by: str
    made_at: str
    ended_by: str
    n_incidents: int
    may_end: bool


class MatcherFields(Fields):
    """`field`: job, node, rack, cluster, symptom, component or incident; one of `values` must fit, `*` is any characters."""

    field = serializers.CharField(max_length=32)
    values = serializers.ListField(child=serializers.CharField(max_length=200), max_length=100)
    is_not = serializers.BooleanField(required=False, default=False)


class PreviewFields(Fields):
    """`team`: needed by who acts for several."""

    matchers = MatcherFields(many=True)
    team = serializers.CharField(max_length=128, required=False)


class SilenceFields(PreviewFields):
    """`minutes`: how long from `starts_at`, or from now. `kind`: maintenance names nodes, racks or clusters."""

    minutes = serializers.IntegerField(min_value=1, max_value=MINUTES_MAX)
    reason = serializers.CharField(max_length=NOTE_CHARS_MAX)
    starts_at = serializers.DateTimeField(required=False)
    kind = serializers.ChoiceField(Kind.choices, required=False, default=Kind.SILENCE)


class SilenceList(APIView):
    @extend_schema(
        operation_id="silences_list",
        responses={200: an_object(server_at=str, silences=list[SilenceRow], teams=list[str])},
    )
    def get(self, request: Request) -> Response:
        """Silences in force and ahead, and those of the last week; what ends last stands first."""
        caller = caller_of(request.user)
        rows = [dataclasses.asdict(silence_row(one, caller)) for one in _shown(caller)]
        teams = (
            Team.objects.filter(pk__in=caller.teams_where("silence")).order_by("name").values_list("name", flat=True)
        )
        return Response({"server_at": iso(timezone.now()), "silences": rows, "teams": list(teams)})

    @extend_schema(
        operation_id="silence_make",
        request=SilenceFields,
        responses={201: an_object(silence=SilenceRow), 400: ERROR, 403: ERROR, 429: ERROR},
        parameters=[REQUEST_KEY],
    )
    def post(self, request: Request) -> Response:
        """Wake nobody for what matches, for so long and for this reason."""
        caller = caller_of(request.user)
        asked = _asked(SilenceFields, request)
        made = make_silence(
            _team_of(caller, asked.get("team")), actor_of(caller), asked["matchers"], asked["reason"], asked["minutes"],
            starts_at=asked.get("starts_at"), kind=asked["kind"],
            request_key=request_key(request),
        )  # fmt: skip
        about(request, f"silences/{made.pk}", made.team_id)
        return Response({"silence": dataclasses.asdict(silence_row(_one(caller, made.pk), caller))}, 201)


class SilencePreview(APIView):
    @extend_schema(
        operation_id="silence_preview",
        request=PreviewFields,
        responses={
            200: an_object(words=str, total=int, incidents=list[IncidentRow], lately=int, checked=int, left_out=int),
            400: ERROR,
            403: ERROR,
        },
    )
    def post(self, request: Request) -> Response:
        """What matchers would silence now, and how many of the last week's incidents they would have."""
        caller = caller_of(request.user)
        asked = _asked(PreviewFields, request)
        found = preview_silence(_team_of(caller, asked.get("team")), asked["matchers"])
        rows = [dataclasses.asdict(incident_row(one)) for one in found.now[:COVERED_SHOWN_MAX]]
        body = {"words": found.words, "total": len(found.now), "incidents": rows}
        return Response({**body, "lately": found.lately, "checked": found.checked, "left_out": found.left_out})


class SilenceDetail(APIView):
    @extend_schema(
        operation_id="silence_end",
        responses={200: an_object(silence=SilenceRow), 403: ERROR, 404: ERROR},
    )
    def delete(self, request: Request, silence_id: int) -> Response:
        """End a silence now. It stays in the list for a week, and for good in the timelines of what it silenced."""
        caller = caller_of(request.user)
        silence = _one(caller, silence_id)
        if not caller.may("silence", silence.team_id):
            raise PermissionDenied
        end_silence(silence, actor_of(caller))
        return Response({"silence": dataclasses.asdict(silence_row(_one(caller, silence_id), caller))})


def silence_row(silence: Any, caller: Caller) -> SilenceRow:
    now = timezone.now()
    state = "ahead" if silence.starts_at > now else "in force" if silence.ends_at > now else "over"
    return SilenceRow(
        id=silence.pk, team=silence.team.name, kind=silence.kind, state=state, matchers=silence.matchers,
        words=words_of_silence(silence), reason=silence.reason, starts_at=iso(silence.starts_at) or "",
        ends_at=iso(silence.ends_at) or "", made_by=silence.made_by, made_at=iso(silence.made_at) or "",
        ended_by=silence.ended_by, n_incidents=silence.n_incidents,
        may_end=state != "over" and caller.may("silence", silence.team_id),
    )  # fmt: skip


def _counted() -> Any:
    return Silence.objects.select_related("team").annotate(n_incidents=Count("incidents"))


def _shown(caller: Caller) -> Any:
    since = timezone.now() - OVER_SHOWN
    return _counted().filter(team__in=caller.team_ids, ends_at__gte=since).order_by("-ends_at", "-id")[:SHOWN_MAX]


def _one(caller: Caller, silence_id: int) -> Any:
    return _counted().get(pk=silence_id, team__in=caller.team_ids)


def _asked(fields: type[Fields], request: Request) -> dict[str, Any]:
    given = fields(data=request.data)
    given.is_valid(raise_exception=True)
    asked: dict[str, Any] = given.validated_data
    asked["matchers"] = [dict(matcher) for matcher in asked["matchers"]]
    return asked


def _team_of(caller: Caller, name: str | None) -> int:
    """The team named, or the only one the caller acts for. PermissionDenied when there is none."""
    teams = {team.name: team.pk for team in Team.objects.filter(pk__in=caller.teams_where("silence"))}
    if not teams:
        raise PermissionDenied
    if name is None and len(teams) == 1:
        return next(iter(teams.values()))
    if name not in teams:
        raise ValidationError({"team": [f"Name one of your teams: {', '.join(sorted(teams))}."]})
    return teams[name]
