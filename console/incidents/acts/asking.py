"""What people and their watchdogs ask for: "something is wrong with this job", and "diagnose this again".

Asking is noted at once and answered by a worker (again.py), since rules never run in the web process. A report attaches
to the incident its attempt already has, else it opens one; a report repeated with its key is the same report. The
condition of a reported incident starts clear: the machine has seen nothing, and says so.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from console.incidents import lifecycle
from console.incidents.lifecycle import Actor, BadAct, TooMany, checked_note
from console.incidents.models import ActorKind, ConditionState, Incident, State, TimelineEntry
from console.incidents.watching.suspicion import HEADLINE_CHARS_MAX, HEADLINES
from console.operations.metrics import ASKED_TOO_OFTEN
from ingest.door.marks import mark_heard
from ingest.models import Attempt, Job
from ingest.read import latest_data_ns
from rca.findings import SymptomKind

SECOND: Final = 1_000_000_000
ASKED_MAX: Final = 10
ASKED_WITHIN: Final = timedelta(minutes=10)
SINCE_MAX: Final = timedelta(hours=24)
REPORT_CHARS_MAX: Final = 2000
BEFORE_NS: Final = 30 * SECOND  # who says nothing of when it began means just now
_REPORTED: Final = ("opened", "reported", "reopened")


def report(
    job: Job, actor: Actor, note: str, since: datetime | None = None, request_key: str = ""
) -> tuple[Incident, TimelineEntry, bool]:
    """Somebody says that something is wrong: (incident, what was noted, whether it was opened). Raises BadAct, TooMany."""
    note = checked_note(note, needed=True)
    if len(note) > REPORT_CHARS_MAX:
        raise BadAct(f"At most {REPORT_CHARS_MAX} characters.")
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=job.pk)  # two reports at once are one incident
        entries = TimelineEntry.objects.filter(incident__job=job)
        if done := lifecycle.done_before(entries, actor, _REPORTED, request_key):
            return done.incident, done, False
        _check_often(entries.filter(verb__in=_REPORTED), "reports of this job")
        attempt = _running(job)
        at_ns = _began_ns(attempt, since)
        incident = _followed(attempt)
        entry = _attach(incident, actor, note, request_key) if incident else None
        if entry is None:
            entry = _open(attempt, actor, note, at_ns, request_key)
        _ask(entry.incident)
    return Incident.objects.get(pk=entry.incident_id), entry, entry.verb == "opened"


def diagnose_again(number: int, actor: Actor, note: str = "", request_key: str = "") -> tuple[Incident, TimelineEntry]:
    """Somebody wants the diagnosis made anew, by today's rules and thresholds. Raises BadAct, TooMany."""
    with transaction.atomic():
        incident = Incident.objects.select_for_update().get(pk=number)
        asked = incident.timeline.filter(verb="asked again")
        if done := lifecycle.done_before(asked, actor, ("asked again",), request_key):
            return incident, done
        _check_often(asked, "times that this incident is diagnosed again")
        incident, entry = lifecycle.remark(number, actor, "asked again", note, request_key)
        _ask(incident)
    return incident, entry


def _check_often(entries: QuerySet[TimelineEntry], what: str) -> None:
    lately = entries.filter(at__gte=timezone.now() - ASKED_WITHIN).exclude(actor_kind=ActorKind.DETECTOR)
    if lately.count() >= ASKED_MAX:
        ASKED_TOO_OFTEN.inc()
        raise TooMany(f"At most {ASKED_MAX} {what} in {ASKED_WITHIN.seconds // 60} minutes.")


def _running(job: Job) -> Attempt:
    attempt = Attempt.objects.select_related("job").filter(job=job).order_by("-number").first()
    if attempt is None or not latest_data_ns(attempt.pk):
        raise BadAct("Nothing was ever heard of this job, so there is nothing to diagnose.")
    if attempt.state != Attempt.State.RUNNING:
        raise BadAct("This job has ended, so nothing can be reported of it.")
    return attempt


def _began_ns(attempt: Attempt, since: datetime | None) -> int:
    """Data time from which on something is wrong, as the reporter says."""
    newest_ns = latest_data_ns(attempt.pk)
    if since is None:
        return newest_ns - BEFORE_NS
    now = timezone.now()
    if not now - SINCE_MAX <= since <= now + timedelta(minutes=1):
        raise BadAct(f"It must have begun within the last {SINCE_MAX.days * 24} hours.")
    return min(int(since.timestamp() * SECOND), newest_ns)


def _followed(attempt: Attempt) -> Incident | None:
    """The incident the attempt's trouble belongs to, if there is one."""
    following = Incident.objects.filter(attempt=attempt).exclude(state=State.RESOLVED, condition=ConditionState.CLEAR)
    unresolved = following.exclude(state=State.RESOLVED).first()  # beside it no other of the attempt can be reopened
    return unresolved or following.order_by("-id").first()


def _attach(incident: Incident, actor: Actor, note: str, request_key: str) -> TimelineEntry:
    if incident.state == State.RESOLVED:  # by a person, while it still fires
        return lifecycle.move(incident.pk, "reopen", actor, note=note, request_key=request_key)[1]
    return lifecycle.remark(incident.pk, actor, "reported", note, request_key)[1]


def _open(attempt: Attempt, actor: Actor, note: str, at_ns: int, request_key: str) -> TimelineEntry:
    newest_ns = latest_data_ns(attempt.pk)
    kind = SymptomKind.EXTERNAL
    fields: dict[str, Any] = {
        "team": attempt.job.team, "job": attempt.job, "attempt": attempt, "symptom": kind.value,
        "key": f"v1:{attempt.job_id}:{attempt.number}:{kind.value}:{0:016x}",
        "headline": f"{HEADLINES[kind]}: {note}"[:HEADLINE_CHARS_MAX],
        "first_symptom_ns": at_ns, "triggered_ns": newest_ns, "last_seen_ns": newest_ns,
        "window_start_ns": at_ns, "window_end_ns": newest_ns,
    }  # fmt: skip
    fields["recurrence_of"] = Incident.objects.filter(key=fields["key"]).order_by("-id").first()
    try:
        incident = lifecycle.open_incident(fields, actor, note, request_key)
    except IntegrityError:  # a trigger was faster
        opened = Incident.objects.exclude(state=State.RESOLVED).get(attempt=attempt)
        return _attach(opened, actor, note, request_key)
    lifecycle.observe(
        incident, "clear", {"condition": ConditionState.CLEAR, "cleared_at": timezone.now()},
        before=ConditionState.FIRING, after=ConditionState.CLEAR, note="no trigger sees anything",
    )  # fmt: skip
    return incident.timeline.get(verb="opened")


def _ask(incident: Incident) -> None:
    """Whoever looks at the attempt next diagnoses this incident; the mark makes that the next second."""
    Incident.objects.filter(pk=incident.pk).update(asked_at=timezone.now())
    transaction.on_commit(partial(mark_heard, [incident.attempt_id]))
