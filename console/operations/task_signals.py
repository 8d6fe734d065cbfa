"""What Celery's signals are used for: counting tasks, naming their log lines, and saying that worker and beat live.

The worker's parent ticks with the heart of its consumer, beat with each task it sends; a child of the worker runs the
tasks and counts them, so it opens a door of its own. Imported by console/celery.py, which connects everything here.
"""

from __future__ import annotations

import gc
import time
from typing import Any

from celery import signals

from console.operations.listener import listen
from console.operations.metrics import TASK_LAG_SECONDS, TASK_SECONDS, TASKS
from console.operations.startup import say_problems
from ingest import process
from ingest.log_context import current_fields, set_log_fields

_began: dict[str, float] = {}


@signals.worker_ready.connect
@signals.beat_init.connect
def open_door(**_: Any) -> None:
    process.tick()
    listen()
    say_problems()


@signals.worker_process_init.connect
def open_childs_door(**_: Any) -> None:
    gc.freeze()  # what is loaded by now stays: a look makes enough of its own to have it gone through again and again
    listen(is_child=True)


@signals.heartbeat_sent.connect
def tick_worker(**_: Any) -> None:
    process.tick()


@signals.after_task_publish.connect
def tick_beat(**_: Any) -> None:
    if process.NAME == "beat":
        process.tick()


@signals.before_task_publish.connect
def name_cause(headers: dict[str, Any] | None = None, **_: Any) -> None:
    """A task knows the request that asked for it, and when."""
    if headers is not None:
        headers["sent_at"] = time.time()
        if request_id := current_fields().get("request_id"):
            headers["request_id"] = request_id


@signals.task_prerun.connect
def begin(task_id: str = "", task: Any = None, args: Any = (), **_: Any) -> None:
    fields = {"task": short_name(task), "look": task_id, "request_id": getattr(task.request, "request_id", None)}
    if fields["task"] == "watch_job" and args:
        fields["attempt"] = args[0]
    set_log_fields({name: value for name, value in fields.items() if value is not None})
    _began[task_id] = time.monotonic()
    if sent_at := getattr(task.request, "sent_at", None):
        TASK_LAG_SECONDS.observe(max(0.0, time.time() - float(sent_at)))


@signals.task_postrun.connect
def end(task_id: str = "", task: Any = None, state: str | None = None, **_: Any) -> None:
    name = short_name(task)
    TASKS.labels(name, "ok" if state == "SUCCESS" else "failed").inc()
    TASK_SECONDS.labels(name).observe(time.monotonic() - _began.pop(task_id, time.monotonic()))
    set_log_fields({})


def short_name(task: Any) -> str:
    return str(getattr(task, "name", "")).rpartition(".")[2]
