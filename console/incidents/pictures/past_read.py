"""Reading the grid of an earlier moment: of an incident, or of a job without one."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from django.db.models import Q

from console.incidents.lifecycle import BadAct
from console.incidents.models import ConditionState, DiagnosisRevision, Incident
from console.incidents.pictures.moments import first_data_ns
from console.incidents.pictures.past import LATE_NS, VERSION, Fault, encode_past, make_past
from console.incidents.read import newest_revision
from console.incidents.rows import iso_from_ns
from ingest.models import Attempt, Node
from ingest.read import latest_data_ns, read_window
from ingest.traces.held import Heard, read_heard
from rca.findings import diagnosis_from_json

SECOND: Final = 1_000_000_000
TABLES: Final = ("process", "progress")
HEARD_BACK_NS: Final = 30 * SECOND
SETTLED_AFTER_NS: Final = 10 * SECOND


@dataclass(frozen=True, slots=True)
class Asked:
    """A moment of an attempt. etag: another where the answer may be; is_settled: nothing that still comes changes it."""

    etag: str
    is_settled: bool
    body: Callable[[], bytes]


def incident_past(incident: Incident, at_ns: int, revision: int | None) -> Asked:
    """Blamed as by this revision of the diagnosis, the newest where None. Raises BadAct for a time nothing is known of, and
    DiagnosisRevision.DoesNotExist."""
    found = newest_revision(incident) if revision is None else incident.revisions.get(number=revision)
    fault = _fault(incident, found)
    return _asked(incident.attempt, at_ns, fault, _is_blame_known(incident, fault, at_ns))


def job_past(attempt: Attempt, at_ns: int) -> Asked:
    """Blamed as by the newest diagnosis of the incident of that time, if there was one. Raises BadAct."""
    lasting = ~Q(condition=ConditionState.CLEAR) | Q(last_seen_ns__gte=at_ns)
    begun = Incident.objects.filter(attempt=attempt, window_start_ns__lte=at_ns)
    incident = begun.filter(lasting).order_by("-id").first()
    if incident is None:
        return _asked(attempt, at_ns, None, is_blame_known=True)
    fault = _fault(incident, newest_revision(incident))
    return _asked(attempt, at_ns, fault, _is_blame_known(incident, fault, at_ns))


def _asked(attempt: Attempt, at_ns: int, fault: Fault | None, is_blame_known: bool) -> Asked:
    _check_time(attempt, at_ns)
    heard = read_heard(attempt.pk, at_ns - HEARD_BACK_NS, at_ns + 1)
    is_settled = is_blame_known and _is_all_told(attempt, at_ns)
    told = [(one.node, one.newest_ns, one.n_batches, one.received_at.isoformat()) for one in heard]
    blamed = (fault.revision, fault.from_ns, fault.until_ns) if fault else None
    about = (VERSION, attempt.pk, attempt.roster_version, at_ns, is_settled, blamed, told)
    return Asked(
        f'"{hashlib.sha256(repr(about).encode()).hexdigest()[:32]}"',
        is_settled,
        lambda: _body(attempt.pk, at_ns, heard, fault, is_settled),
    )


def _check_time(attempt: Attempt, at_ns: int) -> None:
    first_ns, newest_ns = first_data_ns(attempt.pk), latest_data_ns(attempt.pk)
    if not newest_ns:
        raise BadAct("Nothing was ever heard of this attempt, so there is no earlier moment to show.")
    if at_ns > newest_ns:
        raise BadAct(f"That time is not known yet: the newest data of this attempt is of {iso_from_ns(newest_ns)}.")
    if at_ns < first_ns:
        raise BadAct(f"Nothing was known then: the first data of this attempt is of {iso_from_ns(first_ns)}.")


def _is_all_told(attempt: Attempt, at_ns: int) -> bool:
    """Whether every node has told all of that time."""
    if attempt.state == Attempt.State.ENDED:
        return True
    behind = Q(watermark_ns__lt=at_ns + SETTLED_AFTER_NS) | Q(catching_up=True)
    return not Node.objects.filter(behind, attempt=attempt).exists()


def _body(attempt_id: int, at_ns: int, heard: list[Heard], fault: Fault | None, is_settled: bool) -> bytes:
    window = read_window(attempt_id, at_ns - LATE_NS, at_ns + 1, TABLES, now_ns=at_ns)
    return encode_past(make_past(window, {one.node: one.newest_ns for one in heard}, fault), is_settled)


def _fault(incident: Incident, revision: DiagnosisRevision | None) -> Fault | None:
    """From when the fault began, by the evidence or its first symptom, until a look saw it last, where it is over."""
    if revision is None:
        return None
    diagnosis = diagnosis_from_json(revision.body)
    began_ns = [finding.began_ns for finding in diagnosis.findings[:1] if finding.began_ns]
    from_ns = min([incident.first_symptom_ns, *began_ns])
    is_over = incident.condition == ConditionState.CLEAR
    return Fault(diagnosis, revision.number, from_ns, _seen_until_ns(incident) if is_over else None)


def _seen_until_ns(incident: Incident) -> int:
    return max(incident.last_seen_ns, incident.triggered_ns)


def _is_blame_known(incident: Incident, fault: Fault | None, at_ns: int) -> bool:
    """Not of a time after the last look that saw the fault, until it is over: it may have been over by then."""
    if fault is None or at_ns < fault.from_ns or incident.condition == ConditionState.CLEAR:
        return True
    return at_ns <= _seen_until_ns(incident)
