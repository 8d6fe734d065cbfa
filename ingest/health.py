"""How ingest is, for whoever does not run in it: each process says so once a second in its row of `ingest_writer`."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from django.db import connection

from ingest.traces.space import UNKNOWN, Space, data_folders, measure

LIVING_SECONDS: Final = 10


@dataclass(frozen=True, slots=True)
class IngestProcess:
    """One ingest process that lives. process: machine:pid; counts: what its own health answer shows."""

    process: str
    heard_at: datetime
    counts: dict[str, Any]


@dataclass(frozen=True, slots=True)
class IngestHealth:
    """space: the worst any of them sees; when the disk is so full that they cannot write, what we see ourselves."""

    processes: list[IngestProcess]
    space: Space


def read_health() -> IngestHealth:
    """The ingest processes heard from in the last ten seconds, and the room on the database's disk."""
    with connection.cursor() as cursor:
        cursor.execute(_LIVING, [LIVING_SECONDS])
        processes = [IngestProcess(name, at, json.loads(counts)) for name, at, counts in cursor.fetchall()]
    seen = [Space(**said) for process in processes if (said := process.counts.get("space"))]
    seen.append(measure(data_folders()))
    return IngestHealth(processes, next((space for space in seen if space.is_short), _known(seen)))


def _known(spaces: list[Space]) -> Space:
    return next((space for space in spaces if space.free_bytes is not None), UNKNOWN)


_LIVING: Final = """
SELECT DISTINCT ON (process) process, summed_at, health FROM ingest_writer
WHERE summed_at > now() - make_interval(secs => %s) AND health <> '{}' ORDER BY process, summed_at DESC, id DESC
"""
