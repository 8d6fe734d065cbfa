"""A job that stalls: batches of a healthy job, and of the same job after one rank stopped entering ops."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from nccl_instrument.tables import PROCESS_GONE, SEND
from nccl_instrument.wire import TraceBatch
from tests.builders import FakeJob, Group, with_rows
from tests.ingest.conftest import Ingest

WORLD = Group(0xF000_0000_0000_0001, tuple(range(8)), "dp0")


@dataclass
class StallingJob:
    """Eight ranks on four nodes in one communicator; `missing` is the rank that stops from second `stalls_from` on.

    `gone`: ranks whose processes have ended. From second `idles_from` on nobody enters any op.
    """

    ingest: Ingest
    missing: int = 3
    stalls_from: int = 10**6
    gone: tuple[int, ...] = ()
    idles_from: int = 10**6
    number: int = 0
    fake: FakeJob = field(default_factory=lambda: FakeJob(groups=(WORLD,)))

    async def run(self, seconds: int, nodes: tuple[int, ...] = (0, 1, 2, 3)) -> None:
        """Let so many seconds pass: every node of `nodes` sends its batches."""
        for _ in range(seconds):
            for node in nodes:
                reply = await self.ingest.send(self.batch(node))
                assert reply.status == 200, reply.body
            self.number += 1

    def stall(self) -> None:
        self.stalls_from = self.number

    def idle(self) -> None:
        self.idles_from = self.number

    def go_on(self) -> None:
        self.stalls_from = self.idles_from = 10**6

    def kill(self, *ranks: int) -> None:
        """End the processes of these ranks."""
        self.gone = ranks

    def batch(self, node: int) -> TraceBatch:
        made = self._with_the_dead(self.fake.batch(node, self.number))
        if self.number >= self.idles_from:
            return self._idle(made, node)
        if self.number < self.stalls_from:
            return made
        return self._stalled(made, node)

    def _with_the_dead(self, made: TraceBatch) -> TraceBatch:
        process = made.rows("process").copy()
        is_dead = np.isin(process["pid"], [self.fake.pid(rank) for rank in self.gone])
        process["alive"][is_dead], process["state"][is_dead] = 0, PROCESS_GONE
        return with_rows(made, process=process)

    def _idle(self, made: TraceBatch, node: int) -> TraceBatch:
        """What a node sends when the last op is over and no other follows."""
        last = self.fake.batch(node, self.idles_from - 1)
        progress = last.rows("progress").copy()
        progress["tick_ns"], progress["n_done"] = made.mono_ns, progress["n_enqueued"]
        nothing = {name: made.rows(name)[:0] for name in ("op", "live_op", "flow")}
        return with_rows(made, progress=progress, **nothing)

    def _stalled(self, made: TraceBatch, node: int) -> TraceBatch:
        """What a node sends while the op after second `stalls_from` does not end: nothing moves, only time passes."""
        last = self.fake.batch(node, self.stalls_from - 1)
        stalled_ns = made.mono_ns - last.mono_ns
        live, flow, progress = (last.rows(name).copy() for name in ("live_op", "flow", "progress"))
        live["tick_ns"] = made.mono_ns
        flow = self._frozen(flow, last.mono_ns, stalled_ns)
        progress["tick_ns"] = made.mono_ns
        op = live["op"].max()  # counted from one, so the rank that entered it has enqueued as many
        progress["n_done"] = op - 1
        progress["n_enqueued"] = np.where(progress["comm_rank"] == self.missing, op - 1, op)
        keep = {"live_op": live[live["comm_rank"] != self.missing], "flow": flow[flow["comm_rank"] != self.missing]}
        return with_rows(made, op=made.rows("op")[:0], progress=progress, **keep)

    def _frozen(self, flow: np.ndarray, since_ns: int, stalled_ns: int) -> np.ndarray:
        """The second's ten ticks of a ring at rest: own chunks went round, then everybody waits for the next."""
        flow["tick_ns"] += stalled_ns
        flow["op"] = flow["op"].max() + 1
        flow["counters"] = (8, 2, 2, 2)
        to_missing = flow["peer"] == self.missing
        flow["counters"][to_missing & (flow["direction"] == SEND)] = (8, 8, 0, 0)
        flow["counters"][to_missing & (flow["direction"] != SEND)] = (8, 0, 0, 0)
        flow["stuck_ns"] = flow["tick_ns"] - since_ns
        return flow
