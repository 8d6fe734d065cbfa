"""Celery's names for what is done with bundles: keys in, one call."""

from __future__ import annotations

from celery import shared_task

from console.dumps import bundles


@shared_task(soft_time_limit=bundles.READ_SECONDS + 30, time_limit=bundles.READ_SECONDS + 60)
def read_bundle(key: str) -> None:
    if not bundles.read(key):
        read_bundle.apply_async([key], countdown=bundles.AGAIN_SECONDS)


@shared_task
def tidy_bundles() -> None:
    bundles.tidy()
