"""The grid of a job for all who look at its page: read from the traces once, at most every few seconds, by whoever asks first.

At 10,000 ranks a reading takes seconds. While one is under way the others are given the answer before it, as long as that is not
old; without one they wait for what is under way.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import time
from typing import Final

from django.core.cache import cache

from console.incidents.pictures.evidence import job_grid
from ingest.models import Job

FRESH_SECONDS: Final = 4.0
KEPT_SECONDS: Final = 30
"""So old an answer may be that is given while the next one is read; pages see when it is of."""
READING_SECONDS: Final = 60
WAIT_SECONDS: Final = 20.0
STEP_SECONDS: Final = 0.1
_LEVEL: Final = 1


def packed_job_grid(job: Job) -> bytes:
    """Columns as gzipped JSON. Attempt.DoesNotExist when nothing was ever heard of the job."""
    key, stop_at = f"job-grid:{job.pk}", time.monotonic() + WAIT_SECONDS
    while True:
        kept: tuple[float, bytes] | None = cache.get(key)
        if kept is not None and time.time() - kept[0] < FRESH_SECONDS:
            return kept[1]
        if cache.add(f"{key}:reading", 1, READING_SECONDS):
            return _read(job, key)
        if kept is not None:
            return kept[1]
        if time.monotonic() > stop_at:  # whoever reads it takes too long, or is gone
            return _read(job, key)
        time.sleep(STEP_SECONDS)


def _read(job: Job, key: str) -> bytes:
    try:
        body = json.dumps(dataclasses.asdict(job_grid(job)), separators=(",", ":"))
        packed = gzip.compress(body.encode(), _LEVEL)
        cache.set(key, (time.time(), packed), KEPT_SECONDS)
        return packed
    finally:
        cache.delete(f"{key}:reading")
