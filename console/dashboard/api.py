"""The REST API of everything but incidents: session, the Now page, jobs, nodes."""

from __future__ import annotations

import dataclasses
from typing import Any

from django.conf import settings
from django.http import HttpResponse
from django.middleware.csrf import get_token
from django.utils import timezone
from drf_spectacular.utils import extend_schema
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import caller_of
from console.dashboard import jobs
from console.dashboard.deviations import settings_overridden
from console.dashboard.figures import throughput_figure
from console.dashboard.ingest_health import read_ingest_total
from console.dashboard.job_api import find_job, job_acts
from console.dashboard.schema import ERROR, an_object, schema_of
from console.incidents.acts.pauses import PauseRow, read_pause
from console.incidents.acts.wanted_pace import WantedPaceRow, read_wanted
from console.incidents.api import STREAM, STREAMS, team_streams
from console.incidents.live import IncidentRow, IngestRow, JobRow
from console.incidents.pictures.answers import packed_answer
from console.incidents.pictures.grid import Grid
from console.incidents.pictures.job_grid import packed_job_grid
from console.incidents.read import read_current, visible_incidents
from console.incidents.rows import incident_row, iso
from console.operations.metrics import SNAPSHOTS
from ingest.models import Team
from ingest.traces.let_go import read_let_go

INCIDENTS_OF_JOB_MAX = 50


class Session(APIView):
    @extend_schema(
        operation_id="session",
        responses={
            200: an_object(
                user=str,
                name=str,
                roles=dict[str, str],
                role=str | None,
                csrf=str,
                server_at=str,
                version=str,
                demo=bool,
                settings_overridden=list[str],
            )
        },
    )
    def get(self, request: Request) -> Response:
        """Who you are, what you may do, and what the page needs to act for you."""
        caller = caller_of(request.user)
        teams = {team.pk: team.name for team in Team.objects.filter(pk__in=caller.team_ids)}
        full_name = getattr(request.user, "get_full_name", str)()
        return Response(
            {
                "user": caller.name,
                "name": full_name or caller.name,
                "roles": {teams[team_id]: role.value for team_id, role in caller.roles.items()},
                "role": caller.highest_role,
                "csrf": get_token(request._request) if caller.kind == "user" else "",
                "server_at": iso(timezone.now()),
                "version": settings.VERSION,
                "demo": settings.DEMO,
                "settings_overridden": settings_overridden(caller.team_ids),
            }
        )


class Now(APIView):
    @extend_schema(
        operation_id="now",
        responses={
            200: an_object(
                stream=STREAM,
                streams=STREAMS,
                server_at=str,
                jobs=list[JobRow],
                incidents=list[IncidentRow],
                ingest=IngestRow | None,
            )
        },
    )
    def get(self, request: Request) -> Response:
        """Jobs, current incidents and ingest's health: the snapshot that the teams' live streams continue."""
        SNAPSHOTS.labels("now").inc()
        caller = caller_of(request.user)
        streams = team_streams(caller)  # before the rows: what comes later is then sent once more
        ingest = read_ingest_total(caller.team_ids)
        return Response(
            {
                **streams,
                "server_at": iso(timezone.now()),
                "jobs": [dataclasses.asdict(row) for row in jobs.read_job_rows(caller.team_ids)],
                "incidents": [dataclasses.asdict(row) for row in read_current(caller.team_ids)],
                "ingest": dataclasses.asdict(ingest) if ingest else None,
            }
        )


class JobList(APIView):
    @extend_schema(
        operation_id="jobs_list",
        responses={200: an_object(stream=STREAM, streams=STREAMS, server_at=str, jobs=list[JobRow])},
    )
    def get(self, request: Request) -> Response:
        """The newest jobs."""
        caller = caller_of(request.user)
        streams = team_streams(caller)
        rows = [dataclasses.asdict(row) for row in jobs.read_job_rows(caller.team_ids)]
        return Response({**streams, "server_at": iso(timezone.now()), "jobs": rows})


class JobDetail(APIView):
    @extend_schema(
        operation_id="job_read",
        responses={
            200: an_object(
                server_at=str,
                job=JobRow,
                looks=list[jobs.LookRow],
                incidents=list[IncidentRow],
                may=list[str],
                pause=PauseRow | None,
                wanted_pace=WantedPaceRow | None,
            ),
            404: ERROR,
        },
    )
    def get(self, request: Request, job_id: int) -> Response:
        """One job, its newest incidents, and every look the trigger took lately."""
        caller = caller_of(request.user)
        job = find_job(caller, job_id)
        pause, wanted = read_pause(jobs.newest_attempt(job)), read_wanted(jobs.newest_attempt(job))
        incidents = visible_incidents(caller.team_ids).filter(job=job).order_by("-id")[:INCIDENTS_OF_JOB_MAX]
        return Response(
            {
                "server_at": iso(timezone.now()),
                "job": dataclasses.asdict(jobs.read_job_row(job)),
                "looks": [dataclasses.asdict(row) for row in jobs.read_looks(job)],
                "incidents": [dataclasses.asdict(incident_row(incident)) for incident in incidents],
                "may": job_acts(caller, job),
                "pause": dataclasses.asdict(pause) if pause else None,
                "wanted_pace": dataclasses.asdict(wanted) if wanted else None,
            }
        )


class JobGrid(APIView):
    @extend_schema(operation_id="job_grid", responses={200: schema_of(Grid), 404: ERROR})
    def get(self, request: Request, job_id: int) -> HttpResponse:
        """The state of every rank of the job now, as columns; read at most every four seconds, for all who ask."""
        return packed_answer(request, packed_job_grid(find_job(caller_of(request.user), job_id)))


class JobThroughput(APIView):
    @extend_schema(
        operation_id="job_throughput",
        responses={
            200: an_object(data=list[dict[str, Any]], layout=dict[str, Any], config=dict[str, Any], text=str),
            404: ERROR,
        },
    )
    def get(self, request: Request, job_id: int) -> Response:
        """Ops completed per second by kind, as a plotly figure and in words."""
        job = find_job(caller_of(request.user), job_id)
        return Response(throughput_figure(job.name, jobs.newest_attempt(job)))


class NodeList(APIView):
    @extend_schema(
        operation_id="nodes_list",
        responses={200: an_object(server_at=str, nodes=list[jobs.NodeRow], let_go=dict[str, int])},
    )
    def get(self, request: Request) -> Response:
        """Every node of every job's newest attempt, and what retention of this installation let go of, ever, by kind."""
        rows = [dataclasses.asdict(row) for row in jobs.read_node_rows(caller_of(request.user).team_ids)]
        return Response({"server_at": iso(timezone.now()), "nodes": rows, "let_go": read_let_go()})
