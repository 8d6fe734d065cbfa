""" "Why not rank 12?", asked about an incident: answered from its pinned traces and its newest diagnosis.

No rule runs here: what was found is taken as it is, and the rank is compared with it. The window is the diagnosis' own; of a
job too large for a page to wait for, a hang is judged by the last seconds of it, and a slowdown is left to the command line. A
worker does it, since reading the window takes seconds and memory.
"""

from __future__ import annotations

import dataclasses
import logging
from dataclasses import dataclass
from typing import Final

from celery.exceptions import SoftTimeLimitExceeded
from django.core.cache import cache

from console.incidents.lifecycle import BadAct
from console.incidents.models import DiagnosisRevision, Incident
from console.incidents.read import newest_revision
from console.incidents.watching.thresholds import settings_of
from ingest.models import Rank
from ingest.read import read_window
from ingest.traces.narrow import read_evidence
from ingest.window import Window
from rca.findings import Alternative, Subject, SymptomKind, diagnosis_from_json
from rca.why_not import why_not

SECOND: Final = 1_000_000_000
RANK_SECONDS_MAX: Final = 16 * 2048
STILL_SECONDS_MIN: Final = 3
"""A hang is told from the newest rows of every flow, and its NICs from their last change."""
SLOW_TABLES: Final = ("op", "nic", "process")
KEPT_SECONDS: Final = 600
FAILED_KEPT_SECONDS: Final = 60
EXPIRES_SECONDS: Final = 20
LIMIT_SECONDS: Final = 30
LIMIT_HARD_SECONDS: Final = 40
ASKED_SECONDS: Final = EXPIRES_SECONDS + LIMIT_HARD_SECONDS
"""Until then a worker that was asked may be at it, so no other is asked the same."""
SLOW_SHARE: Final = 4  # a slowdown is told from ops alone, of which a second is so much less than one with flows

log = logging.getLogger(__name__)


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


def check_rank(incident: Incident, rank: int) -> None:
    """Raises BadAct for a rank that the incident's attempt never had."""
    size = incident.attempt.world_size
    if rank >= size and not Rank.objects.filter(attempt=incident.attempt_id, rank=rank).exists():
        n_ranks = size or incident.attempt.ranks.filter(replaced=False, rank__gte=0).count()
        raise BadAct(f"There is no such rank: the job has {n_ranks}.")


def ask_once(key: str) -> bool:
    """Whether a worker is to be asked this now: not while one is at it."""
    return cache.add(f"{key}:asked", 1, ASKED_SECONDS)


def answer(number: int, rank: int, key: str) -> None:
    """Work the answer out and keep it under `key`, or why there is none; a worker's part."""
    seconds = KEPT_SECONDS
    try:
        said: dict[str, object] = {"answer": dataclasses.asdict(why_not_rank(Incident.objects.get(pk=number), rank))}
    except BadAct as error:
        said = {"error": str(error)}
    except SoftTimeLimitExceeded:
        said = {"error": f"It took longer than {LIMIT_SECONDS} s to work out. {_elsewhere(number)}"}
    except Exception as error:  # whoever asked must not wait for an answer that never comes
        log.exception("why-not failed", extra={"incident": number, "rank": rank})
        said, seconds = (
            {"error": f"Working it out failed ({type(error).__name__}). Try again later."},
            FAILED_KEPT_SECONDS,
        )
    cache.set(key, said, seconds)
    cache.delete(f"{key}:asked")


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
        raise BadAct(f"A diagnosis of {n_ranks} ranks over time is too much to answer here. {_elsewhere(incident.pk)}")


def _elsewhere(number: int) -> str:
    return (
        f"Ask on the command line: manage.py save_window {number} window.npz; python -m rca window.npz --why-not RANK"
    )
