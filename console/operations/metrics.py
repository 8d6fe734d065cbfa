"""What the console counts for Prometheus, each process for itself; what the stack as a whole is like is in stack.py.

Labels are bounded: a task, an outcome, a kind of symptom, a type of message. Never a job, node or rank.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final

from prometheus_client import Counter, Gauge, Histogram

SLOW: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 60)

REQUESTS: Final = Counter("diogenes_http_requests", "Requests to the web process.", ["method", "status"])
REQUEST_SECONDS: Final = Histogram("diogenes_http_request_seconds", "From a request to its answer.", buckets=SLOW)
LIVE_SOCKETS: Final = Gauge("diogenes_live_sockets", "Browsers connected to this web process.")
LIVE_MESSAGES: Final = Counter("diogenes_live_messages_sent", "Live messages sent to browsers.")
GRID_FRAMES: Final = Counter("diogenes_grid_frames", "Changes of topology grids put before sockets.")
GRIDS_FAILED: Final = Counter("diogenes_grids_failed", "Topology grids that could not be drawn.")
RESYNCS: Final = Counter("diogenes_live_resyncs", "Browsers told to fetch the snapshot: messages were missing.")
SNAPSHOTS: Final = Counter("diogenes_snapshots", "Snapshots fetched, by page.", ["page"])
KEPT_ANSWERS: Final = Counter(
    "diogenes_kept_answers",
    "Answers that are kept for seconds (grids, layers, network), by how one was had: kept, stale, waited, made, alone"
    " (Valkey was away); busy: refused, 503.",
    ["outcome"],
)
PUBLISHED: Final = Counter("diogenes_messages_published", "Live messages put on streams.", ["type"])
UNPUBLISHED: Final = Counter(
    "diogenes_messages_unpublished",
    "Live messages that could not be sent at once: Valkey was away, or the relay failed.",
)

TASKS: Final = Counter("diogenes_tasks", "Tasks run, by outcome.", ["task", "outcome"])
TASK_SECONDS: Final = Histogram("diogenes_task_seconds", "How long a task took.", ["task"], buckets=SLOW)
TASK_LAG_SECONDS: Final = Histogram("diogenes_task_lag_seconds", "How long a task waited for a worker.", buckets=SLOW)
LOOKS: Final = Counter("diogenes_looks", "Looks at jobs, by the symptom seen; none; failed.", ["saw"])
LOOK_SECONDS: Final = Histogram(
    "diogenes_look_seconds", "How long a look took, from reading the window to the incident.", buckets=SLOW
)
LOOK_LAG_SECONDS: Final = Histogram(
    "diogenes_look_lag_seconds", "How old the newest data was that a look saw.", buckets=SLOW
)
INCIDENTS_OPENED: Final = Counter("diogenes_incidents_opened", "Incidents opened, by symptom.", ["symptom"])
ASKED_TOO_OFTEN: Final = Counter(
    "diogenes_asked_too_often", "Reports and wishes for another diagnosis that were refused: too many."
)
GUESSES: Final = Counter(
    "diogenes_guesses", "Passwords tried, unknown API tokens and sign-in links, by kind.", ["kind"]
)
GUESSES_REFUSED: Final = Counter("diogenes_guesses_refused", "Those that were too many for their address.", ["kind"])
SIGNINS_REFUSED: Final = Counter(
    "diogenes_signins_refused", "Sign-ins at the provider that let nobody in, by reason.", ["reason"]
)
DEAD_MAN: Final = Counter("diogenes_dead_man", "Dead-man pings, by what became of them.", ["outcome"])
API_REFUSED: Final = Counter("diogenes_api_refused", "REST requests beyond what one caller may send in a minute.")

TICKETS_SENT: Final = Counter(
    "diogenes_deliveries", "Tries at deliveries, by kind of destination.", ["kind", "outcome"]
)
TICKETS_SEEN: Final = Counter(
    "diogenes_ticket_looks", "Looks at tickets, by kind and how they went.", ["kind", "outcome"]
)
TICKETS_REFUSED: Final = Counter("diogenes_deliveries_refused", "Deliveries not promised: too many waited already.")
HOOKS_REFUSED: Final = Counter("diogenes_hooks_refused", "Calls from ticket systems that changed nothing.", ["reason"])

DOOR_REFUSED: Final = Counter("diogenes_door_refused", "Connections to a process' own door beyond sixteen at once.")

METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@contextmanager
def count_request(method: str, send: Send) -> Iterator[Send]:
    """Count what is sent through the callable this yields; a request that ends without an answer counts as 500."""
    began, status = time.monotonic(), [500]

    async def counting(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            status[0] = message["status"]
        await send(message)

    try:
        yield counting
    finally:
        REQUESTS.labels(method if method in METHODS else "other", str(status[0])).inc()
        REQUEST_SECONDS.observe(time.monotonic() - began)


def count_look(began: float, data_ns: int, saw: str) -> None:
    """A look that began at `began` (monotonic seconds), saw data up to `data_ns`, and saw this: a symptom or none."""
    LOOKS.labels(saw).inc()
    LOOK_SECONDS.observe(time.monotonic() - began)
    LOOK_LAG_SECONDS.observe(max(0.0, (time.time_ns() - data_ns) / 1e9))
