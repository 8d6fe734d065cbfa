"""Which rank sits where: tensor, pipeline and data parallel groups over nodes and NICs.

Ranks are numbered as Megatron does (tp fastest, then dp, then pp), so that with the default two ranks per node tensor
groups stay inside a node and data and pipeline groups cross its NICs. An impossible layout is refused in one sentence
before anything is started.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property

from nccl_instrument.sizes import Sizes

RANKS_MAX = 64
KINDS = ("world", "tp", "dp", "pp")  # the order is the engine's enum comm_kind


@dataclass(frozen=True)
class Nic:
    number: int  # over the whole job
    node: int
    name: str


@dataclass(frozen=True)
class Communicator:
    kind: str
    name: str
    members: tuple[int, ...]

    def hash_in(self, job: str, seed: int) -> int:
        digest = hashlib.sha256(f"{job}/{seed}/{self.name}".encode()).digest()
        return int.from_bytes(digest[:8], "little") or 1


@dataclass(frozen=True)
class Layout(Sizes):
    tp: int = 2
    pp: int = 2
    dp: int = 2
    ranks_per_node: int = 2
    nics_per_node: int = 0  # 0: one per rank

    def __post_init__(self) -> None:
        self.check_sizes(("tp", "pp", "dp", "ranks_per_node"), RANKS_MAX, "one machine")

    @cached_property
    def nics(self) -> tuple[Nic, ...]:
        per_node = self.n_nics_per_node
        return tuple(
            Nic(number, number // per_node, f"nic{number % per_node}") for number in range(per_node * self.n_nodes)
        )

    def node_of(self, rank: int) -> int:
        return rank // self.ranks_per_node

    def local_rank_of(self, rank: int) -> int:
        return rank % self.ranks_per_node

    def nic_of(self, rank: int) -> Nic:
        local = self.local_rank_of(rank) * self.n_nics_per_node // self.ranks_per_node
        return self.nics[self.node_of(rank) * self.n_nics_per_node + local]

    def ranks_on_nic(self, nic: Nic) -> list[int]:
        return [rank for rank in range(self.n_ranks) if self.nic_of(rank) == nic]

    def coordinates_of(self, rank: int) -> tuple[int, int, int]:
        """(tp, pp, dp) coordinates of a rank."""
        return rank % self.tp, rank // (self.tp * self.dp), rank // self.tp % self.dp

    @cached_property
    def communicators(self) -> tuple[Communicator, ...]:
        """World first, then every group of at least two ranks."""
        ranks = range(self.n_ranks)
        found = [Communicator("world", "world", tuple(ranks))]
        for kind in KINDS[1:]:
            groups: dict[tuple[int, ...], list[int]] = {}
            for rank in ranks:
                groups.setdefault(self._group_key(kind, rank), []).append(rank)
            found += [
                Communicator(kind, f"{kind}_{number}", tuple(members))
                for number, members in enumerate(groups.values())
                if len(members) > 1
            ]
        return tuple(found)

    def _group_key(self, kind: str, rank: int) -> tuple[int, ...]:
        tp, pp, dp = self.coordinates_of(rank)
        return {"tp": (pp, dp), "dp": (tp, pp), "pp": (tp, dp)}[kind]

    def warnings(self) -> list[str]:
        """What this layout makes impossible to tell apart; printed, not refused."""
        crossing = {c.kind for c in self.communicators if len({self.node_of(rank) for rank in c.members}) > 1}
        if self.n_nodes == 1:
            return ["All ranks share one node, so no op crosses a NIC: nothing but arrivals is visible."]
        if not {"dp", "pp"} <= crossing:
            return ["Not both data and pipeline groups cross the NICs, so a NIC may look like its link."]
        return []
