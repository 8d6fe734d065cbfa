"""Silence is no news while nobody could listen: gaps of our own are noticed, and no attempt ends because of them."""

from __future__ import annotations

from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone
from psycopg.errors import DiskFull

from ingest.door.listening import GAP, ROW, heard_since_ns, listening_since
from ingest.jobs.endings import ATTEMPT_IDLE, end_idle_attempts
from ingest.models import Attempt, Listening
from tests.builders import SECOND, FakeJob
from tests.ingest.conftest import Ingest, ingest, no_traces

__all__ = ["ingest", "no_traces"]  # fixtures
JOB = FakeJob()


def now_ns() -> int:
    """The real time; time.time_ns is what ingest believes it to be."""
    return int(timezone.now().timestamp() * 1e9)


async def hear(ingest: Ingest, number: int = 0) -> None:
    """A batch arrives now, and two seconds' ledgers are written."""
    now = now_ns()
    await ingest.send(JOB.batch(0, number, wall_ns=now), at_ns=now)
    await ingest.write_ledger()
    await ingest.write_ledger()


async def backdate(ago: timedelta, **fields: object) -> None:
    """As if the last batch had come so long ago."""
    await Attempt.objects.aupdate(last_received_at=timezone.now() - ago, **fields)


async def test_an_attempt_is_heard_since_its_first_batch(ingest: Ingest) -> None:
    await hear(ingest)
    first = (await Attempt.objects.aget()).heard_since
    await hear(ingest, 1)
    attempt = await Attempt.objects.aget()
    assert attempt.heard_since == first
    assert 0 < now_ns() - heard_since_ns(attempt, now_ns()) < 60 * SECOND


async def test_a_gap_is_seen_though_the_first_batch_after_it_is_there(ingest: Ingest) -> None:
    await hear(ingest)
    await backdate(timedelta(minutes=10), heard_since=timezone.now() - timedelta(hours=1))
    before = timezone.now()
    await hear(ingest, 1)
    heard_since = (await Attempt.objects.aget()).heard_since
    assert heard_since is not None
    assert heard_since >= before


async def test_between_the_first_batch_and_its_ledger_nobody_is_heard(ingest: Ingest) -> None:
    await hear(ingest)
    await backdate(timedelta(minutes=10))
    now = now_ns()
    assert heard_since_ns(await Attempt.objects.aget(), now) == now


async def test_listening_starts_anew_after_a_gap_and_only_then(ingest: Ingest) -> None:
    await ingest.write_ledger()
    first = await sync_to_async(listening_since)(timezone.now())
    await ingest.write_ledger()
    assert first is not None
    assert await sync_to_async(listening_since)(timezone.now()) == first
    await Listening.objects.filter(pk=ROW).aupdate(until=timezone.now() - 2 * GAP)
    assert await sync_to_async(listening_since)(timezone.now()) is None
    await ingest.write_ledger()
    again = await sync_to_async(listening_since)(timezone.now())
    assert again is not None
    assert again > first


async def test_after_an_outage_of_ours_no_attempt_ends_for_silence(ingest: Ingest) -> None:
    await hear(ingest)
    await backdate(2 * ATTEMPT_IDLE)
    assert await sync_to_async(end_idle_attempts)() == 0  # ingest has listened for a moment only
    await Listening.objects.aupdate(since=timezone.now() - ATTEMPT_IDLE - timedelta(minutes=1))
    assert await sync_to_async(end_idle_attempts)() == 1


async def test_while_ingest_is_away_no_attempt_ends_for_silence(ingest: Ingest) -> None:
    await hear(ingest)
    await backdate(2 * ATTEMPT_IDLE)
    now = timezone.now()
    await Listening.objects.aupdate(since=now - 3 * ATTEMPT_IDLE, until=now - 2 * GAP)
    assert await sync_to_async(end_idle_attempts)() == 0


async def test_an_attempt_ended_for_silence_runs_again_with_the_next_batch_of_a_living_process(ingest: Ingest) -> None:
    await hear(ingest)
    await Attempt.objects.aupdate(state="ended", ended_at=timezone.now(), end_reason=Attempt.EndReason.SILENT)
    await ingest.write_ledger()  # what ingest remembers of it is forgotten
    await hear(ingest, 1)
    assert [attempt.state async for attempt in Attempt.objects.all()] == ["running"]


@pytest.mark.parametrize(("listened_minutes", "n_attempts"), [(1, 1), (30, 2)])
async def test_processes_that_appear_after_an_outage_of_ours_belong_to_the_running_attempt(
    ingest: Ingest, listened_minutes: int, n_attempts: int
) -> None:
    await hear(ingest)
    await backdate(timedelta(minutes=20))
    await Listening.objects.aupdate(since=timezone.now() - timedelta(minutes=listened_minutes), until=timezone.now())
    await ingest.send(JOB.restarted().batch(1, wall_ns=now_ns()), at_ns=now_ns())
    assert await Attempt.objects.acount() == n_attempts


async def test_who_cannot_write_what_arrives_does_not_listen(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: object) -> None:
        raise DiskFull("no room")

    server = await ingest.application.server()
    monkeypatch.setattr(type(server.ledger), "write", fail)
    await Listening.objects.all().adelete()
    with pytest.raises(DiskFull):
        await server.write_ledger()
    assert not await Listening.objects.aexists()
