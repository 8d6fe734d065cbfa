"""The REST API of lists: incidents that match, an incident's neighbours in a list, and saved views."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from django.contrib.auth.models import User
from django.core.exceptions import PermissionDenied
from django.db.models import Q
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import Caller, caller_of
from console.dashboard.given import Fields
from console.dashboard.schema import ERROR, an_object
from console.incidents import read
from console.incidents.api import STREAM, STREAMS, team_streams
from console.incidents.lists import listing
from console.incidents.live import IncidentRow
from console.incidents.models import SavedView
from console.incidents.record import BadAct
from console.incidents.rows import iso

VIEWS_MAX: Final = 100
FILTERS: Final = [
    OpenApiParameter("state", str, description="Comma-separated: open, silenced, acknowledged, attached, resolved."),
    OpenApiParameter("symptom", str, description="Comma-separated symptom kinds."),
    OpenApiParameter("severity", str, description="Comma-separated: low, medium, high."),
    OpenApiParameter("job", str, description="Comma-separated job names."),
    OpenApiParameter("who", str, description="Comma-separated names of who handles it; me, nobody."),
    OpenApiParameter("node", str, description="Comma-separated names of culprits' nodes."),
    OpenApiParameter("rack", str, description="Comma-separated racks of these nodes; unknown."),
    OpenApiParameter("cluster", str, description="Comma-separated clusters that the job's nodes are in; unknown."),
    OpenApiParameter("team", str, description="Comma-separated names of teams."),
    OpenApiParameter("q", str, description="Looked for in headlines, job names, nodes and numbers; `rank 12`."),
]


class IncidentList(APIView):
    @extend_schema(
        operation_id="incidents_list",
        parameters=[*FILTERS, OpenApiParameter("cursor", str, description="`newer` or `older` of an answer.")],
        responses={
            200: an_object(
                stream=STREAM, streams=STREAMS, server_at=str, total=int, newer=str | None, older=str | None,
                incidents=list[IncidentRow], facets=dict[str, dict[str, int]],
            )
        },
    )  # fmt: skip
    def get(self, request: Request) -> Response:
        """Incidents that match, newest first."""
        caller = caller_of(request.user)
        head = {**team_streams(caller), "server_at": iso(timezone.now())}
        wanted = listing.wanted_from(request.GET, caller.name)
        found = listing.read_page(caller.team_ids, wanted, request.GET.get("cursor", ""))
        return Response({**head, **dataclasses.asdict(found)})


class IncidentNeighbours(APIView):
    @extend_schema(
        operation_id="incident_neighbours",
        parameters=FILTERS,
        responses={200: an_object(previous=int | None, next=int | None), 404: ERROR},
    )
    def get(self, request: Request, number: int) -> Response:
        """The incidents before and after this one in the list that the same filters give."""
        caller = caller_of(request.user)
        read.find_incident(number, caller.team_ids)
        before, after = listing.read_neighbours(number, caller.team_ids, listing.wanted_from(request.GET, caller.name))
        return Response({"previous": before, "next": after})


class ViewFields(Fields):
    """`query`: the part of a list's address behind the question mark. `shared`: for the whole team."""

    name = serializers.CharField(max_length=60)
    query = serializers.CharField(max_length=1000, allow_blank=True)
    shared = serializers.BooleanField(required=False, default=False)


@dataclasses.dataclass(frozen=True, slots=True)
class ViewRow:
    """A saved view. shared: the team's; mine: the caller may delete it."""

    id: int
    name: str
    query: str
    shared: bool
    mine: bool


class ViewList(APIView):
    @extend_schema(operation_id="views_list", responses={200: an_object(views=list[ViewRow])})
    def get(self, request: Request) -> Response:
        """Your saved views of lists, and your teams'."""
        caller = caller_of(request.user)
        rows = [dataclasses.asdict(_row(view, caller)) for view in _visible(caller).order_by("name", "id")[:VIEWS_MAX]]
        return Response({"views": rows})

    @extend_schema(
        operation_id="view_save",
        request=ViewFields,
        responses={200: an_object(view=ViewRow), 400: ERROR, 403: ERROR},
    )
    def post(self, request: Request) -> Response:
        """Keep a list's filters under a name; the same name is replaced."""
        caller = caller_of(request.user)
        given = ViewFields(data=request.data)
        given.is_valid(raise_exception=True)
        asked = given.validated_data
        teams = caller.teams_where("share" if asked["shared"] else "look")
        if not teams or (caller.kind != "user" and not asked["shared"]):
            raise PermissionDenied
        owner = None if asked["shared"] else User.objects.get(pk=caller.id)
        mine = SavedView.objects.filter(team=teams[0], owner=owner)
        if mine.exclude(name=asked["name"]).count() >= VIEWS_MAX:
            raise BadAct(f"At most {VIEWS_MAX} views: delete one that is not needed any more.")
        view, _ = SavedView.objects.update_or_create(
            team_id=teams[0], owner=owner, name=asked["name"],
            defaults={"query": asked["query"].lstrip("?"), "made_at": timezone.now()},
        )  # fmt: skip
        return Response({"view": dataclasses.asdict(_row(view, caller))})


class ViewDetail(APIView):
    @extend_schema(operation_id="view_delete", responses={204: None, 403: ERROR, 404: ERROR})
    def delete(self, request: Request, view_id: int) -> Response:
        """Forget a saved view."""
        caller = caller_of(request.user)
        view = _visible(caller).get(pk=view_id)
        if not _is_mine(view, caller):
            raise PermissionDenied
        view.delete()
        return Response(status=204)


def _visible(caller: Caller) -> Any:
    own = Q(owner=None) | Q(owner=caller.id) if caller.kind == "user" else Q(owner=None)
    return SavedView.objects.filter(own, team__in=caller.team_ids)


def _is_mine(view: SavedView, caller: Caller) -> bool:
    return caller.may("share", view.team_id) if view.owner_id is None else True


def _row(view: SavedView, caller: Caller) -> ViewRow:
    return ViewRow(view.pk, view.name, view.query, view.owner_id is None, _is_mine(view, caller))
