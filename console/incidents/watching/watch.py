"""A look at a job: read a small window, ask the trigger, and follow what it saw with an incident.

`watch_job` is called every ten seconds for every job and every second for those just heard from; it makes no difference
who calls. Looks reason in data time. What the trigger saw opens an incident at once, as suspected; the diagnosis follows
in the same look (revise.py). The condition is the machine's own: it clears after several clean looks in which the job
visibly went on, never because data stopped coming.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from django.conf import settings
from django.db import IntegrityError, connection
from django.utils import timezone

from console.dashboard.jobs import read_job_row
from console.dumps.news import death_of, explanation_of, follow_dumps, is_held
from console.dumps.reading import debt_of, settle
from console.dumps.wanted import ask_for
from console.incidents import lifecycle
from console.incidents.acts.again import ask_if_never_diagnosed, diagnose_asked
from console.incidents.acts.pauses import pause_sentence
from console.incidents.acts.wanted_pace import with_wanted
from console.incidents.models import ConditionState, Incident, State
from console.incidents.publish import publish_job
from console.incidents.severity import worse
from console.incidents.watching.another import (
    is_another_kind,
    is_lately_resolved,
    is_untold,
    may_come_back,
    names_another,
    newest_of,
)
from console.incidents.watching.beside import read_beside
from console.incidents.watching.graver import GOT_WORSE, is_graver
from console.incidents.watching.kept import EVIDENCE_BEFORE_NS, keep_evidence, keep_failure, keep_look, load_normal
from console.incidents.watching.over import is_over
from console.incidents.watching.paging import page_if_due, paging
from console.incidents.watching.revise import (
    Judged,
    evidence_start_ns,
    judged,
    revise,
    revise_dumped,
    revise_late,
    sight_of,
)
from console.incidents.watching.suspicion import UNDIAGNOSED, communicator_name, suspected_headline
from console.incidents.watching.thresholds import settings_of
from console.operations.metrics import LOOKS, count_look
from console.stages.joining import seen_in_stages
from ingest.jobs.endings import end_if_all_gone
from ingest.models import Attempt
from ingest.read import latest_data_ns
from ingest.traces.narrow import read_evidence, read_glance, read_ops_of
from ingest.window import Window
from rca.findings import Symptom, SymptomKind
from rca.settings import DEFAULT, Settings
from rca.slow.iterations import LENGTH_COLUMNS
from rca.triggers import look as triggers
from rca.triggers.normal import Normal
from rca.triggers.pace import history_ns
from rca.triggers.sampling import sampled_ranks

SECOND: Final = 1_000_000_000
WATCH_LOCK: Final = 0x44474F57  # first key of the advisory locks that looks take; the second is the attempt
DUMPS_LOCK: Final = 0x44474F58  # the same of those who read dumps
ALSO_SEEN_MAX: Final = 5


def watch_job(attempt_id: int) -> None:
    """One look at an attempt; returns at once while somebody else is looking at it."""
    with _alone(attempt_id) as is_mine:
        attempt = Attempt.objects.select_related("job__team").filter(pk=attempt_id).first()
        if not is_mine or attempt is None:
            return
        try:
            if attempt.state == Attempt.State.RUNNING and not end_if_all_gone(attempt.pk):
                _look(attempt)
            if Incident.objects.filter(job=attempt.job_id).exists():  # most jobs never have one
                close_ended(attempt.job_id)
                diagnose_asked(attempt.pk)
                revise_late(attempt.pk)
        finally:
            publish_job(attempt.job.team_id, read_job_row(attempt.job))


def watch_dumps(attempt_id: int) -> None:
    """Read what dumps have come. Apart from looks, which go on meanwhile; only the diagnosis made with them takes its turn."""
    with _alone(attempt_id, DUMPS_LOCK) as is_mine:
        incident = follow_dumps(attempt_id) if is_mine else None
        if incident is None:
            return
        with _in_turn(attempt_id):
            incident.refresh_from_db()
            debt = debt_of(attempt_id)
            if incident.condition == ConditionState.FIRING or incident.symptom == SymptomKind.EXTERNAL:
                revise_dumped(incident)
            settle(attempt_id, debt)
        publish_job(incident.team_id, read_job_row(incident.job))


def close_ended(job_id: int | None = None) -> None:
    """Resolve what is left open of attempts that ended, of one job or of all."""
    left = Incident.objects.exclude(state=State.RESOLVED).filter(attempt__state=Attempt.State.ENDED)
    for incident in left.filter(job=job_id) if job_id is not None else left:
        if incident.condition != ConditionState.CLEAR:
            _set_condition(incident, ConditionState.CLEAR, "the attempt ended")
            ask_if_never_diagnosed(incident)
        _resolve(incident, "job ended")


def _look(attempt: Attempt) -> None:
    end_ns = latest_data_ns(attempt.pk) + 1
    beside = read_beside(attempt)
    if end_ns == 1 or beside.seen_ns >= end_ns:
        return  # nothing new: the same look would see the same
    began = time.monotonic()
    try:
        normal = load_normal(attempt.pk)
        normal = with_wanted(normal, attempt.pk) if beside.wanted > normal.declaration else normal
        thresholds = settings_of(attempt.job_id) if beside.has_overrides else DEFAULT
        span = end_ns - int(settings.LOOK_WINDOW_SECONDS * SECOND), end_ns
        window = read_glance(attempt.pk, *span, lambda frame: sampled_ranks(frame, thresholds).tolist())
        history = _history(attempt, window, normal, thresholds)
        excuse = pause_sentence(attempt) if beside.is_paused else ""
        seen = triggers.look(window, normal, thresholds, history, excuse)
        if _asks_for_more(window, seen):
            window = read_evidence(attempt.pk, min(span[0], _evidence_start_ns(seen, end_ns)), end_ns)
            seen = triggers.look(window, normal, thresholds, history, excuse)
        if is_over(window):
            death = death_of(attempt.pk, window)
            seen = dataclasses.replace(
                seen, symptoms=(death,) if death else (), held="" if death else "Every process of the job is gone."
            )
        seen = seen_in_stages(attempt, window, seen) if beside.has_stages else seen
        if seen.symptoms or beside.has_incidents:
            _follow(attempt, window, seen, thresholds)
        keep_look(attempt, end_ns, seen)  # last: a look counts when all of it succeeded
        count_look(began, end_ns, seen.symptoms[0].kind.value if seen.symptoms else "none")
    except Exception as error:
        LOOKS.labels("failed").inc()
        keep_failure(attempt, end_ns, error)  # a job nobody can look at must not seem healthy
        raise


def _asks_for_more(window: Window, seen: triggers.Look) -> bool:
    """Whether what a glance at the sampled ranks saw must be judged by everybody's rows; their pace is theirs alone."""
    is_standing = any(symptom.kind is not SymptomKind.STRAGGLER for symptom in seen.symptoms)
    return is_standing or bool(seen.held) or bool((window.rows("process")["alive"] == 0).any())


def _evidence_start_ns(seen: triggers.Look, end_ns: int) -> int:
    """From when on the diagnosis that may follow wants to read: what is read once need not be read again for it."""
    standing = [symptom for symptom in seen.symptoms if symptom.kind is not SymptomKind.STRAGGLER]
    return min((evidence_start_ns(symptom, end_ns) for symptom in standing), default=end_ns)


def _follow(attempt: Attempt, window: Window, seen: triggers.Look, thresholds: Settings) -> None:
    """One incident follows the attempt's trouble until its condition is clear, whatever people do with it."""
    symptoms, excuse = seen.symptoms, seen.excused
    if symptoms and (explained := explanation_of(attempt.pk, symptoms[0], thresholds)):
        symptoms, excuse = (), explained
    following = Incident.objects.filter(attempt=attempt).exclude(state=State.RESOLVED, condition=ConditionState.CLEAR)
    incident = following.order_by("-id").first()
    if symptoms:
        _follow_trouble(attempt, incident, symptoms, window, thresholds)
    elif incident is not None and excuse and incident.symptom == SymptomKind.IDLE:
        _excuse(incident, excuse)
    elif incident is not None:
        _calm(incident, window)


def _follow_trouble(
    attempt: Attempt, incident: Incident | None, symptoms: tuple[Symptom, ...], window: Window, thresholds: Settings
) -> None:
    """The incident, or a new one, fires by these symptoms, and is diagnosed."""
    first = symptoms[0]
    over = incident if incident is not None and is_another_kind(incident, first) else None
    incident = None if over else incident
    if incident is None and is_held(attempt.pk, first):
        return
    is_new = incident is None or is_graver(incident, first)
    judgement = judged(attempt.pk, first, window, thresholds) if is_new else Judged(is_worth=True)
    if not judgement.is_worth and incident is None:
        return
    before, sight = incident or newest_of(attempt, first), judgement.sight
    if before is not None and may_come_back(before):
        sight = sight or sight_of(attempt.pk, first, window, thresholds)
        if is_untold(sight):
            return
        if names_another(before, sight):
            over, incident, before = over or incident, None, None
    if over:
        _resolve(over, "clear; another trouble began")
    gets_worse = is_new and judgement.is_worth
    incident = _fire(incident, symptoms, window, gets_worse) if incident else _raise(attempt, first, window, before)
    page_if_due(incident, first, window.end_ns, thresholds)
    keep_evidence(incident)
    ask_for(incident)
    revise(incident, first, window, thresholds, sight)


def _excuse(incident: Incident, why: str) -> None:
    """What nobody needs to wake up for has been explained, as by a pause that was declared meanwhile."""
    if incident.condition != ConditionState.CLEAR:
        _set_condition(incident, ConditionState.CLEAR, why, cleared_at=timezone.now())


def _raise(attempt: Attempt, symptom: Symptom, window: Window, earlier: Incident | None) -> Incident:
    """A new incident; or the earlier one that this is the return of, when it was resolved only lately: it has regressed."""
    key = incident_key(attempt, symptom)
    if earlier is not None and is_lately_resolved(earlier):
        lifecycle.move(earlier.pk, "reopen", lifecycle.DETECTOR, note=symptom.sentence, regressed=True)
        _start_anew(earlier, symptom, window)
        return earlier
    fields = {"team": attempt.job.team, "job": attempt.job, "attempt": attempt, "key": key}
    fields |= {"symptom": symptom.kind.value, "recurrence_of": earlier, **_suspicion(symptom, window)}
    fields |= paging(symptom)
    try:
        incident = lifecycle.open_incident(fields, note=symptom.sentence)
    except IntegrityError:  # the database's own rule: somebody opened one by another door
        incident = Incident.objects.exclude(state=State.RESOLVED).get(attempt=attempt)
    return incident


def _fire(incident: Incident, symptoms: tuple[Symptom, ...], window: Window, gets_worse: bool) -> Incident:
    """The trouble goes on, is back before anybody resolved it, or gets worse."""
    if incident.condition == ConditionState.CLEAR:
        _start_anew(incident, symptoms[0], window)
    elif gets_worse:
        _reopen(incident, symptoms[0])
        _start_anew(incident, symptoms[0], window, GOT_WORSE)
    elif incident.condition == ConditionState.CLEARING:
        _set_condition(incident, ConditionState.FIRING, symptoms[0].sentence)
    _mark(incident, last_seen_ns=window.end_ns, clean_looks=0, clean_look_at=None)
    for symptom in symptoms:
        _also_seen(incident, symptom, window)
    return incident


def _calm(incident: Incident, window: Window) -> None:
    """A look without symptoms: one step towards clear, if the job visibly went on since the trouble was last seen."""
    now = timezone.now()
    if incident.condition == ConditionState.CLEAR:
        return _resolve_when_long_clear(incident, window)
    pause = timedelta(seconds=settings.CLEAN_LOOK_SECONDS)
    too_soon = incident.clean_look_at is not None and now - incident.clean_look_at < pause
    if too_soon or not _went_on(window, incident.last_seen_ns):
        return
    _mark(incident, clean_looks=incident.clean_looks + 1, clean_look_at=now)
    if incident.clean_looks >= settings.CLEAN_LOOKS_TO_CLEAR:
        _set_condition(incident, ConditionState.CLEAR, "ops complete again", cleared_at=now)
        ask_if_never_diagnosed(incident)
    elif incident.clean_looks > 1 and incident.condition == ConditionState.FIRING:
        _set_condition(incident, ConditionState.CLEARING, "ops complete again")


def _went_on(window: Window, since_ns: int) -> bool:
    """Whether ops were completed, or enqueued where completion cannot be seen, after `since_ns`."""
    told = (("op", "done_ns"), ("progress", "last_enqueued_ns"), ("status", "changed_ns"))
    return any(bool((window.rows(table)[column] > since_ns).any()) for table, column in told)


def _start_anew(incident: Incident, symptom: Symptom, window: Window, verb: str = "fired again") -> None:
    """The trouble, or a graver one, from the start: the old diagnosis stays in the revisions, but is no longer the answer."""
    fields = {**UNDIAGNOSED, **_suspicion(symptom, window), "condition": ConditionState.FIRING}
    if is_graver(incident, symptom) and incident.symptom != SymptomKind.EXTERNAL:
        fields["symptom"] = symptom.kind.value  # the key stays as it opened: tickets elsewhere go by it
    fields |= {
        "n_victims": 0,
        "cleared_at": None,
        "analysed_at": None,
        **paging(symptom),
        **worse(incident, symptom.kind),
    }
    before = incident.condition
    lifecycle.observe(incident, verb, fields, before=before, after=ConditionState.FIRING, note=symptom.sentence)


def _reopen(incident: Incident, symptom: Symptom) -> None:
    """Who resolved it while it fired has settled the lesser trouble."""
    if incident.state != State.RESOLVED:
        return
    try:
        lifecycle.move(incident.pk, "reopen", lifecycle.DETECTOR, note=symptom.sentence)
    except (lifecycle.IllegalMove, IntegrityError):
        return  # a person was faster, or has opened an older one of the attempt


def _also_seen(incident: Incident, symptom: Symptom, window: Window) -> None:
    """Further symptoms of the same attempt follow from the first: they are noted, they do not open incidents."""
    if incident_key(incident.attempt, symptom) == incident.key or symptom.kind == incident.symptom:
        return
    name = communicator_name(window, symptom.comm_id)
    note = f"Also seen: {symptom.kind.value}" + (f" in {name}" if name else "")
    noted = incident.timeline.filter(verb="attached").values_list("note", flat=True)
    if note not in noted and len(noted) < ALSO_SEEN_MAX:
        lifecycle.observe(incident, "attached", worse(incident, symptom.kind), note=note)


def _suspicion(symptom: Symptom, window: Window) -> dict[str, Any]:
    """What an incident says before anything is diagnosed."""
    return {
        "comm_id": f"{symptom.comm_id:016x}" if symptom.comm_id else "",
        "communicator": communicator_name(window, symptom.comm_id),
        "headline": suspected_headline(window, symptom),
        "first_symptom_ns": symptom.at_ns,
        "triggered_ns": symptom.seen_ns,
        "last_seen_ns": window.end_ns,
        "window_start_ns": symptom.at_ns - EVIDENCE_BEFORE_NS,
        "window_end_ns": window.end_ns,
    }


def incident_key(attempt: Attempt, symptom: Symptom) -> str:
    """Job, attempt, symptom kind and communicator; never the culprit, which a later diagnosis may change."""
    return f"v1:{attempt.job_id}:{attempt.number}:{symptom.kind.value}:{symptom.comm_id:016x}"


def _set_condition(incident: Incident, after: ConditionState, why: str, **fields: Any) -> None:
    before = incident.condition
    lifecycle.observe(incident, after, {"condition": after, **fields}, before=before, after=after, note=why)


def _resolve_when_long_clear(incident: Incident, window: Window) -> None:
    """Time in which nobody could hear of the job was not quiet: an outage of ours starts the patience anew."""
    if incident.state == State.RESOLVED or incident.cleared_at is None:
        return
    if incident.symptom == SymptomKind.EXTERNAL:  # no trigger saw it, so that none sees it ends nothing: people do
        return
    seen_since = max(incident.cleared_at, datetime.fromtimestamp(window.heard_since_ns / 1e9, UTC))
    if timezone.now() - seen_since > timedelta(seconds=settings.RESOLVE_AFTER_CLEAR_SECONDS):
        _resolve(incident, "condition cleared")


def _resolve(incident: Incident, why: str) -> None:
    try:
        lifecycle.move(incident.pk, "resolve", lifecycle.DETECTOR, note=why)
    except lifecycle.IllegalMove:
        return  # a person was faster


def _mark(incident: Incident, **fields: Any) -> None:
    """Columns of our own bookkeeping, which nobody is shown: no version, no timeline."""
    Incident.objects.filter(pk=incident.pk).update(**fields)
    for name, value in fields.items():
        setattr(incident, name, value)


def _history(attempt: Attempt, window: Window, normal: Normal, thresholds: Settings) -> Window | None:
    """The ops of the sampled ranks over a longer time, for a job whose iterations a look's window does not hold."""
    back_ns = history_ns(normal.pace, window.end_ns, thresholds, window.end_ns - window.start_ns)
    if not back_ns:
        return None
    ranks = sampled_ranks(window, thresholds).tolist()
    return read_ops_of(attempt.pk, window.end_ns - back_ns, window.end_ns, ranks, LENGTH_COLUMNS)


@contextmanager
def _alone(attempt_id: int, lock: int = WATCH_LOCK) -> Iterator[bool]:
    """Whether nobody else looks at this attempt, or reads its dumps, meanwhile."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [lock, attempt_id])
        is_mine = bool(cursor.fetchone()[0])
        try:
            yield is_mine
        finally:
            if is_mine:
                cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [lock, attempt_id])


@contextmanager
def _in_turn(attempt_id: int) -> Iterator[None]:
    """After the look that is taken now; the next is taken afterwards."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_lock(%s, %s)", [WATCH_LOCK, attempt_id])
        try:
            yield
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [WATCH_LOCK, attempt_id])
