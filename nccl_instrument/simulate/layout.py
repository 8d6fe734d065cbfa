"""Which rank sits where: TP × PP × DP × EP as Megatron lays them out, over nodes and NICs, for 2 to 100,000 ranks.

Ranks are numbered tp fastest, then dp, then pp, as in the testbed. Expert groups are cut out of the data-parallel
dimension: `ep` consecutive dp places with the same tp and pp exchange tokens, and the ranks that hold the same experts
reduce their gradients among themselves (edp). A layout that cannot be built is refused with the reason.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.sizes import LayoutError, Sizes

RANKS_MAX: Final = 131_072
KINDS: Final = ("world", "tp", "dp", "pp", "ep", "edp")
"""Kinds of communicator, in the order of a rank's slots in the engine."""

Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class Layout(Sizes):
    """Sizes of the parallel groups and of a node. nics_per_node 0: one per rank."""

    tp: int = 2
    pp: int = 2
    dp: int = 2
    ep: int = 1
    ranks_per_node: int = 2
    nics_per_node: int = 0

    def __post_init__(self) -> None:
        self.check_sizes(("tp", "pp", "dp", "ep", "ranks_per_node"), RANKS_MAX, "the simulator")
        if self.dp % self.ep:
            raise LayoutError(
                f"--ep {self.ep} does not divide --dp {self.dp}: experts are spread over data-parallel ranks."
            )
        if self.tp > self.ranks_per_node and self.tp % self.ranks_per_node:
            raise LayoutError(f"A tensor group of {self.tp} ranks would end inside a node of {self.ranks_per_node}.")
        if self.tp < self.ranks_per_node and self.ranks_per_node % self.tp:
            raise LayoutError(f"Nodes of {self.ranks_per_node} ranks would cut tensor groups of {self.tp} in two.")
        if self.ranks_per_node % self.n_nics_per_node:
            raise LayoutError(f"{self.ranks_per_node} ranks cannot share {self.nics_per_node} NICs evenly.")

    @property
    def n_nics(self) -> int:
        return self.n_nodes * self.n_nics_per_node

    @cached_property
    def node_of(self) -> Ints:
        """(n_ranks,) node of each rank."""
        return (np.arange(self.n_ranks) // self.ranks_per_node).astype(np.int32)

    @cached_property
    def local_of(self) -> Ints:
        """(n_ranks,) place of each rank in its node."""
        return (np.arange(self.n_ranks) % self.ranks_per_node).astype(np.int32)

    @cached_property
    def nic_index_of(self) -> Ints:
        """(n_ranks,) which of its node's NICs each rank uses."""
        return (self.local_of * self.n_nics_per_node // self.ranks_per_node).astype(np.int32)

    @cached_property
    def nic_of(self) -> Ints:
        """(n_ranks,) NIC of each rank, counted over the job."""
        return self.node_of * np.int32(self.n_nics_per_node) + self.nic_index_of

    @cached_property
    def places(self) -> dict[str, Ints]:
        """Axis → (n_ranks,) coordinate."""
        rank = np.arange(self.n_ranks, dtype=np.int32)
        dp = rank // self.tp % self.dp
        return {"tp": rank % self.tp, "pp": rank // (self.tp * self.dp), "dp": dp, "ep": dp % self.ep}

    def ranks_of_nic(self, nic: int) -> list[int]:
        return [int(rank) for rank in np.flatnonzero(self.nic_of == nic)]

    def ranks_of_node(self, node: int) -> list[int]:
        return list(range(node * self.ranks_per_node, (node + 1) * self.ranks_per_node))

    @cached_property
    def groups(self) -> dict[str, Ints]:
        """Kind → (groups, members) ranks; kinds without a group of two or more are left out."""
        ranks = np.arange(self.n_ranks, dtype=np.int32).reshape(self.pp, self.dp // self.ep, self.ep, self.tp)
        found = {
            "world": ranks.reshape(1, -1),
            "tp": ranks.reshape(-1, self.tp),
            "dp": ranks.transpose(0, 3, 1, 2).reshape(-1, self.dp),
            "pp": ranks.transpose(1, 2, 3, 0).reshape(-1, self.pp),
            "ep": ranks.transpose(0, 3, 1, 2).reshape(-1, self.ep),
            "edp": ranks.transpose(0, 3, 2, 1).reshape(-1, self.dp // self.ep),
        }
        if self.ep == 1:
            del found["edp"]  # the dp group itself
        return {kind: members for kind, members in found.items() if members.shape[1] > 1}

    @cached_property
    def names(self) -> list[str]:
        """Name of every group, in the order of `groups`."""
        return [
            "world" if kind == "world" else f"{kind}_{number}"
            for kind, members in self.groups.items()
            for number in range(len(members))
        ]

    @cached_property
    def _members(self) -> list[Ints]:
        return [members for groups in self.groups.values() for members in groups]

    def members_of(self, group: int) -> Ints:
        """(n,) ranks of a group, by place; groups are numbered as in `names`."""
        return self._members[group]

    def comm_ids(self, job: str, seed: int) -> npt.NDArray[np.uint64]:
        """(groups,) communicator ids, as NCCL would hash them: the same on all ranks, different in every job."""
        digests = (hashlib.sha256(f"{job}/{seed}/{name}".encode()).digest()[:8] for name in self.names)
        return np.array([int.from_bytes(digest, "little") or 1 for digest in digests], np.uint64)

    def warnings(self) -> list[str]:
        """What this layout makes impossible to tell apart; said, not refused."""
        crossing = {
            kind
            for kind, members in self.groups.items()
            if (self.node_of[members] != self.node_of[members[:, :1]]).any()
        }
        if not crossing:
            return ["All groups lie inside nodes, so no op crosses a NIC: nothing but arrivals is visible."]
        if not {"dp", "pp"} <= crossing:
            return ["Not both data and pipeline groups cross the NICs, so a NIC may look like its link."]
        return []
