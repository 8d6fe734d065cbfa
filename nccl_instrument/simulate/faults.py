"""What can befall a simulated job, and the truth about it. Each fault acts on the mechanism, never on the trace.

KINDS holds every row of the evaluation's fault table that is not a line of Python: what it is called there (component
and kind), whom it hits, and the range its severity is drawn from. Healthy variations are in the same table, because a
system that blames somebody for them is wrong. The truth goes to a file that no analysis reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from nccl_instrument.simulate.layout import Layout

FOR_EVER_S: Final = 1e9
TARGETS: Final = ("rank", "nic", "node", "link", "job")


class FaultError(ValueError):
    """The request makes no sense; the message is one sentence."""


@dataclass(frozen=True)
class FaultKind:
    """component and kind as in rca's enums ("healthy" where nobody is to blame). amount: meaning, default and range."""

    component: str
    kind: str
    target: str
    says: str
    amount: str = ""
    default: float = 0.0
    low: float = 0.0
    high: float = 0.0

    @property
    def is_healthy(self) -> bool:
        return self.kind == "healthy"


_NIC_STOP = ("nic", "communication_fail_stop", "nic")
_NIC_SLOW = ("nic", "communication_fail_slow", "nic")
_PROCESS = ("process", "computation_fail_stop", "rank")
_MISMATCH = ("software", "mismatch", "rank")
_PROXY = ("proxy", "computation_fail_slow", "node")
_HEALTHY_JOB = ("none", "healthy", "job")

KINDS: Final = {
    "nic_down": FaultKind(*_NIC_STOP, "a NIC loses its link"),
    "nic_limited": FaultKind(*_NIC_SLOW, "a NIC sends and receives slowly", "share of the rate left", 0.3, 0.1, 0.5),
    "background_traffic": FaultKind(
        "network", "communication_fail_slow", "link", "other traffic on the links of two NICs of two nodes",
        "share of the link taken", 0.65, 0.5, 0.8,
    ),
    "nic_pcie_slow": FaultKind(*_NIC_SLOW, "a NIC's PCIe is downgraded or contended", "share left", 0.4, 0.2, 0.5),
    "cross_numa": FaultKind(*_NIC_SLOW, "a NIC reaches memory badly: its rate fluctuates", "depth", 0.7, 0.6, 0.8),
    "gpu_pcie_slow": FaultKind("copy", "computation_fail_slow", "rank", "copies to network slots are slow", "times slower",
                               3.0, 1.5, 5.0),
    "gpu_slow": FaultKind("gpu", "computation_fail_slow", "rank", "a power limit: compute is slow", "times slower", 2.0, 1.5,
                          5.0),
    "background_compute": FaultKind("node", "computation_fail_slow", "node", "another job on a node's CPUs and GPUs",
                                    "share taken", 0.7, 0.5, 0.9),
    "cpu_contention": FaultKind(*_PROXY, "a node's proxies wait for a CPU", "share of CPU taken", 0.9, 0.8, 0.95),
    "cpu_throttled": FaultKind(*_PROXY, "a node's CPUs run slowly", "share of speed lost", 0.8, 0.7, 0.9),
    "proxy_sleeps": FaultKind("proxy", "computation_fail_slow", "rank", "a proxy sleeps 1 s, about once in five",
                              "seconds each time", 1.0, 1.0, 1.0),
    "proxy_stuck": FaultKind("proxy", "computation_fail_slow", "rank", "a proxy thread does nothing any more"),
    "rank_frozen": FaultKind(*_PROCESS, "a process is stopped"),
    "rank_killed": FaultKind(*_PROCESS, "a process is killed"),
    "gpu_error": FaultKind(*_PROCESS, "a GPU executes nothing any more, its process lives"),
    "stuck_before": FaultKind("software", "computation_fail_stop", "rank", "a rank enqueues no further step"),
    "data_slow": FaultKind("software", "computation_fail_slow", "rank", "a rank's batches come late, in every step",
                           "seconds each step", 0.18, 0.12, 0.36),
    "different_op": FaultKind(*_MISMATCH, "a rank enqueues another op than its data-parallel group"),
    "different_size": FaultKind(*_MISMATCH, "a rank enqueues an op of another size"),
    "different_order": FaultKind(*_MISMATCH, "a rank enqueues two groups' ops in another order than its peers"),
    "hot_expert": FaultKind("gpu", "computation_fail_slow", "rank", "the experts of a rank get too many tokens",
                            "times the usual tokens", 3.0, 2.5, 4.0),
    "links_slow": FaultKind("network", "group_anomaly", "job", "every link at a part of its rate", "share left", 0.5, 0.4,
                            0.6),
    "gpus_slow": FaultKind("gpu", "group_anomaly", "job", "every GPU throttled", "times slower", 2.0, 1.8, 2.5),
    "node_silent": FaultKind("node", "silence", "node", "a node dies: its processes and its agent"),
    "agent_silent": FaultKind("node", "silence", "node", "a node's agent dies, its processes live"),
    "warm_up": FaultKind(*_HEALTHY_JOB, "the first steps are slow", "steps", 3, 2, 6),
    "evaluation_pause": FaultKind(*_HEALTHY_JOB, "all ranks evaluate between two steps", "seconds", 12, 8, 20),
    "checkpoint": FaultKind("none", "healthy", "rank", "a rank (0) saves a checkpoint", "seconds", 8, 5, 15),
    "recompile": FaultKind(*_HEALTHY_JOB, "all ranks recompile before a step, some longer", "seconds", 3, 2, 5),
    "overlap": FaultKind(*_HEALTHY_JOB, "overlap costs both compute and copies", "share", 0.2, 0.15, 0.2),
    "heavy_master": FaultKind("none", "healthy", "rank", "a rank (0) steadily does more between steps", "seconds", 1.5, 1.5,
                              1.5),
    "warm_experts": FaultKind(*_HEALTHY_JOB, "tokens spread unevenly, within the usual", "deviation", 0.2, 0.15, 0.25),
    "clock_skew": FaultKind("none", "healthy", "node", "a node's wall clock is off", "seconds", 0.5, 0.1, 2.0),
    "clock_drift": FaultKind("none", "healthy", "node", "a node's clock runs fast", "ppm", 80, 50, 150),
    "agent_restart": FaultKind("none", "healthy", "node", "a node's agent starts anew", "seconds away", 3, 2, 5),
    "spool_drain": FaultKind("none", "healthy", "node", "a node cannot reach the server for a while", "seconds", 8, 5, 15),
    "server_outage": FaultKind(*_HEALTHY_JOB, "no node can reach the server for a while", "seconds", 8, 5, 15),
    "pcie_contended": FaultKind(*_NIC_SLOW, "loopback traffic of a NIC competes for its PCIe", "share of PCIe left", 0.4, 0.2,
                                0.5),
    "misaligned": FaultKind("nic", "communication_fail_slow", "rank", "a rank's buffers are misaligned: more accesses each",
                            "times more", 2.5, 2.0, 4.0),
    "cuda_error": FaultKind(*_PROCESS, "the main thread ends with an error, its process soon after"),
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """One thing that happens. ranks, nics, nodes: whom it hits, job-wide numbers; which of them counts depends on kind."""

    name: str
    start_s: float
    end_s: float = FOR_EVER_S
    amount: float = 0.0
    ranks: tuple[int, ...] = ()
    nics: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()

    @property
    def kind(self) -> FaultKind:
        return KINDS[self.name]


@dataclass(frozen=True)
class Scenario:
    """What happens to a job. seed: of everything random in it. A scenario without faults is a healthy job."""

    faults: tuple[Fault, ...] = ()
    seed: int = 1
    missing: float = 0.0  # share of batches that never arrive, and are counted as lost by the next one
    late_s: float = 0.0  # the most a batch is late by
    tags: dict[str, Any] = field(default_factory=dict)


def make_fault(
    name: str, layout: Layout, start_s: float, end_s: float | None = None, victim: int | None = None,
    amount: float | None = None, seed: int = 1,
) -> Fault:  # fmt: skip
    """A fault with its victim (a rank, or a node for faults of nodes) and amount, drawn from the seed where not given.

    Raises FaultError when the fault is unknown, or its victim or amount senseless.
    """
    kind = KINDS.get(name)
    if kind is None:
        raise FaultError(f"There is no fault “{name}”; there are: {', '.join(KINDS)}.")
    if name == "hot_expert" and layout.ep == 1:
        raise FaultError("hot_expert needs experts: give --ep.")
    if name in ("different_op", "different_size") and layout.dp == 1:
        raise FaultError(f"{name} needs a data-parallel group: give --dp.")
    if name == "different_order" and layout.tp == 1:
        raise FaultError("different_order needs a tensor group to put after the world's op: give --tp.")
    if end_s is not None and end_s <= start_s:
        raise FaultError(f"{name} would end before it begins.")
    random = np.random.default_rng([seed, list(KINDS).index(name)])
    drawn = float(random.uniform(kind.low, kind.high))
    value = drawn if amount is None else amount
    if kind.amount and value <= 0:
        raise FaultError(f"{name} needs an amount above 0 ({kind.amount}).")
    if kind.amount.startswith("share") and not value < 1:
        raise FaultError(f"{name} takes an amount between 0 and 1 ({kind.amount}).")
    ranks, nics, nodes = _victims(kind, layout, victim, random)
    return Fault(name, start_s, FOR_EVER_S if end_s is None else end_s, value, ranks, nics, nodes)


def _victims(
    kind: FaultKind, layout: Layout, victim: int | None, random: np.random.Generator
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    if kind.target == "job":
        return (), (), ()
    n = layout.n_nodes if kind.target == "node" else layout.n_ranks
    is_first = kind.is_healthy and kind.target == "rank"  # rank 0 saves and logs
    chosen = victim if victim is not None else 0 if is_first else int(random.integers(n))
    if not 0 <= chosen < n:
        raise FaultError(f"There is no {'node' if kind.target == 'node' else 'rank'} {chosen}: there are 0 to {n - 1}.")
    if kind.target == "node":
        return tuple(layout.ranks_of_node(chosen)), (), (chosen,)
    if kind.target == "rank":
        return (chosen,), (), (int(layout.node_of[chosen]),)
    nics = [int(layout.nic_of[chosen])]
    if kind.target == "link":
        nics.append(_partner(layout, chosen, random))
    ranks = sorted(rank for nic in nics for rank in layout.ranks_of_nic(nic))
    return tuple(ranks), tuple(nics), tuple(sorted({nic // layout.n_nics_per_node for nic in nics}))


def _partner(layout: Layout, rank: int, random: np.random.Generator) -> int:
    """The NIC at the other end: one of another node whose rank talks to this one."""
    if layout.n_nodes < 2:
        raise FaultError("Traffic between two nodes needs two nodes.")
    for kind in ("dp", "pp", "world"):
        for members in layout.groups.get(kind, ()):
            if rank in members:
                at = int(np.flatnonzero(members == rank)[0])
                others = [int(members[(at + 1) % len(members)]), int(members[at - 1])]
                away = [other for other in others if layout.node_of[other] != layout.node_of[rank]]
                if away:
                    return int(layout.nic_of[away[0]])
    return int((layout.nic_of[rank] + layout.n_nics_per_node) % layout.n_nics)


def truth(fault: Fault, layout: Layout, origin_ns: int) -> dict[str, Any]:
    """What is true of a fault, for the side file. origin_ns: unix time of the job's start.

    cycle: both sides of a deadlock, which are as right as the rank that erred. tie: the two of a mismatch of which nobody
    can say who errs.
    """
    blamed = () if fault.kind.is_healthy or fault.kind.target == "job" else fault.ranks
    return {
        "fault": fault.name,
        "component": fault.kind.component,
        "kind": fault.kind.kind,
        "ranks": list(blamed),
        "cycle": _mates(layout, "tp", fault) if fault.name == "different_order" else [],
        "tie": _mates(layout, "dp", fault)
        if fault.name in ("different_op", "different_size") and layout.dp == 2
        else [],
        "nodes": [f"node{node}" for node in fault.nodes] if blamed else [],
        "nics": [f"node{nic // layout.n_nics_per_node}/nic{nic % layout.n_nics_per_node}" for nic in fault.nics],
        "amount": fault.amount,
        "starts_ns": origin_ns + int(fault.start_s * 1e9),
        "ends_ns": origin_ns + int(fault.end_s * 1e9) if fault.end_s < FOR_EVER_S else None,
    }


def _mates(layout: Layout, kind: str, fault: Fault) -> list[int]:
    """The victim's group of this kind, itself included."""
    groups = layout.groups[kind]
    return [int(rank) for rank in groups[(groups == fault.ranks[0]).any(axis=1)][0]]
