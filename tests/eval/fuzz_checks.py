"""What must hold for any bytes that reach ingest: BadBatch, or a batch that everything up to the database can take.

`check_bytes` does with the bytes what ingest does with a request's body, without a database, and asserts what later
steps rely on. Any exception is a finding.
"""

from __future__ import annotations

import time
import zlib
from typing import Final

import numpy as np

from ingest.door.arrival import Arrival, losses_of, receive_batch
from ingest.door.clock import BootClock, place_batch
from ingest.door.impossible import impossible_rows
from ingest.jobs.endings import lives_of
from ingest.jobs.members import text
from ingest.jobs.roster import declared_of, member_keys
from ingest.sums.repeats import ops_in
from ingest.sums.rollup import OpBatch, Rollups
from nccl_instrument.tables import GROUPS
from nccl_instrument.wire import BATCH_BYTES_MAX, ROWS_BYTES_MAX, BadBatch, TraceBatch, decode_batch, encode_batch

NOW_NS: Final = 1_790_000_100_000_000_000
BIGINT: Final = 2**63
SECONDS_MAX: Final = 5.0


def check_bytes(raw: bytes) -> bool:
    """Whether the bytes were accepted. Raises whatever ingest would, and AssertionError where a promise is broken."""
    began = time.process_time()
    try:
        arrival = receive_batch(1, raw, NOW_NS)
    except BadBatch as refused:
        assert str(refused).isprintable() or "\\" in repr(str(refused)), "a reason nobody can read"
        _check_time(began)
        return False
    _check_rows(arrival)
    _check_groups(arrival, is_thorough=zlib.crc32(raw) % 8 == 0)  # costs as much as all the rest
    _check_use(arrival)
    _check_time(began)
    return True


def _check_time(began: float) -> None:
    assert time.process_time() - began < SECONDS_MAX, "a batch that takes seconds"


def _check_rows(arrival: Arrival) -> None:
    batch = arrival.batch
    for name in (batch.job, batch.node):
        assert 0 < len(name.encode()) <= 128 and name.isprintable()
    assert 0 <= batch.number < BIGINT
    n_bytes = 0
    for table, rows in batch.tables.items():
        assert not impossible_rows(table, rows, batch.mono_ns).any(), f"impossible rows left in {table}"
        n_bytes += rows.nbytes
    assert n_bytes <= 2 * ROWS_BYTES_MAX  # rows of an older writer are widened
    assert (arrival.start_mono_ns, arrival.end_mono_ns) == _span(batch)


def _span(batch: TraceBatch) -> tuple[int, int]:
    """First and last time of the batch's rows, worked out the plain way."""
    points = []
    for rows in batch.tables.values():
        if "tick_ns" in (rows.dtype.names or ()):
            points += rows["tick_ns"].tolist()
    names = ("done_ns", "last_transfer_ns", "first_transfer_ns", "started_ns", "enqueued_ns")
    points += [
        next(filter(None, op), 0) for op in zip(*(batch.rows("op")[name].tolist() for name in names), strict=True)
    ]
    known = [batch.mono_ns, *(point for point in points if point > 0)]
    return min(known), max(known)


def _check_groups(arrival: Arrival, is_thorough: bool) -> None:
    """What is stored reads back as what was received, and can be encoded again."""
    read = {}
    for group, held in GROUPS.items():
        packed = arrival.groups[group]
        if packed is not None:
            assert len(packed) <= BATCH_BYTES_MAX
            stored = decode_batch(packed)
            assert (stored.boot_id, stored.number) == (arrival.batch.boot_id, arrival.batch.number)
            read.update({table: stored.rows(table) for table in held})
    for table, rows in arrival.batch.tables.items():
        assert read.get(table, rows[:0]).tobytes() == rows.tobytes(), f"{table} is stored otherwise than received"
    if not is_thorough:
        return
    again = decode_batch(encode_batch(arrival.batch))
    for table, rows in arrival.batch.tables.items():
        assert again.rows(table).tobytes() == rows.tobytes(), f"{table} does not survive encoding"


def _check_use(arrival: Arrival) -> None:
    """Everything that is worked out of a batch on its way to the database fits there."""
    batch = arrival.batch
    placement = place_batch(BootClock(), batch.wall_ns, batch.mono_ns, arrival.received_ns, arrival.age_ns)
    shift = placement.shift_ns
    points = (arrival.start_mono_ns + shift, arrival.end_mono_ns + shift, batch.mono_ns + shift, placement.offset_ns)
    assert all(-BIGINT <= point < BIGINT for point in (*points, placement.clock.sync_ns or 0))
    assert all(0 <= n <= 2**53 for n in losses_of(batch).values())
    declared = declared_of(batch)
    assert -(2**31) <= declared.restart_count < 2**31 and 0 <= declared.world_size <= 2**20
    lives_of(batch.rows("process"))
    for table in ("progress", "live_op", "op", "comm"):
        member_keys(batch.rows(table))
    for row in batch.rows("comm")[:4]:
        assert all(text(row[name]).isprintable() for name in ("name", "ip", "gpu_bus_id", "gpu_uuid", "nic", "gid"))
    rollups = Rollups()
    ops = ops_in(arrival.groups["ops"])
    assert len(ops) == len(batch.rows("op"))
    rollups.add([OpBatch(1, 1, 1, shift, batch.rows("op")), OpBatch(1, 2, 2, shift, ops)])
    sums = rollups.changed()
    assert (sums.counts >= 0).all(), "a sum overflowed"
    assert np.abs(sums.keys[:, 3].astype(np.float64)).max(initial=0) < BIGINT
