"""Celery's names for what is done with deliveries."""

from __future__ import annotations

from celery import shared_task

from console.incidents.retention import AGAIN_SECONDS, alone
from console.tickets import drawing, remote, sender

SOFT_LIMIT_SECONDS = int(sender.RUN_SECONDS) + 25  # to write down what the last round did


@shared_task(soft_time_limit=SOFT_LIMIT_SECONDS, time_limit=SOFT_LIMIT_SECONDS + 20)
def send_due() -> None:
    sender.send_due()


@shared_task(soft_time_limit=int(remote.RUN_SECONDS) + 60, time_limit=int(remote.RUN_SECONDS) + 80)
def look_at_tickets() -> None:
    remote.look_around()


@shared_task(soft_time_limit=120, time_limit=150)
def draw_pictures() -> None:
    drawing.draw_due()


@shared_task(soft_time_limit=600, time_limit=660)
def tidy_deliveries() -> None:
    with alone() as is_mine:
        if is_mine:
            sender.tidy()
        else:
            tidy_deliveries.apply_async(countdown=AGAIN_SECONDS)
