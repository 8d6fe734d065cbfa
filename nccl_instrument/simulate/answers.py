"""What simulated agents answer when the server asks for dumps: the epochs they kept. Of stacks and recordings there are none,
since no program runs, and each rank says so."""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Final

import numpy as np

from nccl_instrument.agent.dumps.kept_epochs import kept_epochs
from nccl_instrument.agent.processes.proc import Living
from nccl_instrument.agent.sending.post import Order
from nccl_instrument.dumps import EPOCHS, Dumps, Part, Room, encode_dumps
from nccl_instrument.simulate.job import SimulatedJob

NO_PROGRAM: Final = "a simulated rank runs no program"


class Answers:
    """Of one job. `of_node` may be called from any thread while the job goes on."""

    def __init__(self, job: SimulatedJob) -> None:
        self._job, self._boot = job, secrets.token_hex(16)

    def of_node(self, node: int, order: Order) -> list[bytes]:
        """A body for each look."""
        looks = range(1, order.looks + 1)
        return [encode_dumps(self._look(node, order, look)) for look in looks]

    def _look(self, node: int, order: Order, look: int) -> Dumps:
        layout = self._job.settings.layout
        first = node * layout.ranks_per_node
        ranks = [
            rank
            for rank in range(first, first + layout.ranks_per_node)
            if rank < layout.n_ranks and (order.ranks is None or rank in order.ranks)
        ]
        room, parts = Room(), []
        for kind in order.kinds:
            if kind == EPOCHS and look == 1:
                parts += [room.admit(self._epochs(rank, node)) for rank in ranks]
            elif kind != EPOCHS:
                parts += [Part(kind, rank, rank, 0, "", time.time_ns(), NO_PROGRAM, "") for rank in ranks]
        return Dumps(self._job.settings.name, f"node{node}", self._boot, order.request, look, tuple(parts))

    def _epochs(self, rank: int, node: int) -> Part:
        living, traffic = Living(rank, rank, 0, Path("/"), 0), self._job.traffic
        if traffic is None:
            return kept_epochs(living, None)
        return kept_epochs(living, traffic.raws(rank), self._clocks(node))

    def _clocks(self, node: int) -> tuple[int, int]:
        """The node's wall clock and its monotonic one, of the same moment."""
        clocks = self._job.agents.roster.clocks
        job_ns = max(time.time_ns() - clocks.origin_ns, 1)
        return clocks.wall_ns(node, job_ns), int(clocks.mono_ns(np.array([node]), np.array([job_ns]))[0])
