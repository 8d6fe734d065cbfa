"""Celery's name for the dead-man ping."""

from __future__ import annotations

from celery import shared_task

from console.operations import dead_man


@shared_task(soft_time_limit=30, time_limit=45)
def ping_dead_man() -> None:
    dead_man.ping()
