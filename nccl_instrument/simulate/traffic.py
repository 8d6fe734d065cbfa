"""What the agents of a simulated job tell of its traffic: their own code reads the rings that the simulated plugins write.

Simulated are the records alone, in the memory and in the form in which the plugin leaves them (src/transfers.c). Which iterations
there are, which of them a node measures within its budget, what is lost, where an op begins and ends: all that is found as on a
node (nccl_instrument/agent/traffic/traffic.py), on each node's own clock, without what the engine knows.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.agent.plain import pick
from nccl_instrument.agent.processes.ring import OpRing
from nccl_instrument.agent.processes.segment_layout import OP
from nccl_instrument.agent.traffic.sampling import Sampling
from nccl_instrument.agent.traffic.traffic import Raw, Traffic
from nccl_instrument.simulate.engine import Engine
from nccl_instrument.simulate.rows import Roster
from nccl_instrument.tables import DTYPES, OP_HAS_FLOWS, PROTOS, empty_rows

RING_ROWS: Final = 65_536
"""As many as a plugin with a segment of the usual size has room for (docs/plugin.md)."""
_SAME: Final = ("flags", "func", "algo", "channels", "peer", "count", "bytes", "ordinal")
Rows = npt.NDArray[np.void]
Ints = npt.NDArray[np.int64]
Ranks = npt.NDArray[np.int32]


class NodeRing(OpRing):
    """A rank's ring with communicators by their ids and times by its node's clock, which the engine does not know."""

    def __init__(self, roster: Roster, node: int, head: npt.NDArray[np.uint64], ring: Rows) -> None:
        super().__init__(head, ring, None)
        self._roster, self._node = roster, node

    def drain(self) -> tuple[Rows, int]:
        rows, lost = super().drain()
        rows["comm_id"] = self._roster.comm_ids[rows["comm_id"].astype(np.int64)]
        for name in ("posted_ns", "done_ns"):
            rows[name] = self._roster.clocks.mono_ns(np.full(len(rows), self._node), rows[name])
        return rows, lost


class NodesTraffic:
    """Of all nodes' agents. `sweep` at each of a phase's sweeps, `rows` at each of its cuts. rows_per_s: of each node."""

    def __init__(self, roster: Roster, engine: Engine, rows_per_s: int, epoch_ns: int) -> None:
        self.samplings = [Sampling(epoch_ns, rows_per_s) for _ in range(roster.layout.n_nodes)]
        heads, rings = engine.record_transfers(RING_ROWS)
        self._roster = roster
        self._processes = [self._process(rank, heads, rings) for rank in range(roster.layout.n_ranks)]
        self._sizes = {
            int(comm_id): len(roster.layout.members_of(group)) for group, comm_id in enumerate(roster.comm_ids.tolist())
        }

    @property
    def every(self) -> tuple[int, ...]:
        """One in so many iterations is measured now, of each node."""
        return tuple(one.every for one in self.samplings)

    def raws(self, rank: int) -> tuple[Raw, ...]:
        """The rank's iterations of which the epochs are kept. Any thread may ask."""
        return tuple(self._processes[rank].raw)

    def sweep(self, ranks: Ranks) -> None:
        for rank in ranks.tolist():
            self._processes[rank].sweep()

    def rows(self, finished: Rows, live: Rows, ranks: Ranks, now_ns: int) -> tuple[Rows, Ints]:
        """Rows of `traffic`, and the rank of each. finished, live: the engine's OP rows of these ranks."""
        ended, open_ = (self._ops(one, ranks) for one in (finished, live))
        nodes = self._roster.node_of[ranks]
        now = self._roster.clocks.mono_ns(nodes, np.full(len(ranks), now_ns))
        found = [
            self._processes[rank].rows(ended[rank], open_[rank], self._sizes, at_ns)
            for rank, at_ns in zip(ranks.tolist(), now.tolist(), strict=True)
        ]
        rank = np.repeat(ranks.astype(np.int64), [len(one) for one in found])
        return np.concatenate([empty_rows("traffic"), *found]), rank

    def _process(self, rank: int, heads: npt.NDArray[np.uint64], rings: Rows) -> Traffic:
        roster, node = self._roster, int(self._roster.node_of[rank])
        ring = NodeRing(roster, node, heads[rank : rank + 1], rings[rank])
        return Traffic(ring, rank, f"nic{roster.layout.nic_index_of[rank]}", self.samplings[node])

    def _ops(self, raw: Rows, ranks: Ranks) -> dict[int, Rows]:
        """Rank → rows of its segment."""
        raw = raw[np.argsort(raw["rank"], kind="stable")]
        rows = np.zeros(len(raw), OP)
        rows["comm_id"], rows["comm_rank"], rows["op"] = (
            self._roster.comm_ids[raw["group"]],
            raw["place"],
            raw["number"],
        )
        for name in _SAME:
            rows[name] = raw[name]
        rows["dtype"], rows["n_flows_begun"] = DTYPES.index("Float32"), (raw["flags"] & OP_HAS_FLOWS) != 0
        rows["proto"] = np.where(raw["algo"] > 0, PROTOS.index("SIMPLE"), 0)
        nodes = self._roster.node_of[raw["rank"]]
        rows["enqueued_ns"] = self._roster.clocks.mono_ns(nodes, raw["enqueued_ns"])
        bounds = np.searchsorted(raw["rank"], np.append(ranks, ranks + 1)).reshape(2, -1)
        return {
            rank: pick(rows, np.arange(begin, end))
            for rank, begin, end in zip(ranks.tolist(), *bounds.tolist(), strict=True)
        }
