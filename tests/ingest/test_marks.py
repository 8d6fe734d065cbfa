"""Attempts heard from are handed to the reader once; Valkey being away harms nothing."""

from __future__ import annotations

import asyncio

import pytest
from asgiref.sync import sync_to_async
from pytest_django import Settings

from ingest.door import marks
from ingest.models import Attempt
from tests.builders import FakeJob, make_batch
from tests.ingest.conftest import Ingest
from tests.servers import TestServers


@pytest.fixture
def nothing_heard(valkey: TestServers) -> None:
    marks.take_heard()


def test_each_mark_is_taken_once(nothing_heard: None) -> None:
    assert marks.mark_heard([3, 5, 3])
    assert marks.mark_heard([])
    assert marks.take_heard() == {3, 5}
    assert marks.take_heard() == set()


def test_valkey_away_is_false_and_empty_and_no_error(settings: Settings) -> None:
    settings.REDIS_URL = "unix:///nowhere/valkey.sock"
    marks._valkey.cache_clear()
    try:
        assert marks.mark_heard([1]) is False
        assert marks.take_heard() == set()
    finally:
        marks._valkey.cache_clear()


async def test_a_stored_batch_marks_its_attempt_and_a_resent_one_does_not(ingest: Ingest, nothing_heard: None) -> None:
    await ingest.send(make_batch())
    assert await heard() == {(await Attempt.objects.aget()).pk}
    await ingest.send(make_batch())
    await asyncio.sleep(0.3)
    assert await sync_to_async(marks.take_heard)() == set()


async def test_ingest_goes_on_without_valkey(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.door.server.mark_heard", lambda ids: False)
    for number in range(3):
        assert (await ingest.send(FakeJob().batch(0, number))).status == 200


async def heard() -> set[int]:
    for _ in range(50):
        found = await sync_to_async(marks.take_heard)()
        if found:
            return found
        await asyncio.sleep(0.05)
    return set()
