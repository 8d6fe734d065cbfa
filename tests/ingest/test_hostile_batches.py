"""Batches that a hostile or broken agent with a good token could send: refused, or stored so that all can be read.

The first test is a small, repeatable part of `make eval SUITE=fuzz`; the others are what the suite has found.
"""

from __future__ import annotations

import random
import zlib
from dataclasses import replace

import numpy as np
import pytest
from asgiref.sync import sync_to_async
from django.db import connection

from ingest.door import receive
from ingest.door.arrival import ROWS_OF_MAX, receive_batch
from ingest.door.impossible import impossible_rows
from ingest.models import Attempt
from ingest.read import read_window
from nccl_instrument.tables import DTYPE, empty_rows
from nccl_instrument.wire import BadBatch, encode_batch
from tests.builders import WALL_NS, make_batch, with_rows
from tests.eval.fuzz_bytes import ENTRY, EXTREMES, HEAD, SECTION, mutate, seal, take_apart, with_checksum
from tests.eval.fuzz_checks import NOW_NS, check_bytes
from tests.eval.fuzz_seeds import seeds
from tests.ingest.conftest import Ingest


@pytest.mark.parametrize("seed", range(4))
def test_mutated_batches_are_refused_or_hold_every_promise(seed: int) -> None:
    draw, known = random.Random(seed), seeds()
    accepted = sum(check_bytes(mutate(draw.choice(known), draw, draw.choice(known))) for _ in range(400))
    assert 40 < accepted < 360  # the mutator gets beyond the checksum, and not everything is well


def test_taking_a_batch_apart_and_sealing_it_changes_nothing_that_is_read() -> None:
    for raw in seeds():
        parts = take_apart(raw)
        assert parts is not None
        assert receive_batch(1, seal(parts), NOW_NS).batch.number == receive_batch(1, raw, NOW_NS).batch.number


@pytest.mark.parametrize("table", DTYPE)
def test_every_column_at_every_extreme_is_dropped_or_kept_alike_by_quick_and_by_careful_look(table: str) -> None:
    """Codes of two bytes were once looked at by their lower one: kind 256 of a loss passed for kind 0."""
    rows = make_batch().rows(table)[:3] if len(make_batch().rows(table)) else empty_rows(table, 3)
    for name in DTYPE[table].names or ():
        for value in EXTREMES if rows[name].dtype.kind in "iu" else ():
            odd = rows.copy()
            as_bytes = (value % 2**64).to_bytes(8, "little")[: odd[name].dtype.itemsize]
            odd[name][1] = np.frombuffer(as_bytes, odd[name].dtype)[0]
            batch = replace(make_batch(), tables={table: odd})
            arrival = receive_batch(1, encode_batch(batch), NOW_NS)
            assert arrival.n_dropped == int(impossible_rows(table, odd, batch.mono_ns).sum()), (name, value)


def sealed(table: bytes, row_bytes: int, n_rows: int, planes: bytes = b"", group: bytes = b"ops") -> bytes:
    """A batch of one table of so many rows. planes: the bytes of the first planes, the others are not sent."""
    n_planes = len(planes) // n_rows
    bits = np.packbits(np.arange(row_bytes) < n_planes, bitorder="little").tobytes()
    body = zlib.compress(planes)
    section = SECTION.pack(group, len(body), 1) + ENTRY.pack(table, row_bytes, n_rows) + bits + body
    head = HEAD.pack(b"DGTB", 2, 0, 1, row_bytes * n_rows, 0, bytes(16), 0, WALL_NS, 10**12, 1, 1)
    return with_checksum(head + b"j" + b"n" + section)


def test_rows_of_a_few_bytes_cannot_become_rows_of_many() -> None:
    """148 bytes promised 3.5 MB of rows and became 85 MB; with one impossible row they were answered 500."""
    with pytest.raises(BadBatch, match="less than half of their columns"):
        receive_batch(1, sealed(b"op", 7, 500_000), NOW_NS)


def test_rows_that_widen_beyond_what_may_be_held_are_refused() -> None:
    row_bytes = empty_rows("op").dtype.itemsize * 2 // 3
    with pytest.raises(BadBatch, match="rows become more than"):
        receive_batch(1, sealed(b"op", row_bytes, 500_000), NOW_NS)


@pytest.mark.parametrize("table", ROWS_OF_MAX)
def test_tables_that_are_read_row_by_row_end_at_a_limit(table: str) -> None:
    n_max = ROWS_OF_MAX[table]
    fits = with_rows(make_batch(), **{table: empty_rows(table, n_max)})
    receive_batch(1, encode_batch(fits), NOW_NS)
    with pytest.raises(BadBatch, match=f"too many {table} rows"):
        receive_batch(1, encode_batch(with_rows(fits, **{table: empty_rows(table, n_max + 1)})), NOW_NS)


def test_what_is_packed_anew_without_its_impossible_rows_must_still_be_readable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An agent may have compressed better than we do: what we would store could be more than a reader takes."""
    batch = make_batch()
    ops = batch.rows("op").copy()
    ops["func"][0] = 99
    raw = encode_batch(with_rows(batch, op=ops))
    monkeypatch.setattr("ingest.door.arrival.BATCH_BYTES_MAX", 200)
    with pytest.raises(BadBatch, match="too large without its impossible rows"):
        receive_batch(1, raw, NOW_NS)


async def test_a_stored_group_nobody_can_read_is_left_out_and_the_rest_is_read(
    ingest: Ingest, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(3):
        await ingest.send(make_batch(number=number))
    await sync_to_async(damage)(number=1)
    attempt = await Attempt.objects.aget()
    window = await sync_to_async(read_window)(attempt.pk, WALL_NS - 10**12, WALL_NS + 10**12)
    assert len(window.rows("flow")) == 2 * len(make_batch().rows("flow"))
    assert len(window.rows("op")) == 3 * len(make_batch().rows("op"))
    assert "1 stored table groups" in caplog.text
    assert window.unreadable == {"node-0": 1}


def damage(number: int) -> None:
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ingest_trace_batch SET flow = 'DGTB' WHERE number = %s", [number])


async def test_a_batch_whose_turn_does_not_come_is_told_to_wait(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receive, "COMMIT_SECONDS", 0.0)
    reply = await ingest.send(make_batch())
    assert (reply.status, reply.headers["retry-after"]) == (429, "2")
