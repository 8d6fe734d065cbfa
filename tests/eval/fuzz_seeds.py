"""Real trace batches to start from: of jobs of several shapes, with every table, every loss, all corners of a record."""

from __future__ import annotations

from nccl_instrument.tables import LOSSES, OP_P2P, OP_REOPENED
from nccl_instrument.wire import Rows, TraceBatch, encode_batch
from tests.builders import FakeJob, flow_rows, loss_rows, with_rows


def seed_batches() -> list[TraceBatch]:
    """Small ones, so that a fuzzer is fast."""
    job = FakeJob(ranks=2, nodes=2)
    larger = FakeJob(
        "granite", ranks=8, nodes=2, restart=3, coordinates={rank: (rank % 2, rank // 2, 0) for rank in range(8)}
    )
    plain = job.batch()
    anonymous = FakeJob("slurm-7", ranks=4, nodes=2, declared=False).batch(1, 5)
    return [
        plain,
        job.batch(1, 1),
        anonymous,
        larger.batch(1, 2),
        with_rows(plain, loss=loss_rows(**{kind: n for n, kind in enumerate(LOSSES) if n})),
        with_rows(plain, flow=flow_rows(job, 0, 0, plain.mono_ns, ticks=1)),
        with_rows(plain, op=_marked(plain)),
        TraceBatch("empty", "node-0", bytes(16), 0, plain.wall_ns, plain.mono_ns, {}),
        *(TraceBatch("one", "node-0", bytes(16), 0, plain.wall_ns, plain.mono_ns, {name: rows[:2]}) for name, rows in
          plain.tables.items()),
    ]  # fmt: skip


def seeds() -> list[bytes]:
    """Their bytes."""
    return [encode_batch(batch) for batch in seed_batches()]


def _marked(batch: TraceBatch) -> Rows:
    ops = batch.rows("op").copy()
    ops["flags"][0] |= OP_REOPENED
    ops["flags"][1] |= OP_P2P
    ops["peer"][1] = 1
    return ops
