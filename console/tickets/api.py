"""The REST API of destinations and deliveries. Secrets go in and never come out."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.db.models import Count, OuterRef, Q, Subquery
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.exceptions import ValidationError
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import Caller, caller_of
from console.dashboard.given import Fields
from console.dashboard.schema import ERROR, an_object
from console.incidents.acts.api import seen_by
from console.incidents.api import REQUEST_KEY, actor_of, request_key
from console.incidents.lifecycle import Seen
from console.incidents.models import ActorKind, Incident, Severity
from console.incidents.record import UNSEEN, stored_key
from console.incidents.rows import iso
from console.tickets.acts import (
    ChangedMeanwhile,
    change_destination,
    check_templates,
    make_destination,
    remove_destination,
    replay,
    send_test,
)
from console.tickets.destinations import KINDS
from console.tickets.models import Delivery, DeliveryState, Destination, DestinationChange
from console.tickets.rows import (
    AttemptRow,
    ChangeRow,
    DeliveryRow,
    DestinationRow,
    KindRow,
    TicketRow,
    attempt_row,
    change_row,
    delivery_row,
    destination_row,
    kind_row,
    ticket_row,
)
from console.tickets.telling import sample_of
from console.tickets.templates import (
    BODY_CHARS_MAX,
    BODY_USUAL,
    TITLE_CHARS_MAX,
    TITLE_USUAL,
    VALUES,
    with_templates,
)
from console.tickets.wording import lines_of
from ingest.models import Team

PAGE: Final = 100
IF_MATCH: Final = OpenApiParameter("If-Match", str, OpenApiParameter.HEADER, description="The ETag you saw, or *.")
OVERTAKEN: Final = an_object(error=str, code=str, destination=DestinationRow, changes=list[ChangeRow])
REQUEST_VALUES: Final = 20


class DestinationFields(Fields):
    """`settings`: by name, secrets among them; `GET destinations` lists the names of each kind under `kinds`."""

    name = serializers.CharField(max_length=80)
    kind = serializers.ChoiceField(sorted(KINDS))
    settings = serializers.DictField(child=serializers.CharField(max_length=1000, allow_blank=True))
    severity_min = serializers.ChoiceField(Severity.choices, required=False, default=Severity.LOW)
    title_template = serializers.CharField(max_length=TITLE_CHARS_MAX, required=False, allow_blank=True)
    body_template = serializers.CharField(max_length=BODY_CHARS_MAX, required=False, allow_blank=True)
    team = serializers.CharField(max_length=128, required=False)


class DestinationChangeFields(Fields):
    """What is left out stays; an empty secret keeps the old one. `version`: that you saw, unless the header If-Match says it."""

    version = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)
    name = serializers.CharField(max_length=80, required=False)
    settings = serializers.DictField(child=serializers.CharField(max_length=1000, allow_blank=True), required=False)
    severity_min = serializers.ChoiceField(Severity.choices, required=False)
    title_template = serializers.CharField(max_length=TITLE_CHARS_MAX, required=False, allow_blank=True)
    body_template = serializers.CharField(max_length=BODY_CHARS_MAX, required=False, allow_blank=True)
    enabled = serializers.BooleanField(required=False)


class DestinationList(APIView):
    @extend_schema(
        operation_id="destinations_list",
        responses={
            200: an_object(server_at=str, destinations=list[DestinationRow], kinds=list[KindRow], teams=list[str])
        },
    )
    def get(self, request: Request) -> Response:
        """Where incidents are told, how that goes, and what each kind of destination asks for."""
        caller = caller_of(request.user)
        rows = [dataclasses.asdict(destination_row(one, caller)) for one in _counted(caller)]
        teams = Team.objects.filter(pk__in=caller.teams_where("administer")).order_by("name")
        kinds = [dataclasses.asdict(kind_row(kind)) for kind in KINDS.values()]
        names = list(teams.values_list("name", flat=True))
        return Response({"server_at": iso(timezone.now()), "destinations": rows, "kinds": kinds, "teams": names})

    @extend_schema(
        operation_id="destination_make",
        request=DestinationFields,
        responses={201: an_object(destination=DestinationRow), 400: ERROR, 403: ERROR, 404: ERROR, 429: ERROR},
        parameters=[REQUEST_KEY],
    )
    def post(self, request: Request) -> Response:
        """Make a destination. It is told at once of the newest 20 open incidents that nobody has taken; `n_left_out` counts
        the others, which it is told of with their next change.
        """
        caller, asked = caller_of(request.user), _asked(DestinationFields, request)
        team_id = _team_of(caller, asked.get("team"))
        made = make_destination(
            team_id,
            asked["name"],
            asked["kind"],
            asked["settings"],
            caller.name,
            asked["severity_min"],
            ActorKind(caller.kind),
            asked,
            stored_key(actor_of(caller), f"{team_id}:{key}" if (key := request_key(request)) else ""),
        )
        return _answer({}, made.pk, caller, 201)


class DestinationDetail(APIView):
    @extend_schema(
        operation_id="destination_changes",
        responses={200: an_object(destination=DestinationRow, changes=list[ChangeRow]), 403: ERROR, 404: ERROR},
    )
    def get(self, request: Request, destination_id: int) -> Response:
        """A destination, and its newest hundred changes: who changed what. No values, no secrets."""
        caller = caller_of(request.user)
        newest = _administered(caller, destination_id).changes.order_by("-id")[:PAGE]
        changes = [dataclasses.asdict(change_row(one)) for one in newest]
        return _answer({"changes": changes}, destination_id, caller)

    @extend_schema(
        operation_id="destination_change",
        request=DestinationChangeFields,
        parameters=[IF_MATCH],
        responses={
            200: an_object(destination=DestinationRow), 400: ERROR, 403: ERROR, 404: ERROR, 409: OVERTAKEN, 412: OVERTAKEN,
        },
    )  # fmt: skip
    def patch(self, request: Request, destination_id: int) -> Response:
        """Change a destination, or switch it off and on. With another address its secrets are entered again.

        Say what you saw: `version` (409) or If-Match (412) is refused when somebody changed it since; `If-Match: *`
        overwrites whatever is there. The answer says who changed what.
        """
        caller = caller_of(request.user)
        destination, asked = _administered(caller, destination_id), _asked(DestinationChangeFields, request)
        seen = seen_by(request, asked)
        try:
            change_destination(destination, asked, actor_of(caller), seen)
        except ChangedMeanwhile as error:
            return _overtaken(error, destination_id, caller, seen)
        return _answer({}, destination_id, caller)

    @extend_schema(
        operation_id="destination_remove",
        parameters=[IF_MATCH],
        responses={204: None, 400: ERROR, 403: ERROR, 404: ERROR, 412: OVERTAKEN},
    )
    def delete(self, request: Request, destination_id: int) -> Response:
        """Tell it nothing more. What waits is skipped, its secrets are forgotten, its deliveries stay listed.

        With If-Match it is refused (412) when somebody changed it since.
        """
        caller = caller_of(request.user)
        destination = _administered(caller, destination_id)
        seen = seen_by(request, {}) if "If-Match" in request.headers else UNSEEN
        try:
            remove_destination(destination, actor_of(caller), seen)
        except ChangedMeanwhile as error:
            return _overtaken(error, destination_id, caller, seen)
        return Response(status=204)


class TemplateFields(Fields):
    """`incident`: of which one it is shown; the newest of your teams if left out, an example where there is none."""

    title_template = serializers.CharField(max_length=TITLE_CHARS_MAX, required=False, allow_blank=True, default="")
    body_template = serializers.CharField(max_length=BODY_CHARS_MAX, required=False, allow_blank=True, default="")
    incident = serializers.IntegerField(min_value=1, max_value=2**63 - 1, required=False)


class TemplatePreview(APIView):
    @extend_schema(
        operation_id="destination_preview",
        request=TemplateFields,
        responses={
            200: an_object(title=str, lines=list[str], incident=int | None, names=dict[str, str], usual=dict[str, str]),
            400: ERROR, 403: ERROR, 404: ERROR,
        },
    )  # fmt: skip
    def post(self, request: Request) -> Response:
        """A title and a body as they would be sent, and the names that templates know. Nothing is sent or kept."""
        caller, asked = caller_of(request.user), _asked(TemplateFields, request)
        teams = caller.teams_where("administer")
        if not teams:
            raise PermissionDenied
        check_templates(asked)
        theirs = Incident.objects.filter(team__in=teams).select_related("job", "attempt").order_by("-id")
        incident = theirs.get(pk=asked["incident"]) if "incident" in asked else theirs.first()
        shown = with_templates(sample_of(incident), asked["title_template"], asked["body_template"])
        names = {name: words for name, (words, _) in VALUES.items()}
        usual = {"title_template": TITLE_USUAL, "body_template": BODY_USUAL}
        answer = {"title": shown.title, "lines": lines_of(shown), "names": names, "usual": usual}
        return Response({**answer, "incident": incident.pk if incident else None})


class DestinationTest(APIView):
    @extend_schema(
        operation_id="destination_test",
        request=None,
        responses={201: an_object(delivery=DeliveryRow), 400: ERROR, 403: ERROR, 404: ERROR, 429: ERROR},
    )
    def post(self, request: Request, destination_id: int) -> Response:
        """Send a test. What became of it is its delivery's state; systems with tickets are asked, and nothing is made."""
        caller = caller_of(request.user)
        made = send_test(_administered(caller, destination_id))
        return Response({"delivery": _delivery_row(caller, made.pk)}, 201)


class DeliveryList(APIView):
    @extend_schema(
        operation_id="deliveries_list",
        parameters=[
            OpenApiParameter("destination", int, description="only of this destination"),
            OpenApiParameter("incident", int, description="only of this incident"),
            OpenApiParameter("state", str, enum=DeliveryState.values),
            OpenApiParameter("before", int, description="`older` of the page before"),
        ],
        responses={200: an_object(deliveries=list[DeliveryRow], older=int | None), 400: ERROR},
    )
    def get(self, request: Request) -> Response:
        """What was promised, newest first, and what became of it."""
        caller = caller_of(request.user)
        found = _deliveries(caller).filter(_filters(request)).order_by("-id")[: PAGE + 1]
        rows = [dataclasses.asdict(delivery_row(one, caller)) for one in found[:PAGE]]
        return Response({"deliveries": rows, "older": rows[-1]["id"] if len(found) > PAGE else None})


class DeliveryDetail(APIView):
    @extend_schema(
        operation_id="delivery",
        responses={200: an_object(delivery=DeliveryRow, attempts=list[AttemptRow]), 404: ERROR},
    )
    def get(self, request: Request, delivery_id: int) -> Response:
        """One delivery and its newest hundred tries."""
        caller = caller_of(request.user)
        delivery = _deliveries(caller).get(pk=delivery_id)
        tries = [dataclasses.asdict(attempt_row(one)) for one in delivery.attempts.order_by("-id")[:PAGE]]
        return Response({"delivery": dataclasses.asdict(delivery_row(delivery, caller)), "attempts": tries})


class DeliveryReplay(APIView):
    @extend_schema(
        operation_id="delivery_replay",
        request=None,
        responses={201: an_object(delivery=DeliveryRow), 400: ERROR, 403: ERROR, 404: ERROR, 429: ERROR},
    )
    def post(self, request: Request, delivery_id: int) -> Response:
        """Send it once more, with the incident as it is now."""
        caller = caller_of(request.user)
        delivery = _deliveries(caller).get(pk=delivery_id)
        if not caller.may("replay", delivery.destination.team_id):
            raise PermissionDenied
        return Response({"delivery": _delivery_row(caller, replay(delivery).pk)}, 201)


class IncidentTickets(APIView):
    @extend_schema(operation_id="incident_tickets", responses={200: an_object(tickets=list[TicketRow]), 404: ERROR})
    def get(self, request: Request, number: int) -> Response:
        """The incident's copies in other systems, and whether those disagree with what it is here."""
        incident = Incident.objects.get(pk=number, team__in=caller_of(request.user).team_ids)
        tickets = incident.tickets.select_related("destination").order_by("id")
        return Response({"tickets": [dataclasses.asdict(ticket_row(one, incident)) for one in tickets]})


def _counted(caller: Caller) -> Any:
    counts = {
        f"n_{state}": Count("deliveries", filter=Q(deliveries__state=state)) for state in ("waiting", "sent", "dead")
    }
    shown = Destination.objects.filter(team__in=caller.team_ids, removed_at=None).select_related("team")
    newest = DestinationChange.objects.filter(destination=OuterRef("pk")).order_by("-pk").values("pk")[:1]
    return shown.annotate(**counts, version=Subquery(newest)).order_by("name", "id")


def _row(destination_id: int, caller: Caller) -> dict[str, Any]:
    return dataclasses.asdict(destination_row(_counted(caller).get(pk=destination_id), caller))


def _answer(body: dict[str, Any], destination_id: int, caller: Caller, status: int = 200) -> Response:
    row = _row(destination_id, caller)
    return Response({"destination": row, **body}, status, headers={"ETag": f'"{row["version"]}"'})


def _overtaken(error: ChangedMeanwhile, destination_id: int, caller: Caller, seen: Seen) -> Response:
    changes = [dataclasses.asdict(change_row(one)) for one in error.changes]
    said = {"error": str(error), "code": "stale_version", "changes": changes}
    return _answer(said, destination_id, caller, 412 if seen.exact else 409)


def _administered(caller: Caller, destination_id: int) -> Destination:
    destination = Destination.objects.get(pk=destination_id, team__in=caller.team_ids, removed_at=None)
    if not caller.may("administer", destination.team_id):
        raise PermissionDenied
    return destination


def _deliveries(caller: Caller) -> Any:
    shown = Delivery.objects.filter(destination__team__in=caller.team_ids)
    return shown.select_related("destination", "ticket__incident")


def _delivery_row(caller: Caller, delivery_id: int) -> dict[str, Any]:
    return dataclasses.asdict(delivery_row(_deliveries(caller).get(pk=delivery_id), caller))


class DeliveryQuery(serializers.Serializer[Any]):
    """What a list of deliveries may be narrowed by."""

    destination = serializers.IntegerField(min_value=1, max_value=2**63 - 1, required=False)
    incident = serializers.IntegerField(min_value=1, max_value=2**63 - 1, required=False)
    state = serializers.ChoiceField(DeliveryState.choices, required=False)
    before = serializers.IntegerField(min_value=1, max_value=2**63 - 1, required=False)


def _filters(request: Request) -> Q:
    given = DeliveryQuery(data=request.query_params)
    given.is_valid(raise_exception=True)
    names = {"destination": "destination", "incident": "ticket__incident", "state": "state", "before": "pk__lt"}
    return Q(**{names[name]: value for name, value in given.validated_data.items()})


def _asked(fields: type[Fields], request: Request) -> dict[str, Any]:
    given = fields(data=request.data)
    given.is_valid(raise_exception=True)
    asked: dict[str, Any] = given.validated_data
    if len(asked.get("settings", {})) > REQUEST_VALUES:
        raise ValidationError({"settings": [f"At most {REQUEST_VALUES}."]})
    return asked


def _team_of(caller: Caller, name: str | None) -> int:
    """The team named, or the only one the caller administers. PermissionDenied when there is none."""
    teams = {team.name: team.pk for team in Team.objects.filter(pk__in=caller.teams_where("administer"))}
    if not teams:
        raise PermissionDenied
    if name is None and len(teams) == 1:
        return next(iter(teams.values()))
    if name not in teams:
        raise ValidationError({"team": [f"Name one of your teams: {', '.join(sorted(teams))}."]})
    return teams[name]
