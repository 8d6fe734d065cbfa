"""What roll-ups must be, worked out a second way: op by op over every stored batch, in plain Python."""

from __future__ import annotations

import math
from collections import Counter, defaultdict

import numpy as np
from asgiref.sync import sync_to_async
from django.db import connection

from ingest.models import OpRollup
from ingest.sums.repeats import Repeats
from ingest.sums.rollup import BIN, BINS_PER_OCTAVE, BUCKET_NS
from ingest.sums.sums import sum_left_behind
from ingest.traces.database import connect
from nccl_instrument.tables import OP_REOPENED
from nccl_instrument.wire import decode_batch

Key = tuple[int, int, int, int]


class Total:
    """Sums of one attempt, communicator, kind and 10 s."""

    def __init__(self) -> None:
        self.counts = [0, 0, 0, 0, 0]  # ops, of them timed, bytes, bytes of the timed, ns
        self.longest_ns = 0
        self.bins: Counter[int] = Counter()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Total) and vars(self) == vars(other)

    def __repr__(self) -> str:
        return f"Total({self.counts}, {self.longest_ns}, {dict(self.bins)})"


def stored_totals() -> dict[Key, Total]:
    """The sums of all rows of all stored batches."""
    totals: dict[Key, Total] = defaultdict(Total)
    with connection.cursor() as cursor:
        cursor.execute("SELECT attempt_id, shift_ns, ops FROM ingest_trace_batch WHERE ops IS NOT NULL")
        for attempt_id, shift_ns, packed in cursor.fetchall():
            for op in decode_batch(bytes(packed)).rows("op"):
                if not op["flags"] & OP_REOPENED:
                    add_op(totals, attempt_id, shift_ns, op)
    return dict(totals)


def add_op(totals: dict[Key, Total], attempt_id: int, shift_ns: int, op: np.void) -> None:
    times = ("done_ns", "last_transfer_ns", "first_transfer_ns", "started_ns", "enqueued_ns")
    over = next((int(op[name]) for name in times if op[name]), 0) + shift_ns
    comm_id = int(op["comm_id"].view(np.int64))
    total = totals[attempt_id, comm_id, int(op["func"]), over // BUCKET_NS * BUCKET_NS]
    start = int(op["started_ns"] or op["enqueued_ns"])
    timed = bool(op["done_ns"] > 0 and start > 0)
    duration = max(int(op["done_ns"]) - start, 1) if timed else 0
    for i, amount in enumerate((1, timed, int(op["bytes"]), int(op["bytes"]) * timed, duration)):
        total.counts[i] += amount
    if timed:
        total.longest_ns = max(total.longest_ns, duration)
        total.bins[int(math.log2(duration) * BINS_PER_OCTAVE)] += 1


def rolled_up() -> dict[Key, Total]:
    """What the roll-ups say, parts added up."""
    totals: dict[Key, Total] = defaultdict(Total)
    for row in OpRollup.objects.all():
        total = totals[row.attempt_id, row.comm_id, row.func, row.bucket_ns]
        for i, amount in enumerate((row.n_ops, row.n_timed, row.bytes, row.bytes_timed, row.duration_sum_ns)):
            total.counts[i] += amount
        total.longest_ns = max(total.longest_ns, row.duration_max_ns)
        for entry in np.frombuffer(row.bins, BIN):
            total.bins[int(entry["bin"])] += int(entry["n"])
    return dict(totals)


def n_stored() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ingest_trace_batch")
        return int(cursor.fetchone()[0])


def assert_exact(n_batches: int) -> None:
    """All batches are stored, and the roll-ups are those of all of them."""
    assert n_stored() == n_batches
    stored = stored_totals()
    assert stored
    assert rolled_up() == stored


def recover() -> int:
    """Sum what is left behind as if every writer had not been heard of for a while; how many batches."""
    with connection.cursor() as cursor:
        cursor.execute("UPDATE ingest_writer SET summed_at = now() - interval '1 minute'")
    with connect() as own:
        return sum_left_behind(own, Repeats()).batches


is_exact = sync_to_async(assert_exact)
recovered = sync_to_async(recover)
