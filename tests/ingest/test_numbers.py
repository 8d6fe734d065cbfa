"""Batch numbers with gaps: bounded where they are received, and never at the cost of an agent that fills them."""

from __future__ import annotations

import random

import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from ingest.door import numbers
from ingest.door.numbers import FORGET_SECONDS, RANGES_MAX, Numbers, Scattered
from ingest.models import Team
from tests.builders import make_batch
from tests.ingest.conftest import Ingest


@pytest.mark.parametrize("step", [2, -2, 7])
def test_a_sender_that_keeps_skipping_numbers_is_stopped(step: int) -> None:
    seen, first = Numbers(), 10 * RANGES_MAX
    for k in range(RANGES_MAX):
        seen.note(1, first + k * step)
    with pytest.raises(Scattered):
        seen.note(1, first + RANGES_MAX * step)
    seen.note(2, 5)  # another boot


def test_gaps_that_fill_make_room_for_others_and_what_is_sent_again_takes_none() -> None:
    seen = Numbers()
    for number in range(0, 2 * RANGES_MAX, 2):
        seen.note(1, number)
    for number in range(2 * RANGES_MAX):
        seen.note(1, number)
    seen.note(1, 10 * RANGES_MAX)


def test_numbers_in_any_order_without_gaps_end_as_one_range() -> None:
    order = list(range(RANGES_MAX))
    random.Random(3).shuffle(order)
    seen = Numbers()
    for number in order:
        seen.note(1, number)
    ranges = seen._boots[1]
    assert (ranges.starts, ranges.ends) == ([0], [RANGES_MAX])


def test_gaps_that_never_fill_are_forgotten_in_time() -> None:
    now = [0.0]
    seen = Numbers(lambda: now[0])
    for number in range(0, 2 * RANGES_MAX, 2):
        seen.note(1, number)
    now[0] = FORGET_SECONDS + 1
    seen.note(1, 10 * RANGES_MAX)


async def test_too_many_gaps_are_429_with_the_reason_counted_and_the_missing_number_is_taken(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(numbers, "RANGES_MAX", 3)
    said = [(await ingest.send(make_batch(number=number))).status for number in (0, 2, 4, 6, 8)]
    assert said == [200, 200, 200, 429, 429]
    refused = await ingest.send(make_batch(number=8))
    assert "gaps" in refused.body["error"]
    assert int(refused.headers["retry-after"]) >= 1
    assert (await ingest.send(make_batch(number=1))).body == {"duplicate": False}
    assert (await ingest.send(make_batch(number=6))).body == {"duplicate": False}
    await ingest.write_ledger()
    team = await Team.objects.aget()
    assert (team.batches_refused, "gaps" in team.last_refusal) == (3, True)
    assert await sync_to_async(n_stored)() == 5


def n_stored() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ingest_trace_batch")
        return int(cursor.fetchone()[0])
