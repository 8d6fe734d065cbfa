"""The REST API of the audit: who did what, for administrators of the teams it concerns."""

from __future__ import annotations

import csv
import dataclasses
import io
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import caller_of
from console.accounts.audit_words import words_of
from console.accounts.models import AuditEntry
from console.dashboard.given import Fields
from console.dashboard.schema import ERROR, an_object
from console.incidents.rows import iso

PAGE: Final = 100
FILE_MAX: Final = 50_000
SEARCHED: Final = ("actor", "act", "subject", "address", "request_id")
FILTERS: Final = [
    OpenApiParameter("actor", str, description="only of this actor, by name"),
    OpenApiParameter("kind", str, description=f"comma-separated kinds of actor: {', '.join(AuditEntry.Kind.values)}"),
    OpenApiParameter("q", str, description="in actor, act, subject, address or request id"),
    OpenApiParameter("since", str, description="not before this time (ISO 8601)"),
    OpenApiParameter("until", str, description="before this time (ISO 8601)"),
    OpenApiParameter("before", int, description="`older` of a page: what came before that entry"),
]


@dataclasses.dataclass(frozen=True, slots=True)
class AuditRow:
    """One entry. words: the act as people say it.

    actor_kind: user, api (a token), command, provider (of sign-ins), ticket (somebody else's system), system (the detector),
    or nobody for a name that did not sign in.
    """

    id: int
    at: str
    actor: str
    actor_kind: str
    words: str
    act: str
    subject: str
    address: str
    request_id: str


class AuditQuery(Fields):
    actor = serializers.CharField(required=False, max_length=150)
    kind = serializers.CharField(required=False, max_length=100)
    q = serializers.CharField(required=False, max_length=200)
    since = serializers.DateTimeField(required=False)
    until = serializers.DateTimeField(required=False)
    before = serializers.IntegerField(required=False, min_value=1, max_value=2**63 - 1)

    def validate_kind(self, text: str) -> list[str]:
        kinds = [kind for kind in text.split(",") if kind]
        if not set(kinds) <= set(AuditEntry.Kind.values):
            raise serializers.ValidationError(f"Kinds are {', '.join(AuditEntry.Kind.values)}.")
        return kinds


class AuditPageQuery(AuditQuery):
    after = serializers.IntegerField(required=False, min_value=0, max_value=2**63 - 1)


class AuditList(APIView):
    @extend_schema(
        operation_id="audit_list",
        parameters=[
            *FILTERS,
            OpenApiParameter("after", int, description="`newer` of a page: what came after that entry"),
        ],
        responses={200: an_object(entries=list[AuditRow], newer=int | None, older=int | None), 400: ERROR, 403: ERROR},
    )
    def get(self, request: Request) -> Response:
        """Every act, newest first: what people, scripts, commands and other systems did in the teams you administer."""
        asked = _asked(request, AuditPageQuery)
        found = _narrowed(_visible(request), asked)
        rows, has_newer, has_older = _page(found, asked)
        return Response(
            {
                "entries": [dataclasses.asdict(_row(one)) for one in rows],
                "newer": rows[0].pk if rows and has_newer else None,
                "older": rows[-1].pk if rows and has_older else None,
            }
        )


class AuditFile(APIView):
    @extend_schema(
        operation_id="audit_csv",
        parameters=FILTERS,
        responses={(200, "text/csv"): OpenApiTypes.STR, 400: ERROR, 403: ERROR},
    )
    def get(self, request: Request) -> HttpResponse:
        """The same as CSV, newest first, at most 50,000 entries: the header `X-Older` says from where on there are more."""
        found = _narrowed(_visible(request), _asked(request, AuditQuery))
        entries = list(found.order_by("-id")[: FILE_MAX + 1])
        text = io.StringIO()
        writer = csv.writer(text)
        writer.writerow(field.name for field in dataclasses.fields(AuditRow))
        writer.writerows([_cell(value) for value in dataclasses.astuple(_row(one))] for one in entries[:FILE_MAX])
        answer = HttpResponse(text.getvalue().encode(), content_type="text/csv; charset=utf-8")
        answer["Content-Disposition"] = 'attachment; filename="audit.csv"'
        if len(entries) > FILE_MAX:
            answer["X-Older"] = str(entries[FILE_MAX - 1].pk)
        return answer


def _visible(request: Request) -> QuerySet[AuditEntry]:
    team_ids = caller_of(request.user).teams_where("administer")
    if not team_ids:
        raise PermissionDenied
    return AuditEntry.objects.filter(team_ids__overlap=team_ids)


def _asked(request: Request, fields: type[Fields]) -> dict[str, Any]:
    given = fields(data=request.query_params.dict())
    given.is_valid(raise_exception=True)
    asked: dict[str, Any] = given.validated_data
    return asked


def _narrowed(found: QuerySet[AuditEntry], asked: dict[str, Any]) -> QuerySet[AuditEntry]:
    names = {"actor": "actor", "kind": "actor_kind__in", "since": "at__gte", "until": "at__lt", "before": "pk__lt"}
    found = found.filter(**{names[name]: value for name, value in asked.items() if name in names})
    text = Q()
    for column in SEARCHED:
        text |= Q(**{f"{column}__icontains": asked.get("q", "")})
    return found.filter(text) if "q" in asked else found


def _page(found: QuerySet[AuditEntry], asked: dict[str, Any]) -> tuple[list[AuditEntry], bool, bool]:
    """The entries, and whether there are newer and older ones."""
    if "after" in asked:
        newer = list(found.filter(pk__gt=asked["after"]).order_by("id")[: PAGE + 1])
        return newer[:PAGE][::-1], len(newer) > PAGE, found.filter(pk__lte=asked["after"]).exists()
    older = list(found.order_by("-id")[: PAGE + 1])
    return older[:PAGE], "before" in asked, len(older) > PAGE


def _cell(value: Any) -> Any:
    """A text that a spreadsheet would take for a formula is marked as text: names come from whoever tried to sign in."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _row(entry: AuditEntry) -> AuditRow:
    return AuditRow(
        entry.pk, iso(entry.at) or "", entry.actor, entry.actor_kind, words_of(entry.act, entry.subject), entry.act,
        entry.subject, entry.address, entry.request_id,
    )  # fmt: skip
