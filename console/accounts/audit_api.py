"""The REST API of the audit: who did what, for administrators of the teams it concerns."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import caller_of
from console.accounts.models import AuditEntry
from console.dashboard.given import Fields
from console.dashboard.schema import ERROR, an_object
from console.incidents.rows import iso

PAGE: Final = 100


@dataclasses.dataclass(frozen=True, slots=True)
class AuditRow:
    """One entry. actor_kind: user, api, command, provider, or nobody for a name that did not sign in."""

    id: int
    at: str
    actor: str
    actor_kind: str
    act: str
    subject: str
    address: str
    request_id: str


class AuditQuery(Fields):
    actor = serializers.CharField(required=False, max_length=150)
    before = serializers.IntegerField(required=False, min_value=1, max_value=2**63 - 1)


class AuditList(APIView):
    @extend_schema(
        operation_id="audit_list",
        parameters=[
            OpenApiParameter("actor", str, description="only of this actor, by name"),
            OpenApiParameter("before", int, description="`older` of the page before"),
        ],
        responses={200: an_object(entries=list[AuditRow], older=int | None), 400: ERROR, 403: ERROR},
    )
    def get(self, request: Request) -> Response:
        """Every act, newest first: what people, scripts, commands and the sign-in provider did in the teams you administer."""
        team_ids = caller_of(request.user).teams_where("administer")
        if not team_ids:
            raise PermissionDenied
        given = AuditQuery(data=request.query_params.dict())
        given.is_valid(raise_exception=True)
        found = AuditEntry.objects.filter(team_ids__overlap=team_ids, **_narrowed(given.validated_data))
        entries = list(found.order_by("-id")[: PAGE + 1])
        rows = [dataclasses.asdict(_row(one)) for one in entries[:PAGE]]
        return Response({"entries": rows, "older": rows[-1]["id"] if len(entries) > PAGE else None})


def _narrowed(asked: dict[str, Any]) -> dict[str, Any]:
    names = {"actor": "actor", "before": "pk__lt"}
    return {names[name]: value for name, value in asked.items()}


def _row(entry: AuditEntry) -> AuditRow:
    return AuditRow(
        entry.pk, iso(entry.at) or "", entry.actor, entry.actor_kind, entry.act, entry.subject, entry.address,
        entry.request_id,
    )  # fmt: skip
