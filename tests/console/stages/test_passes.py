"""The pass over stages: the end of a job, what cannot be cut, and windows as long as settings permit."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from console.celery import app
from console.stages import tasks, watch
from console.stages.models import StageCursor, StagePacket
from console.stages.read import Recording, recording_of
from ingest.models import Attempt, Node
from rca.settings import SECOND_NS
from tests.console.stages.training import Training
from tests.eval.stages_model import Job
from tests.ingest.conftest import Ingest, ingest, no_traces

__all__ = ["ingest", "no_traces"]  # fixtures
pytestmark = pytest.mark.django_db(transaction=True)

Steps = list[tuple[int, int]]


@pytest.fixture(autouse=True)
def at_once() -> Iterator[None]:
    app.conf.task_always_eager = True
    yield
    app.conf.task_always_eager = False


@sync_to_async
def beat() -> Steps:
    """What the schedule calls; first and last step of every window there is."""
    tasks.watch_all_stages()
    return list(StagePacket.objects.order_by("end_ns").values_list("first_step", "last_step"))


@sync_to_async
def end() -> None:
    Attempt.objects.update(state=Attempt.State.ENDED, ended_at=timezone.now(), end_reason="silent")


@sync_to_async
def recording() -> Recording:
    return recording_of(Attempt.objects.latest("pk"))


async def test_the_last_window_of_a_job_that_has_ended_is_cut_by_the_schedule(ingest: Ingest) -> None:
    await Training(ingest).train(20 + 120 + 100)
    assert await beat() == [(20, 139)]
    assert await beat() == [(20, 139)]  # while it runs, the rest may still become a whole window
    await end()
    found = await beat()
    assert (len(found), found[-1][0]) == (2, 140)
    newest = await StagePacket.objects.alatest("end_ns")
    assert newest.body["closed"] == "the data ends"
    assert await sync_to_async(watch.unfinished)() == []
    assert await beat() == found


async def test_what_comes_after_the_end_is_cut_too_and_a_job_without_stages_is_done_with(ingest: Ingest) -> None:
    job = Training(ingest)
    await ingest.send(job.fake.batch(0, 0))
    await end()
    assert await beat() == []
    assert await sync_to_async(watch.unfinished)() == []
    await Node.objects.aupdate(watermark_ns=(await Node.objects.aget()).watermark_ns + SECOND_NS)
    assert len(await sync_to_async(watch.unfinished)()) == 1


async def test_a_group_that_cannot_be_cut_is_told_and_after_some_passes_stepped_over(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Training(ingest)
    await job.train(20 + 120 + 10)
    real = watch.judge

    def refused(*given: Any) -> Any:
        if given[0].steps[0] == 20:
            raise ValueError("Out of range float values are not JSON compliant")
        return real(*given)

    monkeypatch.setattr(watch, "judge", refused)
    said = "ValueError: Out of range float values are not JSON compliant"
    for _ in range(watch.TRIES_MAX - 1):
        assert await beat() == []
        assert await recording() == Recording(True, 0, said)
    assert await beat() == []
    assert await recording() == Recording(True, 1, said)
    await job.train(150)
    found = await beat()
    assert len(found) == 1 and found[0][0] >= 140
    assert await recording() == Recording(True, 1, "")


async def test_rows_that_cannot_be_read_are_stepped_over_too(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    await Training(ingest).train(150)

    def broken(*_: Any) -> Any:
        raise ValueError("bad rows")

    monkeypatch.setattr(watch, "steps_of", broken)
    for _ in range(watch.TRIES_MAX):
        await beat()
    at = await StageCursor.objects.aget()
    assert (at.gaps, at.failed, at.tries, at.read_ns > 0) == (1, "ValueError: bad rows", {}, True)


async def test_warm_up_that_is_read_twice_stays_left_out(ingest: Ingest) -> None:
    job = Training(ingest)
    await job.train(15)
    assert await beat() == []
    await job.train(140)
    assert await beat() == [(20, 139)]


async def test_a_job_whose_settings_ask_for_long_windows_has_windows(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = watch.settings_of
    monkeypatch.setattr(
        watch, "settings_of", lambda job: replace(real(job), stage_window_ns=200 * SECOND_NS, stage_steps=2000)
    )
    job = Training(ingest, Job(step_s=4.0))
    for n_steps in (30, 30, 22):  # read in parts
        await job.train(n_steps)
        found = await beat()
    assert found[0][0] == 20
    first = await StagePacket.objects.aearliest("end_ns")
    assert 190 * SECOND_NS <= first.end_ns - first.start_ns <= 210 * SECOND_NS
