"""Celery's names for what the console does on its own: ids in, one call."""

from __future__ import annotations

from celery import shared_task

from console.dumps.news import attempts_asked, attempts_dumping, has_dumps
from console.incidents import lifecycle, publish, retention
from console.incidents.acts.again import attempts_asked_for
from console.incidents.health import publish_health
from console.incidents.pictures import topology, why_not
from console.incidents.watching import watch
from console.silences.acts import settle_due
from ingest.door.marks import take_dumped, take_heard
from ingest.read import running_attempts


@shared_task
def watch_all_jobs() -> None:
    """The regular look at every job; also notices attempts that ended, and those somebody asks a diagnosis of or that have
    dumps to be read.
    """
    watch.close_ended()
    running = {attempt.id for attempt in running_attempts()}
    for attempt_id in running.union(attempts_asked_for(), attempts_dumping()):
        watch_job.delay(attempt_id)
    publish_health()


@shared_task
def watch_heard_jobs() -> None:
    """The light look at jobs just heard from, and at those whose dumps have come."""
    for attempt_id in take_heard() | attempts_asked(take_dumped()):
        watch_job.delay(attempt_id)


@shared_task(expires=8, soft_time_limit=60, time_limit=90)  # one look that never ends must not end all looks
def watch_job(attempt_id: int) -> None:
    try:
        watch.watch_job(attempt_id)
    finally:
        if has_dumps(attempt_id):
            watch_dumps.delay(attempt_id)


@shared_task(expires=8, soft_time_limit=120, time_limit=150)  # dumps of ten thousand ranks take long to read
def watch_dumps(attempt_id: int) -> None:
    watch.watch_dumps(attempt_id)


@shared_task(  # whoever asked waits
    expires=why_not.EXPIRES_SECONDS, soft_time_limit=why_not.LIMIT_SECONDS, time_limit=why_not.LIMIT_HARD_SECONDS
)
def answer_why_not(number: int, rank: int, key: str) -> None:
    why_not.answer(number, rank, key)


@shared_task(soft_time_limit=60, time_limit=90)
def draw_grids() -> None:
    """The grids that somebody looks at, and those somebody will look at when paged."""
    topology.draw_wanted()


@shared_task
def relay_outbox() -> None:
    publish.relay_waiting()


@shared_task
def tend_incidents() -> None:
    """What ends by the clock: acknowledgements and silences."""
    lifecycle.end_acknowledgements()
    settle_due()


@shared_task(soft_time_limit=50, time_limit=60)
def copy_evidence() -> None:
    retention.copy_evidence()


@shared_task(soft_time_limit=1800, time_limit=1900)  # what was done is kept, and the next pass goes on
def apply_retention() -> None:
    retention.apply_retention()
