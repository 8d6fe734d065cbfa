"""What ingest counts for Prometheus. Every process that receives batches counts for itself; scrape each of them.

Labels are bounded: a status, a kind of loss. Never a team, job, node or rank: those are counted in the database, where
they can be forgotten again. Nothing is kept in shared files: on a full disk writing to those kills the process.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

from prometheus_client import Counter, Gauge, Histogram, disable_created_metrics

disable_created_metrics()  # half of all lines, for a time that nobody asks for

REQUESTS: Final = Counter(
    "diogenes_ingest_requests", "Requests to ingest, by status of the answer (200: the batch is on disk).", ["status"]
)
REQUEST_SECONDS: Final = Histogram(
    "diogenes_ingest_request_seconds",
    "From the request's headers to the answer, of POST /ingest/batches.",
    buckets=(0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30),
)
COMMIT_SECONDS: Final = Histogram(
    "diogenes_commit_seconds",
    "One transaction that stores a handful of batches, the flush to disk included.",
    buckets=(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5),
)
COMMIT_BATCHES: Final = Histogram(
    "diogenes_commit_batches", "Batches in one commit.", buckets=(1, 2, 4, 8, 12, 16, 32, 64)
)
BATCHES_STORED: Final = Counter("diogenes_batches_stored", "Batches stored for the first time.")
BATCHES_REPEATED: Final = Counter("diogenes_batches_repeated", "Batches that had been stored before: nothing changed.")
BATCHES_WAITING: Final = Gauge("diogenes_batches_waiting", "Batches that wait for a committer, as of the last second.")
BYTES_HELD: Final = Gauge("diogenes_bytes_held", "Memory that requests may be holding, as of the last second.")
ROWS_DROPPED: Final = Counter("diogenes_rows_dropped", "Rows of accepted batches that could not be true.")
KAFKA_MESSAGES: Final = Counter(
    "diogenes_kafka_messages", "Messages read from Kafka, by what became of them.", ["outcome"]
)
KAFKA_LAG: Final = Gauge(
    "diogenes_kafka_lag", "Messages that wait in this consumer's partitions, as of the last reading."
)
LOSSES: Final = Counter("diogenes_losses", "What agents say they lost, by kind.", ["kind"])


_answered = cache(lambda status: REQUESTS.labels(str(status)))


def count_answer(status: int, seconds: float) -> None:
    """A request was answered."""
    _answered(status).inc()
    REQUEST_SECONDS.observe(seconds)


def count_batch(is_new: bool, n_dropped: int, losses: Mapping[str, int]) -> None:
    """A batch was committed. Kinds of losses come from the wire format's table, so there are few."""
    if not is_new:
        BATCHES_REPEATED.inc()
        return
    BATCHES_STORED.inc()
    if n_dropped:
        ROWS_DROPPED.inc(n_dropped)
    for kind, n in losses.items():
        LOSSES.labels(kind).inc(n)
