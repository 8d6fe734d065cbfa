""" "Why not rank 12?", asked about an incident: answered from its pinned traces and its newest diagnosis.

No rule runs here: what was found is taken as it is, and the rank is compared with it. The window is the diagnosis' own; of a
job too large for a page to wait for, a hang is judged by the last seconds of it, and a slowdown is left to the command line. A
worker does it, since reading the window takes seconds and memory.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Final

from django.core.cache import cache

from console.incidents.lifecycle import BadAct
from console.incidents.models import DiagnosisRevision, Incident
from console.incidents.read import newest_revision
from console.incidents.thresholds import settings_of
from ingest.models import Rank
from ingest.narrow import read_evidence
from ingest.read import read_window
from ingest.window import Window
from rca.findings import Alternative, Subject, SymptomKind, diagnosis_from_json
from rca.why_not import why_not

SECOND: Final = 1_000_000_000
RANK_SECONDS_MAX: Final = 16 * 2048
STILL_SECONDS_MIN: Final = 3
"""A hang is told from the newest rows of every flow, and its NICs from their last change."""
SLOW_TABLES: Final = ("op", "nic", "process")
KEPT_SECONDS: Final = 600
SLOW_SHARE: Final = 4  # a slowdown is told from ops alone, of which a second is so much less than one with flows


@dataclass(frozen=True, slots=True)
class WhyNot:
    """diagnosis_id: the revision asked about; None when there is none yet."""

    rank: int
    diagnosis_id: int | None
    alternative: Alternative


def key_of(incident: Incident, rank: int) -> str:
    """Where the answer is kept: another revision may say something else."""
    revision = newest_revision(incident)
    return f"why-not:{incident.pk}:{revision.number if revision is not None else 0}:{rank}"


def answer(number: int, rank: int, key: str) -> None:
    """Work the answer out and keep it under `key`; a worker's part."""
    try:
        said: dict[str, object] = {"answer": dataclasses.asdict(why_not_rank(Incident.objects.get(pk=number), rank))}
    except BadAct as error:
        said = {"error": str(error)}
    cache.set(key, said, KEPT_SECONDS)


def why_not_rank(incident: Incident, rank: int) -> WhyNot:
    """Why the incident's newest diagnosis does not blame `rank`. Raises BadAct when the job is too large to answer here."""
    revision = newest_revision(incident)
    if revision is None:
        said = "Nothing has been diagnosed yet."
        return WhyNot(rank, None, Alternative(Subject("rank", f"rank {rank}", (rank,)), said))
    diagnosis = diagnosis_from_json(revision.body)
    window = _window(incident, revision, diagnosis.symptom.kind)
    found = why_not(window, diagnosis.symptom, diagnosis, rank, settings_of(incident.job_id))
    return WhyNot(rank, revision.number, found)


def _window(incident: Incident, revision: DiagnosisRevision, kind: SymptomKind) -> Window:
    """What of the diagnosis' own window can be read while somebody waits."""
    start_ns, end_ns = revision.window_start_ns, revision.window_end_ns
    n_ranks = max(Rank.objects.filter(attempt=incident.attempt_id, replaced=False).count(), 1)
    n_rank_seconds = n_ranks * (end_ns - start_ns) // SECOND
    if kind is SymptomKind.STRAGGLER:
        _check(n_rank_seconds, SLOW_SHARE * RANK_SECONDS_MAX, incident, n_ranks)
        return read_window(incident.attempt_id, start_ns, end_ns, SLOW_TABLES, now_ns=end_ns)
    if kind is SymptomKind.EXTERNAL:  # it may have been either
        _check(n_rank_seconds, RANK_SECONDS_MAX, incident, n_ranks)
    seconds = max(STILL_SECONDS_MIN, RANK_SECONDS_MAX // n_ranks)
    start_ns = max(start_ns, end_ns - seconds * SECOND)
    return read_evidence(incident.attempt_id, start_ns, end_ns, now_ns=end_ns)


def _check(n_rank_seconds: int, most: int, incident: Incident, n_ranks: int) -> None:
    if n_rank_seconds > most:
        raise BadAct(
            f"A diagnosis of {n_ranks} ranks over time is too much to answer here. Ask on the command line: "
            f"manage.py save_window {incident.pk} window.npz; python -m rca window.npz --why-not RANK"
        )
