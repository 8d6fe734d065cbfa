"""Metrics of the stack as a whole, read when they are asked for; the web process tells them, however many there are.

Few queries, each with a time limit, and what was read stands for a few seconds. What cannot be read is said
(`diogenes_unreadable`), and its numbers are left out: a number of yesterday would look like one of now. Jobs are named
only where a name helps, the fifty that lag most; how many were left out is told.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from django.conf import settings
from django.db import connections
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector
from psycopg import Connection

from console.operations.alive import read_alive, valkey
from ingest.health import read_health
from ingest.needs import partitions_ahead
from ingest.process import LOOKS_QUEUE, OTHER_QUEUE, SERVERS, URGENT_QUEUE
from ingest.traces.database import connect
from ingest.traces.space import Space, data_folders, measure

JOBS_NAMED_MAX: Final = 50
FRESH_SECONDS: Final = 5.0
STATEMENT_MS: Final = 2_000
QUEUES: Final = (LOOKS_QUEUE, URGENT_QUEUE, OTHER_QUEUE)
MEANING: Final = {
    "diogenes_processes": "Processes heard from in the last 15 s, by kind.",
    "diogenes_nodes": "Nodes of running attempts: reporting, catching_up, silent; unheard: ingest was not listening.",
    "diogenes_job_lag_seconds": "How far behind now the slowest reporting node of a job is; the 50 jobs that lag most.",
    "diogenes_jobs_left_out": "Running jobs that diogenes_job_lag_seconds leaves out.",
    "diogenes_incidents": "Incidents that are not resolved, by state.",
    "diogenes_incidents_quiet": "Those of them that wake nobody: silenced, attached to another.",
    "diogenes_silences": "Silences in force, by kind: silence, maintenance.",
    "diogenes_outbox_waiting": "Live messages of incidents that wait to be relayed.",
    "diogenes_looks_overdue": "Running jobs with reporting nodes that nobody has looked at for 30 s.",
    "diogenes_partitions_ahead": "Hours of traces there are partitions for; absent where the store makes its own room.",
    "diogenes_rollup_lag_seconds": "Since an ingest process last wrote roll-ups: a second when all is well.",
    "diogenes_tasks_waiting": "Tasks that wait for a worker, by queue.",
    "diogenes_disk_free_bytes": "Room left for the database; absent where it is on a machine nobody here can look at.",
    "diogenes_disk_reserve_bytes": "What of it traces may not use.",
    "diogenes_disk_short": "1 while traces are refused for want of room.",
    "diogenes_let_go": "What retention let go of so far: evidence after its time, hours for want of room.",
    "diogenes_restarts": "How often `manage.py up` started a process again since it began; absent where it did not.",
    "diogenes_unreadable": "1 when these numbers could not be read: database or valkey.",
}
_QUIET: Final = """
SELECT 'silenced', count(*) FROM incidents_incident WHERE state <> 'resolved' AND silenced_until > now()
UNION ALL SELECT 'attached', count(*) FROM incidents_incident WHERE state <> 'resolved' AND attached_to_id IS NOT NULL
"""
_SILENCES: Final = """
SELECT kind, count(*) FROM silences_silence WHERE starts_at <= now() AND ends_at > now() GROUP BY 1
"""
_NODES: Final = """
SELECT CASE WHEN n.received_ns < %(reporting)s THEN 'silent' WHEN n.catching_up THEN 'catching_up' ELSE 'reporting' END,
    count(*)
FROM ingest_node n JOIN ingest_attempt a ON a.id = n.attempt_id WHERE a.state = 'running' GROUP BY 1
"""
_HEARS: Final = """
SELECT count(*) FROM ingest_listening WHERE now() - until <= interval '3 s' AND now() - since >= interval '10 s'
"""
"""As ingest.door.listening.hears, which needs models: this module is loaded before there are any."""
_LAGS: Final = """
SELECT j.name, min(n.watermark_ns) FROM ingest_node n JOIN ingest_attempt a ON a.id = n.attempt_id
JOIN ingest_job j ON j.id = a.job_id WHERE a.state = 'running' AND n.received_ns >= %(reporting)s AND n.watermark_ns > 0
GROUP BY a.id, j.name ORDER BY 2
"""
_OVERDUE: Final = """
SELECT count(*) FROM ingest_attempt a WHERE a.state = 'running'
AND EXISTS (SELECT 1 FROM ingest_node n WHERE n.attempt_id = a.id AND n.received_ns >= %(reporting)s)
AND a.started_at < now() - interval '30 s'
AND NOT EXISTS (SELECT 1 FROM incidents_look l WHERE l.attempt_id = a.id AND l.taken_at > now() - interval '30 s')
"""
_ROLLUP_AGE: Final = "SELECT extract(epoch FROM now() - max(summed_at))::float8 FROM ingest_writer"
REPORTING_NS: Final = 10_000_000_000


@dataclass(eq=False)
class StackCollector(Collector):
    """Registered in the web process' registry."""

    now: Callable[[], float] = time.monotonic
    _read_at: float = field(default=float("-inf"), init=False)
    _families: list[Metric] = field(default_factory=list, init=False)
    _reading: threading.Lock = field(default_factory=threading.Lock, init=False)

    def describe(self) -> list[Metric]:
        """Names without asking anybody: registering must not open connections."""
        return [GaugeMetricFamily(name, meaning) for name, meaning in MEANING.items()]

    def collect(self) -> Iterator[Metric]:
        with self._reading:
            if self.now() - self._read_at > FRESH_SECONDS:
                self._families, self._read_at = list(_read()), self.now()
        yield from self._families


def looks_overdue(now_ns: int) -> int:
    """Running jobs with reporting nodes that nobody has looked at for 30 s. Raises the database's error."""
    with connect() as connection:
        return int(_one(connection, _OVERDUE, {"reporting": now_ns - REPORTING_NS}))


def _read() -> Iterator[Metric]:
    missing = {"database": 0.0, "valkey": 0.0}
    for part, read in (("database", _of_the_database), ("valkey", _of_valkey)):
        try:
            yield from list(read())
        except Exception:  # whatever it is, the other numbers are told
            missing[part] = 1.0
    yield from _of_the_disk(_space())
    yield from _of_the_supervisor()
    yield _by("diogenes_unreadable", "part", missing)


def _of_the_database() -> Iterator[Metric]:
    now = datetime.now(UTC)
    now_ns = time.time_ns()
    with connect() as connection:
        connection.execute(f"SET statement_timeout = {STATEMENT_MS}")
        since = {"reporting": now_ns - REPORTING_NS}
        found = dict(connection.execute(_NODES, since).fetchall())
        yield _by("diogenes_nodes", "state", _states(found, bool(_one(connection, _HEARS))))
        yield from _lags(connection.execute(_LAGS, since).fetchall(), now_ns)
        yield _gauge("diogenes_looks_overdue", _one(connection, _OVERDUE, since))
        incidents = "SELECT state, count(*) FROM incidents_incident WHERE state <> 'resolved' GROUP BY 1"
        found = dict(connection.execute(incidents).fetchall())
        yield _by("diogenes_incidents", "state", {"open": 0, "acknowledged": 0, **found})
        yield _by("diogenes_incidents_quiet", "kind", dict(connection.execute(_QUIET).fetchall()))
        in_force = dict(connection.execute(_SILENCES).fetchall())
        yield _by("diogenes_silences", "kind", {"silence": 0, "maintenance": 0, **in_force})
        waiting = "SELECT count(*) FROM incidents_outboxrow WHERE relayed_at IS NULL"
        yield _gauge("diogenes_outbox_waiting", _one(connection, waiting))
        yield _by("diogenes_let_go", "kind", _let_go(connection))
        ahead = partitions_ahead(connection, now)
        if ahead is not None:
            yield _gauge("diogenes_partitions_ahead", ahead)
        (age,) = connection.execute(_ROLLUP_AGE).fetchone() or (None,)
        if age is not None:
            yield _gauge("diogenes_rollup_lag_seconds", max(0.0, age))


def _states(found: dict[str, int], is_heard: bool) -> dict[str, int]:
    """Who is not heard is silent only while ingest would hear it."""
    states = {"reporting": 0, "catching_up": 0, "silent": 0, "unheard": 0} | found
    if not is_heard:
        states |= {"silent": 0, "unheard": states["silent"]}
    return states


def _let_go(connection: Connection[Any]) -> dict[str, int]:
    found = dict(connection.execute("SELECT kind, n FROM ingest_letgo").fetchall())
    return {"windows": 0, "windows_cut": 0, "dumps": 0, "dumps_refused": 0, "hours": 0} | found


def _lags(rows: list[Any], now_ns: int) -> Iterator[Metric]:
    lags: dict[str, float] = {}
    for name, watermark_ns in rows[:JOBS_NAMED_MAX]:
        lags[name] = max(lags.get(name, 0.0), (now_ns - watermark_ns) / 1e9)  # two teams may have a job of one name
    yield _by("diogenes_job_lag_seconds", "job", lags)
    yield _gauge("diogenes_jobs_left_out", max(0, len(rows) - JOBS_NAMED_MAX))


def _of_valkey() -> Iterator[Metric]:
    client = valkey()
    yield _by("diogenes_tasks_waiting", "queue", {queue: int(client.llen(queue)) for queue in QUEUES})
    alive = Counter(note.process for note in read_alive() or () if not note.is_child)
    yield _by("diogenes_processes", "process", {name: alive[name] for name in SERVERS})


def _space() -> Space:
    """As the ingest processes see it; as we do while the database is away, perhaps for want of room."""
    try:
        return read_health().space
    except Exception:
        return measure(data_folders())
    finally:
        connections["default"].close()


def _of_the_supervisor() -> Iterator[Metric]:
    """How often `manage.py up` started a child again; nothing where somebody else starts the processes."""
    try:
        restarts = json.loads((settings.DATA_FOLDER / "restarts").read_text())
    except (OSError, ValueError):
        return
    counts = {name: restart["count"] for name, restart in restarts.items()}
    yield _by("diogenes_restarts", "process", dict.fromkeys(SERVERS, 0) | counts)


def _of_the_disk(space: Space) -> Iterator[Metric]:
    yield _gauge("diogenes_disk_short", float(space.is_short))
    if space.free_bytes is not None and space.reserve_bytes is not None:
        yield _gauge("diogenes_disk_free_bytes", space.free_bytes)
        yield _gauge("diogenes_disk_reserve_bytes", space.reserve_bytes)


def _one(connection: Connection[Any], query: Any, parameters: Any = None) -> int:
    row = connection.execute(query, parameters).fetchone()
    return int(row[0]) if row else 0


def _gauge(name: str, value: float) -> Metric:
    return GaugeMetricFamily(name, MEANING[name], value=value)


def _by(name: str, label: str, values: Any) -> Metric:
    family = GaugeMetricFamily(name, MEANING[name], labels=[label])
    for key, value in values.items():
        family.add_metric([str(key)], value)
    return family
