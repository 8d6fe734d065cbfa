"""The REST API of agents' tokens. A token sends for one team: who administers several has to say for which."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import caller_of
from console.accounts.teams import administered_by, chosen_of
from console.dashboard.given import Fields
from console.dashboard.schema import ERROR, an_object
from console.incidents.rows import iso
from ingest.door.tokens import hash_token, make_agent_token, revoke_agent_token
from ingest.models import AgentToken


class TokenFields(Fields):
    """`team`: the name of a team you administer; needed when there are several."""

    label = serializers.CharField(max_length=100)
    team = serializers.CharField(max_length=128, required=False)


class TokenList(APIView):
    @extend_schema(
        operation_id="tokens_list",
        responses={200: an_object(tokens=list[dict[str, Any]], teams=list[str]), 403: ERROR},
    )
    def get(self, request: Request) -> Response:
        """Agents' tokens, never their secrets, and the teams you may make one for."""
        teams = administered_by(caller_of(request.user))
        tokens = AgentToken.objects.filter(team__in=teams, revoked_at=None).select_related("team").order_by("pk")
        return Response({"tokens": [_row(token) for token in tokens], "teams": [team.name for team in teams]})

    @extend_schema(
        operation_id="token_create",
        request=TokenFields,
        responses={201: an_object(id=int, label=str, team=str, token=str), 400: ERROR, 403: ERROR},
    )
    def post(self, request: Request) -> Response:
        """Make an agent's token. It is shown this once."""
        teams = administered_by(caller_of(request.user))
        given = TokenFields(data=request.data)
        given.is_valid(raise_exception=True)
        team = chosen_of(teams, given.validated_data.get("team"))
        secret = make_agent_token(team, given.validated_data["label"])
        token = AgentToken.objects.get(token_sha256=hash_token(secret))
        return Response({"id": token.pk, "label": token.label, "team": team.name, "token": secret}, 201)


class TokenDetail(APIView):
    @extend_schema(operation_id="token_revoke", responses={204: None, 403: ERROR, 404: ERROR})
    def delete(self, request: Request, token_id: int) -> Response:
        """Revoke an agent's token."""
        caller = caller_of(request.user)
        token = AgentToken.objects.get(pk=token_id, team__in=caller.team_ids)
        if not caller.may("administer", token.team_id):
            raise PermissionDenied
        revoke_agent_token(token)
        return Response(status=204)


def _row(token: AgentToken) -> dict[str, Any]:
    return {
        "id": token.pk,
        "label": token.label,
        "team": token.team.name,
        "created_at": iso(token.created_at),
        "last_used_at": iso(token.last_used_at),
    }
