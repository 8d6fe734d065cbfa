"""The Celery application: what runs, how often, and in which queue.

Three queues, each with a worker of its own. `watch` has the looks, which expire within their period: a late look is worth
nothing, the next one sees more. `urgent` has what people or pages wait for, deliveries above all. All else is in `celery`, the
queue of who names none: what takes long, dumps, stages, pictures, bundles or upkeep, waits for its like alone. One worker for
several queues would not do: one whose processes are busy takes a message more for each of them and holds it.
"""

from __future__ import annotations

import os
import warnings
from datetime import timedelta
from typing import Any

from celery import Celery
from celery.app.amqp import AMQP
from celery.exceptions import SecurityWarning
from django.conf import settings
from kombu import Connection, Queue

from console.operations import task_signals
from ingest.process import LOOKS_QUEUE, OTHER_QUEUE, URGENT_QUEUE

RETRY_SECONDS_MAX = 2.0
LOOKS = ("watch_job", "watch_heard_jobs", "watch_all_jobs")
URGENT = (
    "console.tickets.tasks.send_due", "console.incidents.tasks.relay_outbox", "console.incidents.tasks.tend_incidents",
    "console.incidents.tasks.draw_grids", "console.incidents.tasks.answer_why_not", "console.operations.tasks.ping_dead_man",
)  # fmt: skip
"""Of these only one each delivers and draws at a time, and an answer has 30 s: three processes are never all held for long."""
ROUTES = {f"console.incidents.tasks.{name}": {"queue": LOOKS_QUEUE} for name in LOOKS} | {
    name: {"queue": URGENT_QUEUE} for name in URGENT
}

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
# Root is warned of because pickled tasks could run anything: ours are JSON, and nothing else is accepted.
warnings.filterwarnings("ignore", message=".*running the worker with superuser", category=SecurityWarning)


class PromptConnection(Connection):
    """Asks for the broker again every two seconds; kombu's own pauses grow to half a minute, in which nobody would look."""

    def ensure_connection(self, *args: Any, **options: Any) -> Any:
        pauses = {"interval_start": 0.5, "interval_step": 0.5, "interval_max": RETRY_SECONDS_MAX}
        return super().ensure_connection(*args, **{**pauses, **options})


class PromptBroker(AMQP):
    """Celery's way to the broker, with our connection."""

    Connection = PromptConnection


app = Celery("diogenes", broker=settings.CELERY_BROKER_URL, amqp=PromptBroker)
SIGNALS = task_signals  # connected by having been imported


def _every(seconds: float, task: str, where: str = "incidents") -> dict[str, Any]:
    options = {"expires": max(seconds * 0.9, 1.0)}
    return {"task": f"console.{where}.tasks.{task}", "schedule": timedelta(seconds=seconds), "options": options}


def _schedule() -> dict[str, dict[str, Any]]:
    schedule = {
        "watch all jobs": _every(settings.WATCH_ALL_SECONDS, "watch_all_jobs"),
        "relay what is left": _every(5.0, "relay_outbox"),
        "acknowledgements and silences": _every(5.0, "tend_incidents"),
        "grids": _every(1.0, "draw_grids"),
        "evidence": _every(60.0, "copy_evidence"),
        "retention": _every(3600.0, "apply_retention"),
        "stages": _every(settings.WATCH_STAGES_SECONDS, "watch_all_stages", "stages"),
        "old stages": _every(3600.0, "drop_old_packets", "stages"),
        "deliveries": _every(5.0, "send_due", "tickets"),
        "looks at tickets": _every(15.0, "look_at_tickets", "tickets"),
        "pictures for tickets": _every(15.0, "draw_pictures", "tickets"),
        "old deliveries": _every(3600.0, "tidy_deliveries", "tickets"),
        "old audit": _every(3600.0, "drop_old_audit", "operations"),
        "old tokens": _every(3600.0, "drop_old_tokens", "operations"),
        "bundles": _every(60.0, "tidy_bundles", "dumps"),
        "evidence bundles": _every(60.0, "tidy_evidence", "evidence"),
    }
    if settings.DEAD_MAN_URL:
        schedule["dead man"] = _every(60.0, "ping_dead_man", "operations")
    if settings.WATCH_HEARD_SECONDS > 0:
        schedule["watch heard jobs"] = _every(settings.WATCH_HEARD_SECONDS, "watch_heard_jobs")
    return schedule


app.conf.update(
    imports=[f"console.{name}.tasks" for name in ("incidents", "dumps", "stages", "tickets", "evidence", "operations")],
    accept_content=["json"],
    task_ignore_result=True,
    task_queues=[Queue(LOOKS_QUEUE), Queue(URGENT_QUEUE), Queue(OTHER_QUEUE)],
    task_default_queue=OTHER_QUEUE,
    task_routes=ROUTES,
    worker_prefetch_multiplier=1,
    worker_hijack_root_logger=False,
    broker_connection_retry_on_startup=True,
    broker_connection_max_retries=None,
    timezone="UTC",
    beat_schedule=_schedule(),
    beat_max_loop_interval=1,
)
