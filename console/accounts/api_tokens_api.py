"""The REST API of API tokens: what scripts ask with. Their secrets are shown once, when they are made."""

from __future__ import annotations

import dataclasses
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import caller_of, verbs_of
from console.accounts.api_tokens import (
    DAYS,
    DAYS_MAX,
    GRACE_MINUTES_MAX,
    make_token,
    revoke_token,
    rotate_token,
    shown_tokens,
    state_of,
)
from console.accounts.audit import about
from console.accounts.models import ApiToken, Role
from console.accounts.teams import administered_by, chosen_of
from console.accounts.token_families import taken_along
from console.dashboard.given import Fields
from console.dashboard.schema import ERROR, an_object
from console.incidents.rows import iso

SHOWN_MAX: Final = 500
NAMED_MAX: Final = 20


@dataclasses.dataclass(frozen=True, slots=True)
class ApiTokenRow:
    """A token without its secret. state: live, rotated (another took its place, and it still works), expired, revoked.

    scopes: acts it is narrowed to; empty when it may do all that its role may. last_used_at: to the minute. made_with: the
    token that asked for it. n_taken_along: other good tokens that end when this one is revoked.
    """

    id: int
    label: str
    team: str
    role: str
    scopes: list[str]
    state: str
    made_at: str
    made_by: str
    expires_at: str | None
    last_used_at: str | None
    rotated_from: int | None
    made_with: int | None
    n_taken_along: int


class ApiTokenFields(Fields):
    """`scopes`: acts it is narrowed to. `days`: until it expires. `team`: needed by who administers several."""

    label = serializers.CharField(max_length=100)
    role = serializers.ChoiceField(Role.choices)
    scopes = serializers.ListField(
        child=serializers.CharField(max_length=32), max_length=32, required=False, default=list
    )
    days = serializers.IntegerField(min_value=1, max_value=DAYS_MAX, required=False, default=DAYS)
    team = serializers.CharField(max_length=128, required=False)


class RotateFields(Fields):
    """`days`: until the new one expires, else as many as the old one had. `grace_minutes`: how long the old one goes on."""

    days = serializers.IntegerField(min_value=1, max_value=DAYS_MAX, required=False)
    grace_minutes = serializers.IntegerField(min_value=0, max_value=GRACE_MINUTES_MAX, required=False, default=0)


class ApiTokenList(APIView):
    @extend_schema(
        operation_id="api_tokens_list",
        responses={
            200: an_object(tokens=list[ApiTokenRow], left_out=int, teams=list[str], scopes=dict[str, list[str]]),
            403: ERROR,
        },
    )
    def get(self, request: Request) -> Response:
        """API tokens of the teams you administer, good ones first, never their secrets; what each role may be narrowed to.

        left_out: how many more there are, of those that ended lately unless there are very many good ones.
        """
        teams = administered_by(caller_of(request.user))
        team_ids = [team.pk for team in teams]
        found = shown_tokens(team_ids)
        tokens = list(found[:SHOWN_MAX])
        left_out = found.count() - len(tokens) if len(tokens) == SHOWN_MAX else 0
        along = taken_along((token.pk for token in tokens), team_ids)
        rows = [dataclasses.asdict(_row(token, along[token.pk])) for token in tokens]
        scopes = {role.value: verbs_of(role) for role in Role}
        return Response(
            {"tokens": rows, "left_out": left_out, "teams": [team.name for team in teams], "scopes": scopes}
        )

    @extend_schema(
        operation_id="api_token_make",
        request=ApiTokenFields,
        responses={201: an_object(api_token=ApiTokenRow, token=str), 400: ERROR, 403: ERROR, 429: ERROR},
    )
    def post(self, request: Request) -> Response:
        """Make a token for a script; `token` is its secret, shown this once. None is wider than the token that makes it."""
        caller = caller_of(request.user)
        teams = administered_by(caller)
        given = ApiTokenFields(data=request.data)
        given.is_valid(raise_exception=True)
        asked = given.validated_data
        team = chosen_of(teams, asked.get("team"))
        made = make_token(caller, team, asked["label"], Role(asked["role"]), asked["scopes"], asked["days"])
        return _shown_once(request, *made)


class ApiTokenDetail(APIView):
    @extend_schema(operation_id="api_token_revoke", responses={204: None, 403: ERROR, 404: ERROR})
    def delete(self, request: Request, api_token_id: int) -> Response:
        """Revoke a token, and whatever was made with it: they are refused from now on. They stay in the list for a month."""
        caller = caller_of(request.user)
        token = ApiToken.objects.select_related("team").get(pk=api_token_id, team__in=caller.team_ids)
        if not caller.may("administer", token.team_id):
            raise PermissionDenied
        about(request, _words(token) + _with_it(revoke_token(token)), token.team_id)
        return Response(status=204)


class ApiTokenRotate(APIView):
    @extend_schema(
        operation_id="api_token_rotate",
        request=RotateFields,
        responses={201: an_object(api_token=ApiTokenRow, token=str), 400: ERROR, 403: ERROR, 404: ERROR, 429: ERROR},
    )
    def post(self, request: Request, api_token_id: int) -> Response:
        """Another secret for the same token, by an administrator or by the token itself, which then ends when it would have."""
        given = RotateFields(data=request.data)
        given.is_valid(raise_exception=True)
        asked = given.validated_data
        made = rotate_token(caller_of(request.user), api_token_id, asked.get("days"), asked["grace_minutes"])
        return _shown_once(request, *made)


def _shown_once(request: Request, token: ApiToken, secret: str) -> Response:
    about(request, _words(token), token.team_id)
    return Response({"api_token": dataclasses.asdict(_row(token)), "token": secret}, 201)


def _with_it(others: list[int]) -> str:
    """Which tokens ended with one: its earlier forms, and what was made with any of them."""
    named = ", ".join(str(number) for number in others[:NAMED_MAX])
    more = f" and {len(others) - NAMED_MAX} more" if len(others) > NAMED_MAX else ""
    return f", and with it {named}{more}" if others else ""


def _words(token: ApiToken) -> str:
    scopes = f", to {' '.join(token.scopes)}" if token.scopes else ""
    return f"api-tokens/{token.pk}: {token.label}, {token.role} of {token.team.name}{scopes}"


def _row(token: ApiToken, n_taken_along: int = 0) -> ApiTokenRow:
    said: dict[str, Any] = {
        name: iso(getattr(token, name)) for name in ("made_at", "expires_at", "last_used_at")
    }  # fmt: skip
    return ApiTokenRow(
        id=token.pk, label=token.label, team=token.team.name, role=token.role, scopes=token.scopes,
        state=state_of(token, timezone.now()), made_by=token.made_by, rotated_from=token.rotated_from_id,
        made_with=token.made_with_id, n_taken_along=n_taken_along, **said,
    )  # fmt: skip
