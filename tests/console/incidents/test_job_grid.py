"""The grid of a job's page: one reading of the traces for all who look, and nobody waits for a reading that has a forerunner."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.cache import cache

from console.accounts.models import Role
from console.dashboard import kept
from console.incidents.pictures import job_grid
from ingest.models import Job, Team
from tests.console.conftest import make_persona
from tests.console.incidents.stalling import StallingJob
from tests.ingest.conftest import Ingest, ingest, no_traces

__all__ = ["ingest", "no_traces"]  # fixtures
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def readings(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The jobs whose grid was really read, in order."""
    found: list[int] = []
    real = job_grid.job_grid

    def counted(job: Job) -> Any:
        found.append(job.pk)
        return real(job)

    monkeypatch.setattr(job_grid, "job_grid", counted)
    cache.clear()
    return found


async def test_all_who_look_at_a_job_share_one_reading_and_strangers_see_nothing(
    ingest: Ingest, readings: list[int]
) -> None:
    await StallingJob(ingest).run(3)
    job = await Job.objects.aget()
    vera = await sync_to_async(make_persona)("vera", ingest.team, Role.VIEWER)
    answers = [await sync_to_async(vera.browser.get)(f"/api/v1/jobs/{job.pk}/grid") for _ in range(3)]
    assert [one.status_code for one in answers] == [200] * 3 and readings == [job.pk]
    columns = answers[0].json()
    assert columns["rank"] == list(range(8)) and columns["states"] and len(columns["state"]) == 8
    packed = await sync_to_async(vera.browser.get)(f"/api/v1/jobs/{job.pk}/grid", headers={"Accept-Encoding": "gzip"})
    assert json.loads(gzip.decompress(packed.content)) == columns
    others = await Team.objects.acreate(name="others")
    stranger = await sync_to_async(make_persona)("ste", others, Role.VIEWER)
    assert (await sync_to_async(stranger.browser.get)(f"/api/v1/jobs/{job.pk}/grid")).status_code == 404


async def test_after_some_seconds_it_is_read_again(
    ingest: Ingest, readings: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    await StallingJob(ingest).run(3)
    job = await Job.objects.aget()
    monkeypatch.setattr(job_grid, "FRESH_SECONDS", -1.0)
    monkeypatch.setattr(kept, "TIMES_KEPT", -1.0)
    for n in (1, 2):
        await sync_to_async(job_grid.packed_job_grid)(job)
        assert len(readings) == n


def test_while_one_reads_the_others_are_given_what_was_before(db: None, readings: list[int]) -> None:
    job = Job(pk=-7)
    cache.set("job-grid:-7", (0.0, b"before"), 30)
    cache.add("job-grid:-7:reading", "somebody", 30)
    assert job_grid.packed_job_grid(job) == b"before" and readings == []
    cache.clear()
