"""A simulated job as the console's watch sees it: looks in data time, one incident, its diagnoses; no database, no server.

The looks, the span of their windows, when a diagnosis is due, on what evidence it rests and whether it is news are the
watch's own functions and numbers (console/incidents/watching/watch.py, revise.py); what is left out is Postgres between
ingest and the look, and people. It makes an accuracy suite of hundreds of jobs possible.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, Final

import django
import numpy as np
import numpy.typing as npt
from django.apps import apps

if not apps.ready:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
    os.environ.setdefault("DIOGENES_SECRET_KEY", "evaluation")
    django.setup()

from django.conf import settings as console_settings

from console.incidents.models import Certainty
from console.incidents.watching import revise, watch
from console.incidents.watching.graver import is_graver_kind
from console.incidents.watching.over import is_over
from ingest.door.listening import GAP
from ingest.traces.narrow import BEFORE_NS, LAST, LATE, NARROW, REST_NS, TICKED
from ingest.traces.stacked import OF_ONE
from ingest.window import TRACE_TABLES, Window
from nccl_instrument.simulate.agents import Sent
from rca.diagnose import diagnose
from rca.findings import Diagnosis, Symptom, SymptomKind, to_json
from rca.narrowed import diagnose_slow
from rca.settings import DEFAULT
from rca.triggers import look as triggers
from rca.triggers.normal import Normal
from rca.triggers.pace import history_ns
from rca.triggers.sampling import sampled_ranks
from tests.replay import Replay

SECOND: Final = 1_000_000_000
SETTLE_NS: Final = 30 * SECOND
ANSWERED_PAUSE_NS: Final = 10 * SECOND  # between looks once there is a first diagnosis
LOOK_NS: Final = int(console_settings.LOOK_WINDOW_SECONDS * SECOND)
KEEP_NS: Final = 120 * SECOND  # more than any window of these jobs goes back
STANDING: Final = (*TRACE_TABLES, *LAST)
GAP_NS: Final = int(GAP.total_seconds() * SECOND)


@dataclass
class Followed:
    """An incident: what was seen first, and the answers. Times are unix ns in data time.

    graver: what it is about since it got worse. is_suspected: nobody is named of what it is about.
    """

    symptom: Symptom
    triggered_ns: int
    last_seen_ns: int
    analysed_ns: int | None = None
    graver: Symptom | None = None
    is_suspected: bool = True
    answer: Diagnosis | None = None
    first: Diagnosis | None = None
    first_ns: int = 0

    @property
    def about(self) -> Symptom:
        """The symptom with which the trouble began that it is about."""
        return self.graver or self.symptom

    @property
    def began_ns(self) -> int:
        """When that was seen."""
        return self.graver.seen_ns if self.graver else self.triggered_ns

    def get_worse(self, symptom: Symptom) -> None:
        """As watch._start_anew."""
        self.graver, self.analysed_ns, self.is_suspected = symptom, None, True

    def is_outgrown(self, symptom: Symptom) -> bool:
        """As graver.is_outgrown."""
        is_lesser = is_graver_kind(self.about.kind, symptom.kind)
        return self.graver is not None and is_lesser and symptom.at_ns < self.about.at_ns

    def is_settled(self, now_ns: int) -> bool:
        """Whether the second diagnosis that counts is known."""
        return self.first is not None and now_ns - self.first_ns >= SETTLE_NS


@dataclass
class Watch:
    """Takes a job's batches as they arrive and looks every `pause_ns`; `incident` is what it would show.

    evidence: the window of its newest diagnosis.
    A live job is looked at every second. Fewer looks see the same batches, a little later, and take less of our time.
    """

    pause_ns: int = SECOND
    replay: Replay = field(default_factory=lambda: Replay(keep_ns=KEEP_NS))
    normal: Normal = field(default_factory=Normal)
    incident: Followed | None = None
    evidence: Window | None = None
    n_looks: int = 0
    now_ns: int = 0
    _heard_since_ns: int = 0
    _heard_ns: int = 0
    _look_ns: int = 0
    _seen_ns: int = 0

    def follow(self, batches: Iterable[Sent]) -> Iterable[int]:
        """Takes every batch; after each look, the time it was taken at."""
        for sent in batches:
            if self._look_ns and sent.arrives_ns >= self._look_ns:
                self.now_ns = self._look_ns
                self.look()
                is_answered = self.incident is not None and self.incident.first is not None
                self._look_ns = sent.arrives_ns + (ANSWERED_PAUSE_NS if is_answered else self.pause_ns)
                yield self.now_ns
            self._take(sent)

    def _take(self, sent: Sent) -> None:
        if not self._heard_ns or sent.arrives_ns - self._heard_ns > GAP_NS:
            self._heard_since_ns = sent.arrives_ns
        self._heard_ns = max(self._heard_ns, sent.arrives_ns)
        self._look_ns = self._look_ns or sent.arrives_ns + self.pause_ns
        self.replay.take(sent.arrives_ns, sent.encoded)

    def look(self) -> None:
        """As watch._look does: the window, the triggers, the incident, its diagnosis."""
        end_ns = self.replay.newest_ns + 1
        if end_ns <= self._seen_ns:
            return  # nothing new
        self._seen_ns = end_ns
        self.n_looks += 1
        window = self._glance(end_ns - LOOK_NS, end_ns)
        history = self._history(window)
        seen = triggers.look(window, self.normal, DEFAULT, history)
        if watch._asks_for_more(window, seen):
            window = self._everything(min(end_ns - LOOK_NS, watch._evidence_start_ns(seen, end_ns)), end_ns)
            seen = triggers.look(window, self.normal, DEFAULT, history)
        self.normal = seen.normal
        if seen.symptoms and not is_over(window):
            self._fire(seen.symptoms[0], window)

    def _window(self, start_ns: int, end_ns: int, tables: Iterable[str] = TRACE_TABLES, **narrow: Any) -> Window:
        window = self.replay.window((end_ns - start_ns) / SECOND, end_ns, tables, **narrow)
        return replace(window, now_ns=max(self.now_ns, end_ns), heard_since_ns=self._heard_since_ns)

    def _glance(self, start_ns: int, end_ns: int) -> Window:
        """As ingest.traces.narrow.read_glance: the sampled ranks, what else their nodes tell, and everybody's processes."""
        ranks, nodes = self._sampled(start_ns, end_ns)
        glance = self._window(start_ns, end_ns, only=nodes, ranks=ranks)
        processes = self._window(end_ns - REST_NS["live"], end_ns, ("process",)).tables
        return replace(glance, tables={**glance.tables, **processes})

    def _sampled(self, start_ns: int, end_ns: int) -> tuple[npt.NDArray[np.int64], set[str]]:
        """The sampled ranks, and the names of their nodes."""
        frame = self._window(start_ns, end_ns, ())
        ranks = np.array(sorted(sampled_ranks(frame, DEFAULT)), np.int64)
        nodes = frame.ranks["node"][np.isin(frame.ranks["rank"], ranks)]
        return ranks, set(frame.nodes["name"][nodes].tolist())

    def _everything(
        self, start_ns: int, end_ns: int, onset_ns: int | None = None, only: Collection[str] | None = None
    ) -> Window:
        """As ingest.traces.narrow.read_evidence: of what was in progress no more than is compared."""
        if onset_ns is not None:
            since_ns = {"flow": onset_ns - BEFORE_NS}
            return self._window(start_ns, end_ns, since_ns=since_ns, last=TICKED, late=LATE, only=only, narrow=NARROW)
        process = self._window(start_ns, end_ns, ("process",)).rows("process")
        if not process["alive"].all():
            return self._window(start_ns, end_ns, STANDING, last=tuple(OF_ONE), narrow=NARROW)
        return self._window(start_ns, end_ns, STANDING, rest_ns=REST_NS, last=tuple(OF_ONE), narrow=NARROW)

    def _history(self, window: Window) -> Window | None:
        back_ns = history_ns(self.normal.pace, window.end_ns, DEFAULT, window.end_ns - window.start_ns)
        if not back_ns:
            return None
        start_ns = window.end_ns - back_ns
        ranks, nodes = self._sampled(start_ns, window.end_ns)
        return self._window(start_ns, window.end_ns, ("op",), only=nodes, ranks=ranks)

    def _fire(self, symptom: Symptom, window: Window) -> None:
        is_new = self.incident is None or is_graver_kind(symptom.kind, self.incident.about.kind)
        judged = self._judged(symptom, window) if is_new else revise.Judged(is_worth=True)
        if self.incident is None:
            if not judged.is_worth:
                return
            self.incident = Followed(symptom, symptom.seen_ns, window.end_ns)
        elif is_new and judged.is_worth:
            self.incident.get_worse(symptom)
        self.incident.last_seen_ns = window.end_ns
        if _is_due(self.incident, window.end_ns) and not self.incident.is_outgrown(symptom):
            since = replace(symptom, at_ns=min(symptom.at_ns, self.incident.about.at_ns))
            self.evidence, found = self._evidence(since, window, judged.sight)
            _store(self.incident, found, window.end_ns)

    def _judged(self, symptom: Symptom, seen: Window) -> revise.Judged:
        return revise.judged_by(lambda span: self._read_and_diagnose(span, symptom), symptom, seen, DEFAULT)

    def _evidence(self, symptom: Symptom, seen: Window, sight: revise.Sight | None) -> tuple[Window, Diagnosis]:
        assert self.incident is not None
        start_ns = revise.evidence_start_ns(symptom, self.incident.began_ns)
        end_ns = self.incident.began_ns + revise.FROZEN_NS
        if seen.start_ns <= start_ns and seen.end_ns <= end_ns:
            return seen, diagnose(seen, symptom, DEFAULT)
        span = min(start_ns, seen.start_ns), min(seen.end_ns, end_ns)
        if sight is not None and sight.is_of(span, symptom):
            return sight.window, sight.diagnosis
        return self._read_and_diagnose(span, symptom)

    def _read_and_diagnose(self, span: tuple[int, int], symptom: Symptom) -> tuple[Window, Diagnosis]:
        """As revise.read_and_diagnose."""
        if symptom.kind is SymptomKind.STRAGGLER:
            return diagnose_slow(_Slow(self, *span, symptom.at_ns), symptom, DEFAULT)
        window = self._everything(*span, revise.onset_ns(symptom))
        return window, diagnose(window, symptom, DEFAULT)


@dataclass(frozen=True)
class _Slow:
    """As ingest.traces.narrow.SlowEvidence."""

    watch: Watch
    start_ns: int
    end_ns: int
    onset_ns: int

    def frame(self) -> Window:
        return self.watch._window(self.start_ns, self.end_ns, ())

    def glimpse(self, start_ns: int, end_ns: int, columns: Collection[str]) -> Window:
        return self.watch._window(start_ns, end_ns, ("op",), narrow={"op": columns})

    def whole(self, nodes: npt.NDArray[np.int64] | None) -> Window:
        only = None if nodes is None else set(self.frame().nodes["name"][nodes].tolist())
        return self.watch._everything(self.start_ns, self.end_ns, self.onset_ns, only)


def _is_due(incident: Followed, now_ns: int) -> bool:
    """revise._is_due with data time for wall time."""
    age_ns = incident.last_seen_ns - incident.began_ns
    if incident.analysed_ns is None or age_ns < revise.EAGER_NS:
        return True
    if now_ns - incident.analysed_ns < revise.PATIENT_SECONDS * SECOND:
        return False
    return age_ns < revise.FROZEN_NS


def _store(incident: Followed, diagnosis: Diagnosis, now_ns: int) -> None:
    if incident.answer is None and revise.is_early(diagnosis, incident.began_ns, now_ns):
        return
    incident.analysed_ns = now_ns
    if not _is_news(incident, diagnosis):
        return
    incident.answer, incident.is_suspected = diagnosis, not diagnosis.findings
    if incident.first is None:
        incident.first, incident.first_ns = diagnosis, now_ns


def _is_news(incident: Followed, diagnosis: Diagnosis) -> bool:
    """revise._is_news, which asks for rows of the database, with stand-ins of the same names."""
    before = incident.answer
    certainty = Certainty.SUSPECTED if incident.is_suspected else Certainty.DIAGNOSED
    stored: Any = SimpleNamespace(certainty=certainty)
    newest: Any = SimpleNamespace(body=to_json(before)) if before is not None else None
    return revise._is_news(stored, newest, diagnosis)
