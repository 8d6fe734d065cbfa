"""Which experiments the suite `pulse` makes: every failure, severity and scenario of Pulse's Table 4, and the cases beside it.

An experiment follows from (seed, number) alone; victims are drawn. Transfers are as large as NCCL's (1 MiB), because the gaps
between them are the point. Jobs are smaller than the paper's in what they move per step (some hundred megabytes a bucket,
steps of a tenth of a second), so that the seconds a trigger needs can be simulated transfer by transfer; the layouts are the
paper's. Severities are the paper's: shares of the rate that is left, watts of a power limit, shares of cores.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from nccl_instrument.agent.traffic.sampling import ROWS_PER_S
from nccl_instrument.simulate.faults import Fault, Scenario, make_fault
from nccl_instrument.simulate.job import JobSettings
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import KIB, Physics

REPEATS: Final = 3
WARM_ITERATIONS: Final = 100  # of which three are measured, where one in 32 is
SETTLED_SECONDS: Final = 48.0  # until the job's usual is known well enough to tell a slowdown by a few per cent
ALL_RATES: Final = (0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)  # the union of §8.1's and Table 4's, of PCIe
PATH_RATES: Final = (0.8, 0.7, 0.6, 0.5)
WATTS: Final = (350, 300, 250, 200)
POWER_USUAL_W, POWER_IDLE_W = 700.0, 100.0
SATURATED: Final = 0.95  # all cores taken: the scheduler still gives a thread that wants to run its turn
POWERSAVE: Final = 0.7  # of a core's speed is lost at 1.5 GHz, the least of the paper's CPU, against 5 GHz, its boost


@dataclass(frozen=True)
class Setting:
    """A scenario: what trains, on how many GPUs. iteration_s: about, of the healthy job."""

    name: str
    layout: Layout
    physics: Physics
    iteration_s: float


_BASE: Final = Physics(
    n_layers=1, n_channels=2, step_gap_ms=2.0, slot_kib=1024, slices=2, latency_us=3.0, jitter=0.003, tp_kib=8 * KIB,
    tree_from=64, traffic_rows=ROWS_PER_S, moe_spread=0.05,
)  # fmt: skip
_GPT: Final = replace(
    _BASE,
    n_microbatches=4,
    n_buckets=2,
    forward_ms=1.0,
    backward_ms=2.0,
    optimizer_ms=3.0,
    dp_kib=768 * KIB,
    pp_kib=16 * KIB,
)
_MIXTRAL: Final = replace(
    _BASE, n_microbatches=2, n_layers=2, n_buckets=1, forward_ms=8.0, backward_ms=16.0, optimizer_ms=3.0, dp_kib=128 * KIB,
    ep_kib=256 * KIB,
)  # fmt: skip
_ALONE: Final = replace(_BASE, n_microbatches=1, ep_kib=1024 * KIB, step_gap_ms=1.0)
_FOUR: Final = Layout(1, 1, 4, 4, 1)

SETTINGS: Final = {
    one.name: one
    for one in (
        Setting("GPT-2 70B", Layout(8, 2, 4, 1, 8), _GPT, 0.06),
        Setting("GPT-2 32B", Layout(8, 2, 2, 1, 8), _GPT, 0.05),
        Setting("GPT-2 32B, four GPUs a node", Layout(4, 1, 4, 1, 4), replace(_GPT, n_microbatches=2), 0.05),
        Setting("Mixtral", Layout(8, 1, 4, 4, 8), _MIXTRAL, 0.13),
        Setting("neighbour exchange", _FOUR, replace(_ALONE, schedule="neighbours"), 0.045),
        Setting("all-to-one", _FOUR, replace(_ALONE, schedule="all_to_one"), 0.07),
        Setting("one-to-all", _FOUR, replace(_ALONE, schedule="one_to_all"), 0.07),
    )
}


@dataclass(frozen=True)
class Experiment:
    """A job and what befalls it. failure: its row of the paper's Table 3; severity: as the paper puts it."""

    number: int
    seed: int
    failure: str
    severity: str
    setting: Setting
    fault: Fault
    whole: str
    job_seed: int
    epoch_us: int = 32

    @property
    def job(self) -> JobSettings:
        physics = replace(self.setting.physics, epoch_us=self.epoch_us)
        return JobSettings(self.setting.layout, physics, Scenario((self.fault,), self.job_seed), records_stages=False)

    @property
    def command(self) -> str:
        """Repeats this experiment alone."""
        return f"python -m tests.eval.pulse --seed {self.seed} --only {self.number}"


def power_factor(watts: float) -> float:
    """How much longer computing takes under a power limit: what is left above idle goes with the cube of the clock."""
    share = (watts - POWER_IDLE_W) / (POWER_USUAL_W - POWER_IDLE_W)
    return float(share ** (-1 / 3))


@dataclass(frozen=True)
class Row:
    """A line of Table 4 in one scenario: the fault by which it is simulated, and (said, amount) of each severity. healthy_s: for
    which the job runs before at least."""

    failure: str
    setting: str
    fault: str
    severities: tuple[tuple[str, float | None], ...]
    healthy_s: float = 0.0


def _left(rates: tuple[float, ...], amount_of: Callable[[float], float]) -> tuple[tuple[str, float], ...]:
    return tuple((f"{rate:.0%} left", amount_of(rate)) for rate in rates)


def _table() -> Iterator[Row]:
    both, three = ("GPT-2 70B", "Mixtral"), ("GPT-2 70B", "Mixtral", "neighbour exchange")
    for setting in both:
        yield Row("GPU execution error", setting, "gpu_error", (("", None),))
        yield Row("CUDA execution error", setting, "cuda_error", (("", None),))
        # Of a step of GPT-2 70B a fifth is computing: 350 W cost 6 % of it.
        healthy_s = SETTLED_SECONDS if setting == "GPT-2 70B" else 0.0
        watts = tuple((f"{one} W", power_factor(one)) for one in WATTS)
        yield Row("GPU throttling", setting, "gpu_slow", watts, healthy_s)
    for setting in ("GPT-2 32B", "Mixtral"):
        yield Row("CPU throttling", setting, "cpu_throttled", (("powersave", POWERSAVE),))
        yield Row("CPU contention", setting, "cpu_contention", (("90% of cores", 0.9), ("100% of cores", SATURATED)))
    for setting in three:
        yield Row("NIC down", setting, "nic_down", (("", None),))
        yield Row("PCIe downgrade", setting, "nic_pcie_slow", _left(ALL_RATES, float))
        yield Row("PCIe contention", setting, "pcie_contended", _left(ALL_RATES, float))
        yield Row("Network congestion", setting, "background_traffic", _left(PATH_RATES, lambda rate: 1 - rate))
    yield Row("NIC-GPU cross NUMA binding", "GPT-2 32B, four GPUs a node", "cross_numa", (("", None),))
    for setting in both:
        yield Row("Memory alignment", setting, "misaligned", (("", None),))
    yield Row("MoE expert imbalance", "Mixtral", "hot_expert", (("", None),))
    # Three flows share the root's NIC, so what leaves a path 70 % or 50 % of its traffic leaves it a third of that.
    yield Row("PCIe downgrade", "all-to-one", "nic_pcie_slow", (("70% left (D.11)", 0.7 / 3),))
    yield Row("Network congestion", "one-to-all", "background_traffic", (("50% left (D.12)", 1 - 0.5 / 3),))


TABLE: Final = tuple(_table())
FAILURES: Final = tuple(dict.fromkeys(row.failure for row in TABLE))


def planned(repeats: int, *, is_quick: bool = False) -> list[tuple[int, Row, tuple[str, float | None]]]:
    """(number, row, severity) of every experiment; numbers do not depend on what is left out. Quick: the mildest and the worst
    severity of each row, once.
    """
    found, number = [], 0
    for repeat in range(REPEATS):
        for row in TABLE:
            for at, severity in enumerate(row.severities):
                is_end = at in (0, len(row.severities) - 1)
                if repeat < repeats and (is_end or not is_quick):
                    found.append((number, row, severity))
                number += 1
    return found


def draw(seed: int, number: int, row: Row, severity: tuple[str, float | None]) -> Experiment:
    """The experiment of this number; the same for the same arguments."""
    made, setting = random.Random(f"{seed}/{number}"), SETTINGS[row.setting]
    job_seed = made.randrange(1, 2**31)
    start_s = round(max(WARM_ITERATIONS * setting.iteration_s, row.healthy_s) + made.uniform(1, 3), 3)
    fault = make_fault(
        row.fault, setting.layout, start_s, None, victim_of(row, setting.layout, made), severity[1], job_seed
    )
    if row.fault == "cross_numa":
        fault = _whole_node(fault, setting.layout)
    if row.setting == "one-to-all":
        fault = _one_path(fault, setting.layout)
    said, whole = severity[0] or f"{fault.amount:.2f}" * bool(fault.amount), _whole(row)
    return Experiment(number, seed, row.failure, said, setting, fault, whole, job_seed)


def victim_of(row: Row, layout: Layout, made: random.Random) -> int:
    """A rank, or a node. The root of a one-sided collective is not drawn: its NIC is everybody's."""
    if row.fault in ("cpu_throttled", "cpu_contention"):
        return made.randrange(layout.n_nodes)
    return made.randrange(1 if row.setting in ("all-to-one", "one-to-all") else 0, layout.n_ranks)


def _whole(row: Row) -> str:
    return {"cross_numa": "node", "cpu_throttled": "node", "cpu_contention": "node", "nic_down": "nic"}.get(
        row.fault, ""
    )


def _whole_node(fault: Fault, layout: Layout) -> Fault:
    """D.2: all GPUs of a node are bound across."""
    node = fault.nodes[0]
    nics = tuple(range(node * layout.n_nics_per_node, (node + 1) * layout.n_nics_per_node))
    return replace(fault, nics=nics, ranks=tuple(layout.ranks_of_node(node)))


def _one_path(fault: Fault, layout: Layout) -> Fault:
    """The traffic of others ends at the victim, and comes from a machine that is not in the job: the root's own NIC is free."""
    victim = fault.nics[0]
    return replace(
        fault, nics=(victim,), ranks=tuple(layout.ranks_of_nic(victim)), nodes=(victim // layout.n_nics_per_node,)
    )
