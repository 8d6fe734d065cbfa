"""Windows to take away: what `python -m rca` diagnoses on any machine, cut around an incident or from a job's newest data.

A quarter of an incident's window lies before its first symptom, so that the rules see how the job came to rest.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from console.incidents.lifecycle import BadAct
from console.incidents.models import Incident
from ingest.models import Attempt, Job, Rank
from ingest.read import latest_data_ns, read_window
from ingest.window import Window, save_window

SECOND: Final = 1_000_000_000
SECONDS: Final = 16
SECONDS_MAX: Final = 120
RANK_SECONDS_MAX: Final = 16 * 2048


def incident_window(incident: Incident, seconds: int = SECONDS) -> Window:
    """What was known when the incident was `seconds` · ¾ old (or triggered, if that took longer). Raises BadAct."""
    _check_size(incident.attempt_id, seconds)
    old_enough_ns = max(incident.first_symptom_ns + seconds * SECOND * 3 // 4, incident.triggered_ns)
    end_ns = min(old_enough_ns, latest_data_ns(incident.attempt_id)) + 1
    return read_window(incident.attempt_id, end_ns - seconds * SECOND, end_ns, now_ns=end_ns)


def job_window(job: Job, seconds: int = SECONDS) -> Window:
    """The newest data of the job's newest attempt. Raises BadAct; Attempt.DoesNotExist when it was never heard of."""
    attempt = Attempt.objects.filter(job=job).latest("number")
    _check_size(attempt.pk, seconds)
    end_ns = latest_data_ns(attempt.pk) + 1
    return read_window(attempt.pk, end_ns - seconds * SECOND, end_ns)


def window_bytes(window: Window) -> bytes:
    """The window as a file's bytes."""
    with tempfile.TemporaryDirectory(prefix="diogenes-") as folder:
        path = Path(folder) / "window.npz"
        save_window(path, window)
        return path.read_bytes()


def _check_size(attempt_id: int, seconds: int) -> None:
    """A window is held in memory whole: BadAct for one that would not fit."""
    n_ranks = Rank.objects.filter(attempt=attempt_id, replaced=False).count()
    longest = min(SECONDS_MAX, RANK_SECONDS_MAX // max(n_ranks, 1))
    if not 0 < seconds <= longest:
        raise BadAct(f"A window of this job ({n_ranks} ranks) may have 1 to {longest} seconds, not {seconds}.")
