"""The REST API of what one takes away from an incident: evidence bundles, and the draft of a post-mortem."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from django.core.exceptions import PermissionDenied
from django.http import HttpResponse, StreamingHttpResponse
from django.utils import timezone
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import Caller, caller_of
from console.dashboard.schema import ERROR, an_object, schema_of
from console.dumps.taken_away import one_by_one
from console.evidence.building import KEPT, path_of, want
from console.evidence.models import EvidenceBundle
from console.evidence.post_mortem import post_mortem
from console.incidents import read
from console.incidents.models import Incident
from console.incidents.rows import iso

PIECE_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class EvidenceRow:
    """A bundle. state: waiting, building, done or failed; is_newest: it holds the newest diagnosis of the incident."""

    id: int
    state: str
    step: str
    progress: float
    wanted_by: str
    wanted_at: str
    done_at: str | None
    kept_until: str
    revision: int
    is_newest: bool
    size_bytes: int
    n_files: int
    left_out: list[str]
    failed: str


class IncidentEvidence(APIView):
    @extend_schema(
        "incident_evidence",
        responses={200: an_object(server_at=str, bundles=list[EvidenceRow], may=bool), 404: ERROR},
    )
    def get(self, request: Request, number: int) -> Response:
        """Evidence bundles of the incident, newest first, and how far the one is that is being built."""
        caller = caller_of(request.user)
        incident = read.find_incident(number, caller.team_ids)
        found = incident.evidence_bundles.order_by("-id")
        rows = [dataclasses.asdict(_row(one, incident)) for one in found]
        return Response(
            {"server_at": iso(timezone.now()), "bundles": rows, "may": caller.may("export", incident.team_id)}
        )

    @extend_schema(
        "incident_evidence_build",
        request=None,
        responses={202: schema_of(EvidenceRow), 400: ERROR, 403: ERROR, 404: ERROR, 429: ERROR},
    )
    def post(self, request: Request, number: int) -> Response:
        """Have everything known of the incident put into one zip file. While one is built it is that one."""
        caller, incident = _exporting(request, number)
        return Response(dataclasses.asdict(_row(want(incident, caller.name), incident)), 202)


class IncidentEvidenceFile(APIView):
    @extend_schema(
        "incident_evidence_file",
        responses={(200, "application/zip"): OpenApiTypes.BINARY, 403: ERROR, 404: ERROR},
    )
    def get(self, request: Request, number: int, bundle_id: int) -> StreamingHttpResponse:
        """The bundle as a zip file. Only who may act may take evidence away."""
        _, incident = _exporting(request, number)
        bundle = incident.evidence_bundles.get(pk=bundle_id, state=EvidenceBundle.State.DONE)
        if not path_of(bundle).exists():
            raise EvidenceBundle.DoesNotExist
        headers = {
            "Content-Disposition": f'attachment; filename="incident-{number}-evidence.zip"',
            "Content-Length": str(path_of(bundle).stat().st_size),
        }
        return StreamingHttpResponse(
            one_by_one(_pieces(path_of(bundle))), content_type="application/zip", headers=headers
        )


class IncidentPostMortem(APIView):
    @extend_schema("incident_post_mortem", responses={(200, "text/markdown"): OpenApiTypes.STR, 404: ERROR})
    def get(self, request: Request, number: int) -> HttpResponse:
        """A draft of the post-mortem in Markdown, from what is known now."""
        incident = read.find_incident(number, caller_of(request.user).team_ids)
        headers = {"Content-Disposition": f'inline; filename="incident-{number}-post-mortem.md"'}
        return HttpResponse(post_mortem(incident), content_type="text/markdown; charset=utf-8", headers=headers)


def _exporting(request: Request, number: int) -> tuple[Caller, Incident]:
    caller = caller_of(request.user)
    incident = read.find_incident(number, caller.team_ids)
    if not caller.may("export", incident.team_id):
        raise PermissionDenied
    return caller, incident


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _row(one: EvidenceBundle, incident: Incident) -> EvidenceRow:
    newest = read.newest_revision(incident)
    return EvidenceRow(
        id=one.pk, state=one.state, step=one.step, progress=one.progress, wanted_by=one.wanted_by,
        wanted_at=iso(one.wanted_at) or "", done_at=iso(one.done_at), kept_until=iso(one.wanted_at + KEPT) or "",
        revision=one.revision, is_newest=one.revision == (newest.number if newest else 0), size_bytes=one.size_bytes,
        n_files=one.n_files, left_out=one.left_out, failed=one.failed,
    )  # fmt: skip
