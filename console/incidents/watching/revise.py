"""The diagnosis of an incident, and its revisions while the trouble lasts.

A revision is stored when the answer changed (who, what, how sure), not when a number did. Early looks revise often,
because nodes report at different times; after a while the picture is frozen, since what led to the stall scrolls out of
sight. Batches that come later still, from a spool, revise the diagnosis whose window they fall in, also when all is over:
they and dumps alone take back a name that was not weak.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Final, Protocol

from django.conf import settings
from django.db import transaction
from django.utils import timezone

from console.dumps import reading as dumps
from console.incidents import lifecycle
from console.incidents.models import Certainty, DiagnosisRevision, Incident
from console.incidents.rows import CULPRITS_SHOWN_MAX
from console.incidents.watching.changes import changes
from console.incidents.watching.graver import is_graver_kind, is_outgrown
from console.incidents.watching.suspicion import UNDIAGNOSED, suspected_headline
from console.incidents.watching.thresholds import settings_of
from console.stages.joining import staged
from ingest.models import Node
from ingest.read import has_new_batches
from ingest.traces.narrow import SlowEvidence, read_evidence
from ingest.window import Window
from rca.diagnose import diagnose
from rca.findings import Diagnosis, FaultKind, Finding, Grade, Symptom, SymptomKind, diagnosis_from_json, to_json
from rca.narrowed import TOO_MUCH, diagnose_all, diagnose_slow, is_part, unseen_of
from rca.settings import Settings
from rca.triggers.look import is_halved

SECOND: Final = 1_000_000_000
EAGER_NS: Final = 10 * SECOND  # until so long after the trigger every look revises
EARLY_ITERATIONS: Final = 8  # slow ones: of fewer neither their mean nor how they vary tells much
COUNTED_NS: Final = (
    4 * SECOND
)  # NICs count about once a second; of fewer than three readings whose bytes fill them is not known
LINK_SURE_MIN: Final = 0.75  # score of a link, by half of what is lost: only which of its ends it is is not sure
FROZEN_NS: Final = 45 * SECOND  # data later than this after the trigger is not analysed
BEFORE_NS: Final = 5 * SECOND
SLOWDOWN_BEFORE_NS: Final = 20 * SECOND  # what is slow is compared with the iterations before
SLOWDOWN_BEFORE_ITERATIONS: Final = 6
SLOWDOWN_BACK_NS_MAX: Final = 240 * SECOND
BACK_NS_MAX: Final = 60 * SECOND
PATIENT_SECONDS: Final = 5.0
COMMIT_SECONDS: Final = 10.0  # a batch may be received before a diagnosis reads, and committed so long afterwards
LATE_INCIDENTS_MAX: Final = 3  # of an attempt, the newest


class Found(Protocol):
    """The evidence and its diagnosis, once they are wanted; `everything`: of no part of the nodes, where they can be read."""

    def __call__(self, *, everything: bool = ...) -> tuple[Window, Diagnosis]: ...


@dataclass(frozen=True, slots=True)
class Sight:
    """What was made of a symptom before there was an incident. span: of the evidence, unix ns."""

    span: tuple[int, int]
    symptom: Symptom
    window: Window
    diagnosis: Diagnosis

    def is_of(self, span: tuple[int, int], symptom: Symptom) -> bool:
        return (self.span, self.symptom) == (span, symptom)


@dataclass(frozen=True, slots=True)
class Judged:
    """Whether a symptom is worth an incident, and what this was seen by; None where no diagnosis was asked for."""

    is_worth: bool
    sight: Sight | None = None


def revise(
    incident: Incident, symptom: Symptom, seen: Window, thresholds: Settings, sight: Sight | None = None
) -> None:
    """Diagnose the incident again if it is time to, and store the answer if it is another one.

    `seen` is the window of the look; it is used as it is while it reaches back to before the trouble. sight: the diagnosis that
    the same look opened the incident for, which is not made twice.
    """
    if _is_due(incident) and not is_outgrown(incident, symptom):
        since = replace(symptom, at_ns=min(symptom.at_ns, incident.first_symptom_ns))  # later looks see less far back
        found = partial(_evidence, incident, since, seen, thresholds, sight)
        _diagnose_in_look(incident, found, thresholds)


def revise_late(attempt_id: int) -> None:
    """Diagnose again what batches from spools have news of, whether the trouble goes on or not."""
    for incident in Incident.objects.filter(attempt=attempt_id).order_by("-id")[:LATE_INCIDENTS_MAX]:
        newest = incident.revisions.order_by("-number").first()
        if newest is None or incident.analysed_at is None:
            continue
        symptom = diagnosis_from_json(newest.body).symptom
        span = evidence_span(incident, symptom)
        if _has_late_news(newest, incident.analysed_at, span):
            thresholds = settings_of(incident.job_id)
            found = partial(read_and_diagnose, attempt_id, span, symptom, thresholds, now_ns=span[1])
            _diagnose_in_look(incident, found, thresholds, is_late=True)


def _has_late_news(newest: DiagnosisRevision, analysed_at: datetime, span: tuple[int, int]) -> bool:
    """Whether late batches fall into the time of the evidence, or have ended what the diagnosis said was not seen."""
    attempt_id = newest.incident.attempt_id
    if timezone.now() - analysed_at < timedelta(seconds=PATIENT_SECONDS):
        return False
    since = analysed_at - timedelta(seconds=COMMIT_SECONDS)
    nodes = Node.objects.filter(attempt=attempt_id)
    if not nodes.filter(late_received_ns__gt=int(since.timestamp() * 1e9)).exists():
        return False
    has_caught_up = bool(unseen_of(diagnosis_from_json(newest.body))) and not nodes.filter(catching_up=True).exists()
    return has_caught_up or has_new_batches(attempt_id, *span, since)


def evidence_span(incident: Incident, symptom: Symptom) -> tuple[int, int]:
    """The time of the evidence, up to where the symptom was last seen, to be diagnosed again."""
    start_ns = evidence_start_ns(symptom, incident.triggered_ns)
    end_ns = min(max(incident.last_seen_ns, incident.triggered_ns), incident.triggered_ns + FROZEN_NS)
    return min(start_ns, end_ns - int(settings.LOOK_WINDOW_SECONDS * SECOND)), end_ns


def revise_dumped(incident: Incident) -> None:
    """Diagnose again with the stacks and recordings that have come, as it does from now on in any case."""
    newest = incident.revisions.order_by("-number").first()
    if newest is not None:
        symptom = diagnosis_from_json(newest.body).symptom
        span = evidence_span(incident, symptom)
        thresholds = settings_of(incident.job_id)
        found = partial(read_and_diagnose, incident.attempt_id, span, symptom, thresholds, now_ns=span[1])
        _diagnose(incident, found, thresholds, is_late=True)


def read_and_diagnose(
    attempt_id: int, span: tuple[int, int], symptom: Symptom, thresholds: Settings, now_ns: int | None = None,
    *, everything: bool = False,
) -> tuple[Window, Diagnosis]:  # fmt: skip
    """What is stored of the evidence in `span`, and the diagnosis; of a large slow job what was needed to be sure, unless
    `everything` is wanted that can be read at once."""
    if symptom.kind is SymptomKind.STRAGGLER:
        source = SlowEvidence(attempt_id, *span, symptom.at_ns, now_ns)
        return (diagnose_all if everything else diagnose_slow)(source, symptom, thresholds)
    window = read_evidence(attempt_id, *span, onset_ns(symptom), now_ns=now_ns)  # what was reported may be a hang
    return window, diagnose(window, symptom, thresholds)


def _diagnose_in_look(incident: Incident, found: Found, thresholds: Settings, *, is_late: bool = False) -> None:
    """As `_diagnose`; where dumps take long to read the first answer does without, and the next are left to who reads them."""
    is_at_hand = dumps.is_at_hand(incident)
    if not is_at_hand:
        dumps.owe(incident.attempt_id)
    if is_at_hand or not incident.revisions.exists():
        _diagnose(incident, found, thresholds, with_dumps=is_at_hand, is_late=is_late)


def _diagnose(
    incident: Incident, found: Found, thresholds: Settings, *, with_dumps: bool = True, is_late: bool = False
) -> None:
    """is_late: from what is stored of the time, not by a live look."""
    window, diagnosis = _joined(incident, found(), thresholds, with_dumps)
    newest = incident.revisions.order_by("-number").first()
    if newest is None and is_early(diagnosis, incident.triggered_ns, window.end_ns):
        return
    Incident.objects.filter(pk=incident.pk).update(analysed_at=timezone.now())
    number = newest.number + 1 if newest else 1
    takes_back = is_late and not diagnosis.findings and _names_nobody(incident, newest, window, thresholds, with_dumps)
    if number > settings.REVISIONS_MAX or not _is_news(incident, newest, diagnosis, takes_back=takes_back):
        return
    is_less = newest is not None and is_part(diagnosis) and not is_part(diagnosis_from_json(newest.body))
    if is_less and TOO_MUCH not in diagnosis.missing:
        # what all nodes told is not taken back by what some of them tell, unless more has come since than can be read
        window, diagnosis = _joined(incident, found(everything=True), thresholds, with_dumps)
        if not _is_news(incident, newest, diagnosis, takes_back=takes_back):
            return
    store(incident, diagnosis, number, window, newest)


def _names_nobody(
    incident: Incident, newest: DiagnosisRevision | None, window: Window, thresholds: Settings, with_dumps: bool
) -> bool:
    """Whether the very time that the newest diagnosis rests on names nobody, now that all is there: by the time the trouble was
    seen last the job may have gone on."""
    if newest is None or window.nodes["catching_up"].any():
        return False
    span, symptom = (newest.window_start_ns, newest.window_end_ns), diagnosis_from_json(newest.body).symptom
    traced = read_and_diagnose(incident.attempt_id, span, symptom, thresholds, now_ns=span[1], everything=True)
    whole, found = _joined(incident, traced, thresholds, with_dumps)
    return is_stored(whole) and not found.findings


def is_stored(window: Window) -> bool:
    """Whether any traces of the time are left."""
    return any(len(window.rows(table)) for table in ("op", "live_op", "progress", "process"))


def _joined(
    incident: Incident, traced: tuple[Window, Diagnosis], thresholds: Settings, with_dumps: bool
) -> tuple[Window, Diagnosis]:
    """With what stages say, and dumps."""
    window, found = traced
    diagnosis = staged(incident.attempt_id, found, window, thresholds)
    return window, dumps.fused(incident, diagnosis, thresholds) if with_dumps else diagnosis


def _evidence(
    incident: Incident, symptom: Symptom, seen: Window, thresholds: Settings, sight: Sight | None, *,
    everything: bool = False,
) -> tuple[Window, Diagnosis]:  # fmt: skip
    """From shortly before the first sign (but no longer back than is bearable to read) to when the picture is frozen."""
    start_ns = evidence_start_ns(symptom, incident.triggered_ns)
    end_ns = incident.triggered_ns + FROZEN_NS
    if seen.start_ns <= start_ns and seen.end_ns <= end_ns:
        return seen, diagnose(seen, symptom, thresholds)
    span = min(start_ns, seen.start_ns), min(seen.end_ns, end_ns)
    if sight is not None and not everything and sight.is_of(span, symptom):
        return sight.window, sight.diagnosis
    return read_and_diagnose(incident.attempt_id, span, symptom, thresholds, everything=everything)


def onset_ns(symptom: Symptom) -> int | None:
    """Since when the job is slow, or may be; None when it stands still."""
    return symptom.at_ns if symptom.kind in (SymptomKind.STRAGGLER, SymptomKind.EXTERNAL) else None


def evidence_start_ns(symptom: Symptom, triggered_ns: int) -> int:
    """Where the evidence begins: shortly before the first sign; for a slowdown, some of its usual iterations before."""
    if symptom.kind not in (SymptomKind.STRAGGLER, SymptomKind.EXTERNAL):
        return max(symptom.at_ns - BEFORE_NS, triggered_ns - BACK_NS_MAX)
    usual_ns = int(symptom.numbers.get("iteration_usual_s", 0.0) * SECOND)
    before_ns = max(SLOWDOWN_BEFORE_NS, SLOWDOWN_BEFORE_ITERATIONS * usual_ns)
    return max(symptom.at_ns - before_ns, triggered_ns - SLOWDOWN_BACK_NS_MAX)


def sight_of(attempt_id: int, symptom: Symptom, seen: Window, thresholds: Settings) -> Sight:
    """What a symptom is diagnosed as before it is decided which incident it belongs to."""
    span = min(evidence_start_ns(symptom, seen.end_ns), seen.start_ns), seen.end_ns
    return Sight(span, symptom, *read_and_diagnose(attempt_id, span, symptom, thresholds))


def judged(attempt_id: int, symptom: Symptom, seen: Window, thresholds: Settings) -> Judged:
    """A slowdown that has not halved the pace opens an incident once it is worth one; all else does at once."""

    def read(span: tuple[int, int]) -> tuple[Window, Diagnosis]:
        return read_and_diagnose(attempt_id, span, symptom, thresholds)

    def with_stages(window: Window, found: Diagnosis) -> Diagnosis:
        return staged(attempt_id, found, window, thresholds)

    return judged_by(read, symptom, seen, thresholds, with_stages)


def judged_by(
    read: Callable[[tuple[int, int]], tuple[Window, Diagnosis]], symptom: Symptom, seen: Window, thresholds: Settings,
    joined: Callable[[Window, Diagnosis], Diagnosis] = lambda window, found: found,
) -> Judged:  # fmt: skip
    """As `judged`. read: what there is in a span, and its diagnosis; joined: with what else is known."""
    if symptom.kind is not SymptomKind.STRAGGLER or is_halved(symptom, thresholds):
        return Judged(is_worth=True)
    span = min(evidence_start_ns(symptom, seen.end_ns), seen.start_ns), seen.end_ns
    window, found = read(span)
    return Judged(is_worth(symptom, joined(window, found), thresholds), Sight(span, symptom, window, found))


def is_worth(symptom: Symptom, diagnosis: Diagnosis, thresholds: Settings) -> bool:
    """Whether a slowdown that has not halved the pace should be handled.

    One to `large_factor` times the usual or more is, with a tie too, and without anybody in sight once it has lasted
    twice as long as it takes to be seen. A smaller one has to be surely somebody's, or one link's: it is not worth a search.
    """
    if any(finding.grade is not Grade.WEAK or _is_one_link(finding) for finding in diagnosis.findings):
        return True
    if symptom.may_be_habit:
        return False
    if symptom.numbers["iteration_s"] < thresholds.large_factor * symptom.numbers["iteration_usual_s"]:
        return False
    return bool(diagnosis.findings) or symptom.seen_ns - symptom.at_ns >= 2 * thresholds.small_ns


def _is_one_link(finding: Finding) -> bool:
    return finding.subject.kind == "link" and len(finding.tied) == 2 and finding.score >= LINK_SURE_MIN


def is_early(diagnosis: Diagnosis, triggered_ns: int, end_ns: int) -> bool:
    """Whether a first diagnosis of a slowdown is kept back: it names nobody at all, or nobody strongly and few slow iterations
    were seen, or a NIC before it is known for long enough whose bytes fill it. The incident stands as suspected meanwhile, for
    EAGER_NS at most; if it is over before, it is diagnosed then (acts/again.py)."""
    symptom = diagnosis.symptom
    if symptom.kind is not SymptomKind.STRAGGLER or end_ns - triggered_ns >= EAGER_NS:
        return False
    is_network = any(one.kind is FaultKind.COMMUNICATION_FAIL_SLOW for one in diagnosis.findings[:1])
    if is_network and end_ns - symptom.at_ns < COUNTED_NS:
        return True
    if any(finding.grade is Grade.STRONG for finding in diagnosis.findings):
        return False
    if not any(one.culprits or one.tied or one.kind is FaultKind.GROUP_ANOMALY for one in diagnosis.findings):
        return True
    return end_ns - symptom.at_ns < EARLY_ITERATIONS * symptom.numbers.get("iteration_s", 0.0) * SECOND


def _is_due(incident: Incident) -> bool:
    now = timezone.now()
    age_ns = incident.last_seen_ns - incident.triggered_ns
    if incident.analysed_at is None or age_ns < EAGER_NS:
        return True
    if now - incident.analysed_at < timedelta(seconds=PATIENT_SECONDS):
        return False
    return incident.last_seen_ns < incident.triggered_ns + FROZEN_NS


def _is_news(
    incident: Incident, newest: DiagnosisRevision | None, diagnosis: Diagnosis, *, takes_back: bool = False
) -> bool:
    """takes_back: nobody is the better answer, whoever was named."""
    if newest is None:
        return True
    before = diagnosis_from_json(newest.body)
    if incident.certainty == Certainty.SUSPECTED:  # the first diagnosis of a graver trouble counts, whatever it says
        return bool(diagnosis.findings) or is_graver_kind(diagnosis.symptom.kind, before.symptom.kind)
    if not (diagnosis.findings or takes_back) and before.findings and before.findings[0].grade is not Grade.WEAK:
        return False  # evidence that scrolled away does not take back a name
    return answer(diagnosis) != answer(before)


def answer(diagnosis: Diagnosis) -> tuple[Any, ...]:
    """What makes two diagnoses the same answer; of how many nodes it was made does not."""
    best = diagnosis.findings[0] if diagnosis.findings else None
    said = (best.rule, best.component, best.kind, best.grade, best.culprits, best.tied) if best else None
    return said, frozenset(diagnosis.victims), unseen_of(diagnosis), diagnosis.downgraded, diagnosis.layer


def store(
    incident: Incident, diagnosis: Diagnosis, number: int, window: Window, newest: DiagnosisRevision | None
) -> None:
    """The diagnosis as the incident's newest revision, and what the incident shows of it."""
    now, best = timezone.now(), diagnosis.findings[0] if diagnosis.findings else None
    suspects = diagnosis.suspects_in_order
    fields: dict[str, Any] = {"window_end_ns": window.end_ns, "n_victims": len(diagnosis.victims)}
    if best is not None:
        fields |= {
            "certainty": Certainty.DIAGNOSED,
            "headline": diagnosis.verdict[:500],
            "component": best.component.value,
            "fault_kind": best.kind.value,
            "grade": best.grade.value,
            "culprits": list(best.culprits[:CULPRITS_SHOWN_MAX]),
            "n_culprits": len(best.culprits),
            "suspects": list(suspects[:CULPRITS_SHOWN_MAX]),
            "n_suspects": len(suspects),
            "root_caused_at": incident.root_caused_at or now,
        }
    elif incident.certainty == Certainty.DIAGNOSED:  # the verdict is taken back: nobody stays blamed
        fields |= {**UNDIAGNOSED, "headline": suspected_headline(window, diagnosis.symptom)}
    verb, note = "diagnosed" if best else "named nobody", diagnosis.verdict
    if newest is not None and incident.certainty == Certainty.DIAGNOSED:
        verb, note = "revised", changes(diagnosis_from_json(newest.body), diagnosis)
    with transaction.atomic():
        DiagnosisRevision.objects.create(
            incident=incident, number=number, at=now, body=to_json(diagnosis), verdict=diagnosis.verdict,
            culprits=list(diagnosis.culprits), grade=best.grade.value if best else "",
            window_start_ns=window.start_ns, window_end_ns=window.end_ns,
        )  # fmt: skip
        lifecycle.observe(incident, verb, fields, suspects=suspects, note=note)
