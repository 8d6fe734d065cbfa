"""Celery's names for what is done with deliveries."""

from __future__ import annotations

from celery import shared_task

from console.tickets import sender

SOFT_LIMIT_SECONDS = int(sender.RUN_SECONDS) + 25  # to write down what the last round did


@shared_task(soft_time_limit=SOFT_LIMIT_SECONDS, time_limit=SOFT_LIMIT_SECONDS + 20)
def send_due() -> None:
    sender.send_due()


@shared_task(soft_time_limit=600, time_limit=660)
def tidy_deliveries() -> None:
    sender.tidy()
