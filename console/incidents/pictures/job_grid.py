"""The grid of a job for all who look at its page: read from the traces once, at most every few seconds, by whoever asks first.

At 10,000 ranks a reading takes seconds. While one is under way the others are given the answer before it, as long as that is not
old; without one they wait for what is under way.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from typing import Final

from console.dashboard.kept import kept_once
from console.incidents.pictures.evidence import job_grid
from ingest.models import Job

FRESH_SECONDS: Final = 4.0
STALE_SECONDS: Final = 30.0
"""So much older an answer may be that is given while the next one is read; pages say of when it is."""
_LEVEL: Final = 1


def packed_job_grid(job: Job) -> bytes:
    """Columns as gzipped JSON. Attempt.DoesNotExist when nothing was ever heard of the job; Busy."""
    return kept_once(f"job-grid:{job.pk}", lambda: _read(job), FRESH_SECONDS, STALE_SECONDS)


def _read(job: Job) -> bytes:
    body = json.dumps(dataclasses.asdict(job_grid(job)), separators=(",", ":"))
    return gzip.compress(body.encode(), _LEVEL)
