"""Which jobs and faults the suite `localization` draws: every row of the evaluation's fault table equally often.

A case follows from (seed, size, number) alone, so that a single one can be repeated. Layout, physics, victim and severity
are random; a slowdown is drawn again until it makes the job's iterations 1.25 to 5 times as long, which a short run of
the engine without agents tells, and a proxy that sleeps until it has something to do. Steps are shorter than a large job's,
since a minute must hold a normal and a change.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nccl_instrument.simulate.effects import effects_of
from nccl_instrument.simulate.faults import Fault, Scenario, make_fault
from nccl_instrument.simulate.job import JobSettings, make_engine
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import KIB, LARGE_RING, MIB, Physics
from nccl_instrument.simulate.topology import STREAMS, build_topology

ROWS: Final[dict[str, tuple[str, ...]]] = {
    "NIC down": ("nic_down",),
    "NIC bandwidth limited": ("nic_limited",),
    "background traffic": ("background_traffic",),
    "PCIe of a NIC": ("nic_pcie_slow",),
    "PCIe of a GPU": ("gpu_pcie_slow",),
    "GPU power limit": ("gpu_slow",),
    "background computation": ("background_compute",),
    "CPU contention or throttling": ("cpu_contention", "cpu_throttled"),
    "proxy sleeps": ("proxy_sleeps",),
    "execution error, frozen or killed": ("gpu_error", "rank_frozen", "rank_killed"),
    "stuck before the collective": ("stuck_before",),
    "different op, size or order": ("different_op", "different_size", "different_order"),
    "cross-NUMA": ("cross_numa",),
    "expert imbalance": ("hot_expert",),
    "everything slow": ("links_slow", "gpus_slow"),
    "node or agent silent": ("node_silent", "agent_silent"),
}
ODD_ROWS: Final = ROWS | {
    "PCIe of a NIC": ("pcie_contended", "nic_pcie_slow"),
    "cross-NUMA": ("misaligned", "cross_numa"),
    "execution error, frozen or killed": ("cuda_error", "gpu_error", "rank_frozen", "rank_killed"),
}
"""The same rows with what Pulse's tables have besides, for jobs of other shapes (`--odd`)."""
HEALTHY: Final = ("warm_up", "evaluation_pause", "checkpoint", "recompile", "overlap", "heavy_master", "warm_experts",
                  "clock_skew", "clock_drift", "agent_restart", "spool_drain", "server_outage")  # fmt: skip
FROM_THE_START: Final = ("warm_up", "overlap", "heavy_master", "warm_experts", "clock_drift", "clock_skew")
CASES_AT: Final = {64: 80, 1024: 64, 10_000: 64}
STEP_FACTORS: Final = {1024: 1.5, 10_000: 2.5}  # large jobs have longer steps, and their rows must fit into memory
NODE_RANKS: Final = 8
WARM_ITERATIONS: Final = 60  # those left out and those a normal needs, and some
LARGE: Final = 1024
LARGE_SLOW_WARM_ITERATIONS: Final = 45  # as above, without much over
LARGE_WARM_ITERATIONS: Final = 20  # of a large job that then stands still or goes silent: no rule asks for its pace
HEALTHY_SECONDS: Final = 60.0
STEADY_SECONDS: Final = 36.0  # a node is not called silent before its job was heard for half a minute
SLOWDOWN_LEAST, SLOWDOWN_MOST = 1.25, 5.0
WAIT_TICKS_NS: Final = (0.0, 0.64, 4.0, 7.0)  # of ports; none is told where they do not count
WAIT_SHARES: Final = (
    0.0,
    0.0005,
    0.003,
    0.02,
)  # of the time in which they send, whoever takes it; 0: a counter that stands still
DRAWS_MAX: Final = 12
REPLICAS_TRIED: Final = 5


Plan = tuple[int, int, str, str]  # gpus, number, row of the fault table, fault


@dataclass(frozen=True)
class Case:
    """A job and what befalls it. slowdown: how much longer its iterations get, 0 where that is not the point."""

    seed: int
    gpus: int
    number: int
    row: str
    fault: Fault
    layout: Layout
    physics: Physics
    transport: str
    job_seed: int
    iteration_s: float
    slowdown: float = 0.0
    is_odd: bool = False

    @property
    def is_healthy(self) -> bool:
        return self.fault.kind.is_healthy

    @property
    def settings(self) -> JobSettings:
        return JobSettings(self.layout, self.physics, Scenario((self.fault,), self.job_seed), transport=self.transport)

    @property
    def command(self) -> str:
        """Repeats this case alone."""
        more = (" --kernels" if self.physics.kernels else "") + (" --odd" if self.is_odd else "")
        return f"python -m tests.eval.localization --seed {self.seed} --sizes {self.gpus} --only {self.number}{more}"


def with_kernels(case: Case) -> Case:
    """The same job, whose plugin has NCCL report kernels: nothing but `progress` rows differs. Of jobs that are not shared."""
    return replace(case, physics=replace(case.physics, kernels=True))


def planned(
    gpus: int, n_cases: int, faults: tuple[str, ...] = (), *, is_odd: bool = False
) -> list[tuple[int, str, str]]:
    """(number, row, fault) of n_cases faulty cases and as many healthy ones, in turn; of `faults` only, where given."""
    rows = list((ODD_ROWS if is_odd else ROWS).items())
    found = []
    for at in range(n_cases):
        row, names = rows[at % len(rows)]
        found.append((2 * at, row, names[at // len(rows) % len(names)]))
        found.append((2 * at + 1, "healthy", HEALTHY[at % len(HEALTHY)]))
    return [one for one in found if not faults or one[2] in faults or one[1] in faults]


def draw_case(
    seed: int, gpus: int, number: int, row: str, fault: str, layout: Layout | None = None, *, is_odd: bool = False
) -> Case:
    """The case of this number; the same for the same arguments. layout: drawn, unless it is given; is_odd: of other shapes."""
    drawn: list[Case] = []
    for attempt in range(DRAWS_MAX):
        draw = random.Random(f"{seed}/{gpus}/{number}/{attempt}")
        shape = layout or (draw_odd_layout if is_odd else draw_layout)(gpus, fault, draw)
        drawn.append(replace(_draw(seed, gpus, number, row, fault, shape, draw), is_odd=is_odd))
        if is_felt(drawn[-1]):
            return drawn[-1]
    return nearest(drawn)


def nearest(drawn: Sequence[Case]) -> Case:
    """Of cases none of which does what its row says the one that is nearest to it."""
    if not must_slow(drawn[-1].fault):
        return drawn[-1]
    return min(drawn, key=lambda case: abs(math.log(case.slowdown / SLOWDOWN_LEAST)))


def ports_waiting(physics: Physics, job_seed: int) -> Physics:
    """With how long a tick of its ports is, if they count how long they wait, and how much they always do. Drawn apart: it
    changes nothing else."""
    tick, share = job_seed % len(WAIT_TICKS_NS), job_seed // len(WAIT_TICKS_NS) % len(WAIT_SHARES)
    return replace(physics, wait_tick_ns=WAIT_TICKS_NS[tick], wait_share=WAIT_SHARES[share])


def _draw(seed: int, gpus: int, number: int, row: str, name: str, layout: Layout, draw: random.Random) -> Case:
    physics = draw_physics(layout, draw)
    if name == "different_op" and physics.dp_reduce == "tree":
        physics = replace(physics, dp_reduce="ring")  # a tree knows no other op
    job_seed = draw.randrange(1, 2**31)
    transport = "Socket" if draw.random() < 0.2 else "IB"
    physics = ports_waiting(
        replace(physics, credits_queue=draw.random() < 0.5), job_seed
    )  # NICs differ, and rules rest on it
    fault = make_fault(name, layout, 1.0, seed=job_seed)
    tried, alike_physics = fewer_replicas(layout, physics)
    alike = fault if tried == layout else make_fault(name, tried, 1.0, amount=fault.amount, seed=job_seed)
    usual_s, now_s = iteration_seconds(tried, alike_physics, alike, transport, job_seed)
    is_stop = not (must_slow(fault) or fault.name == "proxy_sleeps" or row == "healthy")
    n_warm = warm_iterations(gpus, is_stop)
    start_s = n_warm * usual_s + draw.uniform(0, 5)
    if name in FROM_THE_START:
        start_s = 0.0
    elif row in ("node or agent silent", "healthy"):
        start_s = max(start_s, STEADY_SECONDS)
    slowdown = now_s / usual_s if must_slow(fault) else 0.0
    return Case(
        seed, gpus, number, row, replace(fault, start_s=round(start_s, 3)), layout, physics, transport, job_seed,
        round(usual_s, 4), round(slowdown, 3),
    )  # fmt: skip


def warm_iterations(gpus: int, is_stop: bool) -> int:
    """Iterations before a fault: of most what a normal needs, of a large job that then stands still a few."""
    if is_stop and gpus >= LARGE:
        return LARGE_WARM_ITERATIONS
    return LARGE_SLOW_WARM_ITERATIONS if gpus > LARGE else WARM_ITERATIONS


def is_felt(case: Case) -> bool:
    """Whether the fault does what its row says: a proxy that has nothing to send or take, as in the middle of a tree's node,
    may sleep as it likes, and a NIC by which no ring leaves or enters its node may be down."""
    if case.fault.name in ("proxy_sleeps", "nic_down"):
        return bool(np.isin(case.fault.ranks, _who_sends(case.layout, case.physics)).any())
    return not must_slow(case.fault) or SLOWDOWN_LEAST <= case.slowdown <= SLOWDOWN_MOST


def _who_sends(layout: Layout, physics: Physics) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    """Ranks with a connection to another node that carries more than the job's own small reductions."""
    made = build_topology(layout, physics)
    carries = made.links["is_network"].astype(bool) & (made.groups["stream"][made.links["group"]] != STREAMS["world"])
    found: np.ndarray[tuple[int], np.dtype[np.int32]] = np.unique(
        np.concatenate([made.links[name][carries] for name in ("from_rank", "to_rank")])
    )
    return found


def must_slow(fault: Fault) -> bool:
    """Whether the fault's point is that iterations get longer."""
    is_slow = fault.kind.kind.endswith("fail_slow") or fault.kind.kind == "group_anomaly"
    return is_slow and fault.name != "proxy_sleeps"  # a second in every five, whatever the job


def draw_layout(gpus: int, fault: str, draw: random.Random) -> Layout:
    """TP × PP × DP, half of them with experts, on nodes of eight GPUs with a NIC each or for two."""
    while True:
        tp = draw.choice((8, 8, 4, 2)) if gpus <= LARGE else 8
        pp = draw.choice((1, 2, 4) if gpus <= 64 else (2, 4, 8) if gpus <= LARGE else (25, 50))
        ep = _draw_experts(fault, gpus // (tp * pp), 0.5, (2, 4, 5), draw)
        nics = 4 if draw.random() < 0.2 else 0
        if _is_job(gpus, fault, tp, pp, ep, NODE_RANKS):
            return Layout(tp, pp, gpus // (tp * pp), ep, NODE_RANKS, nics)


def draw_odd_layout(gpus: int, fault: str, draw: random.Random) -> Layout:
    """What `draw_layout` does not draw: no or little tensor parallelism, nodes of 2 to 16 GPUs, more often with shared NICs."""
    while True:
        node = draw.choice((2, 4, 8, 16))
        tp, pp = draw.choice((1, 1, 2, 4)), draw.choice((1, 1, 2, 4))
        ep = _draw_experts(fault, gpus // (tp * pp), 0.3, (2, 4, 8), draw)
        nics = draw.choice((0, 0, node // 2))
        has_nodes = tp <= node and gpus % node == 0 and gpus >= 4 * node
        if has_nodes and _is_job(gpus, fault, tp, pp, ep, node):
            return Layout(tp, pp, gpus // (tp * pp), ep, node, nics)


def _draw_experts(fault: str, dp: int, share: float, sizes: Sequence[int], draw: random.Random) -> int:
    """Ranks that share the experts, of a part of the jobs and of those whose fault is about them; 1: no experts, 0: dp ranks
    cannot share them evenly."""
    has_experts = fault in ("hot_expert", "warm_experts") or draw.random() < share
    return draw.choice([n for n in sizes if dp % n == 0 and n <= dp] or [0]) if has_experts else 1


def _is_job(gpus: int, fault: str, tp: int, pp: int, ep: int, node: int) -> bool:
    """Whether there are replicas, the experts have their ranks, and a hot one exchanges over the network."""
    dp = gpus // (tp * pp)
    is_seen = fault != "hot_expert" or tp * ep > node
    return tp * pp * dp == gpus and dp > 1 and ep > 0 and is_seen


def draw_physics(layout: Layout, draw: random.Random) -> Physics:
    """A step of a quarter to half a second (longer in large jobs), of which gradients take a quarter to a half on 400 Gbit/s.

    Above 1,024 ranks a pipeline is half filled and gradients are reduced at once: every transfer costs an engine 3 us, a ring's
    transfers grow with the square of its replicas, and an iteration of 10,000 ranks takes a processor 8 s as it is.
    """
    step_ms = draw.uniform(250, 450) * STEP_FACTORS.get(layout.n_ranks, 1.0)
    n_microbatches = layout.pp // 2 if layout.n_ranks > LARGE else max(layout.pp, draw.choice((2, 3)))
    share = draw.uniform(0.25, 0.5)
    passes = n_microbatches + layout.pp - 1
    forward_ms = step_ms * (1 - share) / (3 * passes)
    made = Physics(
        n_microbatches=n_microbatches, n_layers=1, n_channels=draw.choice((1, 2)),
        n_buckets=draw.choice((1, 2)), forward_ms=forward_ms,
        backward_ms=2 * forward_ms, optimizer_ms=8.0, step_gap_ms=3.0, jitter=draw.uniform(0.003, 0.01),
        dp_reduce=draw.choice(("sharded", "sharded", "ring", "tree")), ep_kib=128 * KIB, tp_kib=32 * KIB,
    )  # fmt: skip
    if layout.n_ranks > LARGE:
        made = replace(made, n_buckets=1)
    users = layout.ranks_per_node // layout.n_nics_per_node
    dp_kib = int(share * step_ms / 1000 * made.link_bytes_per_s / 2 / KIB / users / made.n_buckets)
    return replace(made, dp_kib=dp_kib, pp_kib=draw.choice((16, 32)) * MIB // KIB, **_slots(layout, made, dp_kib))


def _slots(layout: Layout, physics: Physics, dp_kib: int) -> dict[str, int]:
    """Transfers that grow with the ring, not with the bytes: as cluster_physics has them, above 1,024 ranks of up to four times
    the slot and whole.
    """
    is_large = layout.n_ranks > LARGE
    slices, most_kib = 1 if layout.dp >= LARGE_RING or is_large else 2, physics.slot_kib * (4 if is_large else 1)
    part = dp_kib // physics.n_channels // max(layout.dp, 2)
    return {"slices": slices, "slot_kib": max(min(part // slices, most_kib), 256)}


def fewer_replicas(layout: Layout, physics: Physics) -> tuple[Layout, Physics]:
    """The job on which a fault is tried: itself, or one with fewer replicas where a dozen iterations of it would take minutes.

    Its iterations take about as long: of a reduction among n every rank sends 1 − 1/n, and of so much less there is more.
    """
    if layout.n_ranks <= LARGE:
        return layout, physics
    dp = min(n for n in range(REPLICAS_TRIED, layout.dp + 1) if layout.dp % n == 0 and n % layout.ep == 0)
    dp_kib = int(physics.dp_kib * (1 - 1 / layout.dp) / (1 - 1 / dp))
    return replace(layout, dp=dp), replace(physics, dp_kib=dp_kib)


def iteration_seconds(layout: Layout, physics: Physics, fault: Fault, transport: str, seed: int) -> tuple[float, float]:
    """(usual, under the fault) seconds of an iteration, by the engine alone; a fault that is no slowdown is not tried."""
    usual_s = pace_seconds(layout, physics, (), transport, seed)
    is_tried = must_slow(fault) or fault.name == "heavy_master"
    now_s = pace_seconds(layout, physics, (replace(fault, start_s=0.001),), transport, seed) if is_tried else usual_s
    return (now_s if fault.name == "heavy_master" else usual_s), now_s


def pace_seconds(layout: Layout, physics: Physics, faults: tuple[Fault, ...], transport: str, seed: int) -> float:
    """Seconds of an iteration under these faults, by the engine alone: of the third to the eighth."""
    engine = make_engine(layout, effects_of(Scenario(faults, seed), layout, physics), seed, transport == "IB")
    ranks = np.arange(layout.n_ranks, dtype=np.int32)
    began, now_ns = {}, 0
    try:
        while len(began) < 2 and now_ns < 60 * 10**9:
            now_ns += 20_000_000
            engine.run(now_ns)
            done = int(engine.processes(ranks)["iteration"].min())
            for wanted in (2, 8):
                if done >= wanted and wanted not in began:
                    began[wanted] = (now_ns, done)
    finally:
        engine.close()
    if len(began) < 2:
        return 10.0
    (first_ns, first), (last_ns, last) = began[2], began[8]
    return (last_ns - first_ns) / 1e9 / (last - first)
