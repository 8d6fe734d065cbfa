"""Windows to take away: what `python -m rca` diagnoses on any machine, cut around an incident or from a job's newest data.

A quarter of an incident's window lies before its first symptom, so that the rules see how the job came to rest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from console.incidents.lifecycle import BadAct
from console.incidents.models import Incident
from console.incidents.read import newest_revision
from ingest.models import Attempt, Job, Rank
from ingest.read import latest_data_ns, read_window
from ingest.window import TRACE_TABLES, TRAFFIC_TABLES, Window, save_window

SECOND: Final = 1_000_000_000
TABLES: Final = (*TRACE_TABLES, *TRAFFIC_TABLES)
"""All that rules ask for."""
SECONDS: Final = 16
SECONDS_MAX: Final = 120
RANK_SECONDS_MAX: Final = 16 * 2048


def incident_window(incident: Incident, seconds: int | None = None) -> Window:
    """The window of the newest diagnosis, as far as one may be taken away. Raises BadAct.

    With `seconds`, or without such a diagnosis: what was known when the incident was ¾ of that old (or triggered, if
    that took longer).
    """
    revision = newest_revision(incident)
    if seconds is None and revision is not None:
        start_ns, end_ns = revision.window_start_ns, revision.window_end_ns
        if end_ns - start_ns <= _longest_s(incident.attempt_id) * SECOND:
            return read_window(incident.attempt_id, start_ns, end_ns, TABLES, now_ns=end_ns)
    seconds = SECONDS if seconds is None else seconds
    _check_size(incident.attempt_id, seconds)
    old_enough_ns = max(incident.first_symptom_ns + seconds * SECOND * 3 // 4, incident.triggered_ns)
    end_ns = min(old_enough_ns, latest_data_ns(incident.attempt_id)) + 1
    return read_window(incident.attempt_id, end_ns - seconds * SECOND, end_ns, TABLES, now_ns=end_ns)


def question_of(incident: Incident) -> dict[str, Any]:
    """What the newest diagnosis was made for, to be saved beside its window; {} before there is one."""
    revision = newest_revision(incident)
    return {name: revision.body[name] for name in ("symptom", "thresholds")} if revision is not None else {}


def job_window(job: Job, seconds: int = SECONDS) -> Window:
    """The newest data of the job's newest attempt. Raises BadAct; Attempt.DoesNotExist when it was never heard of."""
    attempt = Attempt.objects.filter(job=job).latest("number")
    _check_size(attempt.pk, seconds)
    end_ns = latest_data_ns(attempt.pk) + 1
    return read_window(attempt.pk, end_ns - seconds * SECOND, end_ns, TABLES)


def window_bytes(window: Window, asked: Mapping[str, Any] | None = None) -> bytes:
    """The window, and what it was diagnosed for, as a file's bytes."""
    with tempfile.TemporaryDirectory(prefix="diogenes-") as folder:
        path = Path(folder) / "window.npz"
        save_window(path, window, asked)
        return path.read_bytes()


def _check_size(attempt_id: int, seconds: int) -> None:
    """A window is held in memory whole: BadAct for one that would not fit."""
    longest = _longest_s(attempt_id)
    if not 0 < seconds <= longest:
        raise BadAct(
            f"A window of this job ({_n_ranks(attempt_id)} ranks) may have 1 to {longest} seconds, not {seconds}."
        )


def _longest_s(attempt_id: int) -> int:
    return min(SECONDS_MAX, RANK_SECONDS_MAX // max(_n_ranks(attempt_id), 1))


def _n_ranks(attempt_id: int) -> int:
    return Rank.objects.filter(attempt=attempt_id, replaced=False).count()
