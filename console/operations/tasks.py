"""Celery's names for the dead-man ping, and for forgetting old entries of the audit and tokens that ended long ago."""

from __future__ import annotations

from celery import shared_task

from console.accounts.api_tokens import drop_ended_tokens
from console.accounts.audit import drop_old_entries
from console.operations import dead_man


@shared_task(soft_time_limit=30, time_limit=45)
def ping_dead_man() -> None:
    dead_man.ping()


@shared_task
def drop_old_audit() -> None:
    drop_old_entries()


@shared_task
def drop_old_tokens() -> None:
    drop_ended_tokens()
