"""Celery's names for what is done with stages: ids in, one call."""

from __future__ import annotations

from celery import shared_task

from console.incidents.retention import AGAIN_SECONDS, alone
from console.stages import store, watch
from ingest.read import running_attempts


@shared_task
def watch_all_stages() -> None:
    """Cut what the recorders of running attempts have sent, and what those that have ended left."""
    for number in (*(attempt.id for attempt in running_attempts()), *watch.unfinished()):
        watch_stages.delay(number)


@shared_task(expires=20, soft_time_limit=100, time_limit=120)  # windows of very many ranks take long to read
def watch_stages(attempt_id: int) -> None:
    watch.watch_stages(attempt_id)


@shared_task(soft_time_limit=600, time_limit=660)
def drop_old_packets() -> None:
    with alone() as is_mine:
        if is_mine:
            store.drop_old_packets()
        else:
            drop_old_packets.apply_async(countdown=AGAIN_SECONDS)
