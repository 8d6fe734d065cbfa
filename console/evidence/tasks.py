"""Celery's names for what is done with evidence bundles: ids in, one call."""

from __future__ import annotations

from celery import shared_task

from console.evidence import building


@shared_task(soft_time_limit=building.BUILD_SECONDS, time_limit=building.BUILD_SECONDS + 30)
def build_evidence(pk: int) -> None:
    if not building.build(pk):
        build_evidence.apply_async([pk], countdown=building.AGAIN_SECONDS)


@shared_task
def tidy_evidence() -> None:
    building.tidy()
