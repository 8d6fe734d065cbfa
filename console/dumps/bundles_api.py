"""The REST API of bundles: bring one, and ask what is in it. Each belongs to a team, and to others it is not there."""

from __future__ import annotations

from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.utils.decorators import method_decorator
from django.views.decorators.gzip import gzip_page
from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.parsers import MultiPartParser
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import Caller, caller_of
from console.dashboard.given import Fields
from console.dashboard.schema import ERROR, an_object
from console.dumps import bundles
from console.dumps.api import AGAINST, RANK_ANSWER, asked_of
from console.dumps.models import Bundle
from console.dumps.uploads import BUNDLE_BYTES_MAX
from console.incidents.lifecycle import BadAct
from ingest.models import Team
from rca.stacks.process import Stack
from rca.stacks.view import against, majority, stack_from

BROUGHT: Final = an_object(id=str, state=str)
BUNDLE: Final = an_object(
    id=str, name=str, state=str, progress=float, waits_for=str, refused=str, diagnosis=dict[str, Any] | None, agreement=list[str],
    layer=str, stacks=dict[str, Any] | None, recorder=dict[str, Any] | None,
)  # fmt: skip


class BundleFields(Fields):
    """`file`: a zip of dumps. `team`: needed by who may act for several."""

    file = serializers.FileField(max_length=200, allow_empty_file=False)
    team = serializers.CharField(required=False, max_length=128)


class BundleList(APIView):
    parser_classes = [MultiPartParser]

    @extend_schema(
        "bundle_bring",
        request={"multipart/form-data": BundleFields},
        responses={202: BROUGHT, 400: ERROR, 403: ERROR, 411: ERROR, 413: ERROR, 429: ERROR, 503: ERROR},
    )
    def post(self, request: Request) -> Response:
        """Bring dumps of a job that was never traced, as one zip file; they are read and diagnosed within a minute or so."""
        caller = caller_of(request.user)
        given = BundleFields(data=request.data)
        given.is_valid(raise_exception=True)
        team = _team(caller, given.validated_data.get("team"))
        file = given.validated_data["file"]
        if file.size > BUNDLE_BYTES_MAX:
            return Response({"error": f"A bundle has at most {BUNDLE_BYTES_MAX >> 20} MiB.", "code": "too_large"}, 413)
        made = bundles.bring(team, file.name, caller.name, file.chunks())
        return Response({"id": made.key, "state": made.state}, 202)


@method_decorator(gzip_page, name="dispatch")
class BundleDetail(APIView):
    @extend_schema("bundle_read", responses={200: BUNDLE, 404: ERROR})
    def get(self, request: Request, key: str) -> Response:
        """How far reading it is, and then what it says; why not, when it was refused."""
        found = Bundle.objects.get(key=key, team__in=caller_of(request.user).team_ids)
        answer = found.answer or {}
        stacks, recorder = answer.get("stacks"), answer.get("recorder")
        return Response(
            {
                "id": found.key,
                "name": found.name,
                "state": found.state,
                "progress": found.progress,
                "waits_for": bundles.waits_for(found),
                "refused": found.refused,
                "diagnosis": answer.get("diagnosis"),
                "agreement": answer.get("agreement", []),
                "layer": answer.get("layer", ""),
                "stacks": stacks and {"request": None, "taken_at": None, "order": {"places": []}, **stacks},
                "recorder": recorder and {"request": None, **recorder},
            }
        )


class BundleRankStacks(APIView):
    @extend_schema("bundle_rank_stacks", parameters=[AGAINST], responses={200: RANK_ANSWER, 404: ERROR})
    def get(self, request: Request, key: str, rank: int) -> Response:
        """The stacks of one rank's processes as text, and how its trainer differs from the majority, or from another's."""
        found = Bundle.objects.get(key=key, team__in=caller_of(request.user).team_ids)
        answer = found.answer or {}
        ranks, other = answer.get("ranks", {}), asked_of(request).get("against")
        if str(rank) not in ranks:
            raise Bundle.DoesNotExist
        theirs = majority(answer.get("stacks")) if other is None else _trainer_of(ranks.get(str(other), []))
        processes = [
            {
                **{name: said for name, said in one.items() if name != "frames"},
                "against_majority": _differs(one, theirs),
            }
            for one in ranks[str(rank)]
        ]
        return Response({"rank": rank, "processes": processes})


def _trainer_of(processes: list[dict[str, Any]]) -> Stack:
    return next((stack_from(one["frames"]) for one in processes if one["kind"] == "trainer" and not one["silent"]), ())


def _differs(process: dict[str, Any], theirs: Stack) -> list[dict[str, Any]]:
    is_trainer = process["kind"] == "trainer" and not process["silent"]
    return against(stack_from(process["frames"]), theirs) if is_trainer and theirs else []


def _team(caller: Caller, name: str | None) -> Team:
    """The team a bundle is brought for: the one the caller may act for, or which of them was named. Raises BadAct."""
    teams = Team.objects.filter(pk__in=caller.teams_where("diagnose")).order_by("name")
    found = list(teams if name is None else teams.filter(name=name))
    if not found:
        raise PermissionDenied
    if len(found) > 1:
        raise BadAct(f"You act for several teams: name one as `team` ({', '.join(team.name for team in found[:20])}).")
    return found[0]
