"""A training job whose recorder and plugin report to a real ingest: the model of tests/eval, second by second."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nccl_instrument import tables
from nccl_instrument.tables import empty_rows
from nccl_instrument.wire import Rows, TraceBatch
from tests.builders import FUNC_ALLREDUCE, MONO_NS, SECOND, FakeJob, Group, with_rows
from tests.eval.stages_model import BUCKETS, Fault, Job, Run, run
from tests.ingest.conftest import Ingest
from tests.stages import stage_tables

WORLD = Group(0xF000_0000_0000_0001, tuple(range(8)), "dp0")


@dataclass
class Training:
    """Eight ranks on four nodes. `train` lets steps pass and sends what the agents would."""

    ingest: Ingest
    job: Job = field(default_factory=Job)
    seed: int = 1
    fake: FakeJob = field(default_factory=lambda: FakeJob(groups=(WORLD,)))
    step: int = 0
    number: int = 0
    zero_ns: int = MONO_NS
    rows: dict[tuple[str, int], list[Rows]] = field(default_factory=dict)

    async def train(self, n_steps: int, fault: Fault | None = None) -> None:
        """So many steps, and every batch of the seconds they fill."""
        made = run(self.job, fault or Fault(), n_steps, np.random.default_rng(self.seed + self.step))
        for node in range(4):
            self._keep(made, node)
        self.step += n_steps
        self.zero_ns += int((made.began[-1] + made.durations[-1].sum(axis=1)).max() * 1e9)
        while MONO_NS + (self.number + 1) * SECOND <= self.zero_ns:
            for node in range(4):
                reply = await self.ingest.send(self._batch(node))
                assert reply.status == 200, reply.body
            self.number += 1

    def _keep(self, made: Run, node: int) -> None:
        ranks = self.fake.ranks_of(node)
        at = slice(ranks[0], ranks[-1] + 1)
        told = stage_tables(
            made.durations[:, at] * 1e3, schema=self.job.schema, ranks=ranks, pids=tuple(map(self.fake.pid, ranks)),
            first_step=self.step,
        )  # fmt: skip
        ended = self.zero_ns + ((made.began + made.durations.sum(axis=2)) * 1e9).astype(np.int64)
        stage = told["stage"]
        stage["ended_ns"] = ended[stage["step"] - self.step, stage["global_rank"]]
        self.rows.setdefault(("stage", node), []).append(stage)
        self.rows[("schema", node)], self.rows[("recorder", node)] = [told["schema"]], [told["recorder"]]
        self.rows.setdefault(("op", node), []).append(self._ops(made, ranks))

    def _ops(self, made: Run, ranks: tuple[int, ...]) -> Rows:
        n_steps = len(made.began)
        rows = empty_rows("op", n_steps * len(ranks) * BUCKETS).reshape(n_steps, len(ranks), BUCKETS)
        rows["comm_id"], rows["func"], rows["flags"] = WORLD.comm_id, FUNC_ALLREDUCE, tables.OP_HAS_FLOWS
        rows["comm_rank"] = np.array(ranks)[None, :, None]
        rows["op"] = (self.step + np.arange(n_steps)[:, None, None]) * BUCKETS + np.arange(BUCKETS) + 1
        launched = self.zero_ns + (made.launched[:, list(ranks)] * 1e9).astype(np.int64)
        ready = self.zero_ns + (made.ready[:, list(ranks)] * 1e9).astype(np.int64)
        done = self.zero_ns + (made.ready.max(axis=1, keepdims=True) * 1e9).astype(np.int64) + 500_000
        rows["enqueued_ns"], rows["started_ns"], rows["first_ready_ns"] = launched, launched, ready
        rows["first_transfer_ns"], rows["last_transfer_ns"], rows["done_ns"] = ready, done, done
        rows["bytes"], rows["count"], rows["n_flows"], rows["channels"] = 2**20, 2**18, 4, 2
        return rows.reshape(-1)

    def _batch(self, node: int) -> TraceBatch:
        upto = MONO_NS + (self.number + 1) * SECOND
        times = {"stage": "ended_ns", "op": "done_ns"}
        taken = {}
        for table in ("stage", "op", "schema", "recorder"):
            rows = np.concatenate(self.rows[(table, node)])
            if table in times:
                is_now = rows[times[table]] < upto
                self.rows[(table, node)] = [rows[~is_now]]
                rows = rows[is_now]
            else:
                rows["tick_ns"] = upto - 1
            taken[table] = rows
        return with_rows(self.fake.batch(node, self.number), **taken)
