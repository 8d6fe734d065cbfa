"""The REST API of what people tell us about a job: its thresholds, a pause, a report that something is wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

from django.core.exceptions import PermissionDenied
from django.utils import timezone
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.views import APIView

from console.accounts.access import Caller, caller_of
from console.dashboard.given import Fields
from console.dashboard.jobs import visible_jobs
from console.dashboard.schema import ERROR, an_object
from console.incidents.acts import asking, pauses, wanted_pace
from console.incidents.acts.api import seen_by
from console.incidents.api import REQUEST_KEY, REQUEST_KEY_MAX, actor_of
from console.incidents.lifecycle import NOTE_CHARS_MAX
from console.incidents.live import IncidentRow, TimelineRow
from console.incidents.rows import incident_row, iso, timeline_row
from console.incidents.watching import thresholds
from ingest.models import Job

SETTINGS = an_object(
    server_at=str, version=int, job_id=int, job=str, team=str, may=list[str], settings=list[thresholds.SettingRow],
    overridden=list[str], ignored=list[str], history=list[thresholds.ChangeRow],
)  # fmt: skip


IF_MATCH = OpenApiParameter(
    "If-Match", str, OpenApiParameter.HEADER, description="The ETag of the settings; instead of `version`."
)
OVERTAKEN = an_object(error=str, code=str, overtaken=list[thresholds.Overtaken], settings=SETTINGS)


class ChangeFields(Fields):
    """`changes`: name → number, or null for back to the default; all or none are made.

    `version`: of the settings you saw, unless the header If-Match says it.
    """

    changes = serializers.DictField(child=serializers.JSONField(allow_null=True))
    reason = serializers.CharField(max_length=NOTE_CHARS_MAX)
    version = serializers.IntegerField(required=False, min_value=0)


class PauseFields(Fields):
    reason = serializers.CharField(max_length=NOTE_CHARS_MAX)
    minutes = serializers.IntegerField(min_value=1, max_value=pauses.MINUTES_MAX)


class WantedPaceFields(Fields):
    reason = serializers.CharField(max_length=NOTE_CHARS_MAX)


class ReportFields(Fields):
    note = serializers.CharField(max_length=asking.REPORT_CHARS_MAX)
    since = serializers.DateTimeField(required=False)


class JobSettings(APIView):
    @extend_schema("job_settings", responses={200: SETTINGS, 404: ERROR})
    def get(self, request: Request, job_id: int) -> Response:
        """The job's thresholds: what is in force, what it may be, who changed it and why."""
        caller = caller_of(request.user)
        return _answer(caller, find_job(caller, job_id))

    @extend_schema(
        "job_settings_change",
        request=ChangeFields,
        parameters=[IF_MATCH],
        responses={200: SETTINGS, 400: ERROR, 403: ERROR, 404: ERROR, 409: OVERTAKEN, 412: OVERTAKEN},
    )
    def patch(self, request: Request, job_id: int) -> Response:
        """Change thresholds while the job runs; the next look uses them.

        Say what you saw: `version` is refused (409) when somebody changed one of these thresholds since, If-Match (412) when
        anybody changed any; `If-Match: *` overwrites whatever is there. The answer says who changed what, and why.
        """
        caller, job = _allowed(request, job_id, "configure")
        given = _given(ChangeFields, request)
        seen = seen_by(request, given)
        try:
            thresholds.change_settings(job, given["changes"], actor_of(caller), given["reason"], seen)
        except thresholds.ChangedMeanwhile as error:
            overtaken = [dataclasses.asdict(one) for one in error.overtaken]
            said = {"error": str(error), "code": "stale_version", "overtaken": overtaken}
            return Response({**said, "settings": _settings(caller, job)}, 412 if seen.exact else 409)
        return _answer(caller, job)


class JobPause(APIView):
    @extend_schema(
        "job_pause",
        request=PauseFields,
        responses={200: an_object(pause=pauses.PauseRow | None), 400: ERROR, 403: ERROR, 404: ERROR},
    )
    def post(self, request: Request, job_id: int) -> Response:
        """Say that nothing is expected of the job for a while, so that it may be idle."""
        caller, job = _allowed(request, job_id, "pause")
        given = _given(PauseFields, request)
        pause = pauses.declare_pause(job, actor_of(caller), given["reason"], given["minutes"])
        return Response({"pause": dataclasses.asdict(pause)})

    @extend_schema("job_pause_end", responses={200: an_object(pause=pauses.PauseRow | None), 403: ERROR, 404: ERROR})
    def delete(self, request: Request, job_id: int) -> Response:
        """End the pause early."""
        caller, job = _allowed(request, job_id, "pause")
        pauses.end_pause(job, actor_of(caller))
        return Response({"pause": None})


class JobWantedPace(APIView):
    @extend_schema(
        "job_wanted_pace",
        request=WantedPaceFields,
        responses={
            200: an_object(wanted_pace=wanted_pace.WantedPaceRow),
            400: ERROR,
            403: ERROR,
            404: ERROR,
            429: ERROR,
        },
    )
    def post(self, request: Request, job_id: int) -> Response:
        """Say that the job's pace was changed on purpose: what is slower since then is its normal from the next look on."""
        caller, job = _allowed(request, job_id, "pause")
        wanted = wanted_pace.declare_wanted(job, actor_of(caller), _given(WantedPaceFields, request)["reason"])
        return Response({"wanted_pace": dataclasses.asdict(wanted)})


class JobTriggers(APIView):
    @extend_schema(
        "job_report",
        request=ReportFields,
        parameters=[REQUEST_KEY],
        responses={
            200: an_object(incident=IncidentRow, entry=TimelineRow, opened=bool),
            400: ERROR, 403: ERROR, 404: ERROR, 429: ERROR,
        },
    )  # fmt: skip
    def post(self, request: Request, job_id: int) -> Response:
        """Report that something is wrong with the job: opens an incident, or adds to the one it has, and diagnoses it."""
        caller, job = _allowed(request, job_id, "trigger")
        given = _given(ReportFields, request)
        key = request.headers.get("Idempotency-Key", "")[:REQUEST_KEY_MAX]
        incident, entry, opened = asking.report(job, actor_of(caller), given["note"], given.get("since"), key)
        row, noted = dataclasses.asdict(incident_row(incident)), dataclasses.asdict(timeline_row(entry))
        return Response({"incident": row, "entry": noted, "opened": opened})


def find_job(caller: Caller, job_id: int) -> Job:
    """Job.DoesNotExist when there is none, or when it is another team's."""
    return visible_jobs(caller.team_ids).get(pk=job_id)


def job_acts(caller: Caller, job: Job) -> list[str]:
    """What this caller may do with the job."""
    return [verb for verb in ("configure", "pause", "trigger") if caller.may(verb, job.team_id)]


def _allowed(request: Request, job_id: int, verb: str) -> tuple[Caller, Job]:
    caller = caller_of(request.user)
    job = find_job(caller, job_id)
    if not caller.may(verb, job.team_id):
        raise PermissionDenied
    return caller, job


def _given(fields: type[Fields], request: Request) -> dict[str, Any]:
    given = fields(data=request.data)
    given.is_valid(raise_exception=True)
    found: dict[str, Any] = given.validated_data
    return found


def _answer(caller: Caller, job: Job) -> Response:
    body = _settings(caller, job)
    return Response(body, headers={"ETag": f'"{body["version"]}"'})


def _settings(caller: Caller, job: Job) -> dict[str, Any]:
    version = thresholds.version_of(job.pk)  # before the rows: a change in between is then refused, not overlooked
    rows = thresholds.read_settings(job.pk)
    return {
        "server_at": iso(timezone.now()), "version": version, "job_id": job.pk, "job": job.name, "team": job.team.name,
        "may": [verb for verb in job_acts(caller, job) if verb == "configure"],
        "settings": [dataclasses.asdict(row) for row in rows],
        "overridden": [f"{row.name}={row.value:g}" for row in rows if row.overridden],
        "ignored": thresholds.ignored(job.pk),
        "history": [dataclasses.asdict(row) for row in thresholds.read_history(job.pk)],
    }  # fmt: skip
