"""From a fault to what it changes: actions of the engine, clocks of nodes, and how batches reach the server.

Here a fault's amount becomes physics: a proxy that gets a tenth of a CPU waits nine times as long as a slot takes, a
NIC behind a slow PCIe also hands over late what it received.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.simulate.engine import ACTION, ACTIONS
from nccl_instrument.simulate.faults import FOR_EVER_S, Fault, Scenario
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import Physics

S: Final = 1_000_000_000
SLEEP_EVERY_NS: Final = 4 * S  # between two sleeps of a second
CHECKPOINT_BYTES_PER_S: Final = 200_000_000
BURSTS: Final = 0.2  # competing traffic comes in bursts: how far a transfer's rate deviates at most
EXIT_S: Final = 2.0  # from an exception in the main thread to the end of the process
JOB: Final = -1
Step = tuple[float, str, int, float, float]  # at_s, what, target, amount, second


@dataclass(frozen=True)
class Absence:
    """Batches of a node between two times: `silent` never cut (the agent is dead), `held` sent when it is over."""

    node: int
    start_ns: int
    end_ns: int
    is_silent: bool


@dataclass
class Effects:
    """All that a scenario changes."""

    physics: Physics
    actions: npt.NDArray[np.void]
    absences: list[Absence] = field(default_factory=list)
    clock_offset_ns: dict[int, int] = field(default_factory=dict)
    clock_drift_ppm: dict[int, float] = field(default_factory=dict)


def effects_of(scenario: Scenario, layout: Layout, physics: Physics) -> Effects:
    """What the faults of `scenario` do to a job of this layout and physics."""
    steps: list[Step] = []
    found = Effects(physics, np.zeros(0, ACTION))
    for fault in scenario.faults:
        steps += _steps(fault, layout, physics)
        _change_physics(found, fault)
        _change_clocks(found, fault)
        found.absences += _absences(fault, layout)
    rows = [
        (max(int(at * S), 1), ACTIONS.index(what), target, amount, second) for at, what, target, amount, second in steps
    ]
    found.actions = np.array(sorted(rows), ACTION)
    return found


def _steps(fault: Fault, layout: Layout, physics: Physics) -> Iterator[Step]:
    makes = _STEPS.get(fault.name)
    if makes is None:
        return
    for at, (what, target, amount, second) in makes(fault, layout, physics):
        if at < FOR_EVER_S:
            yield at, what, target, amount, second


Change = tuple[float, tuple[str, int, float, float]]
Maker = Callable[[Fault, Layout, Physics], Iterator[Change]]


def _during(what: str, targets: str, changed: Callable[[Fault, Physics], float], normal: float = 1.0) -> Maker:
    """`what` of every target is `changed` while the fault lasts."""

    def changes(fault: Fault, layout: Layout, physics: Physics) -> Iterator[Change]:
        for target in _targets(fault, layout, targets):
            yield fault.start_s, (what, target, changed(fault, physics), 0.0)
            yield fault.end_s, (what, target, normal, 0.0)

    return changes


def _switch(on: str, off: str, targets: str) -> Maker:
    def changes(fault: Fault, layout: Layout, physics: Physics) -> Iterator[Change]:
        for target in _targets(fault, layout, targets):
            yield fault.start_s, (on, target, 0.0, 0.0)
            if off:
                yield fault.end_s, (off, target, 0.0, 0.0)

    return changes


def _both(*makers: Maker) -> Maker:
    def changes(fault: Fault, layout: Layout, physics: Physics) -> Iterator[Change]:
        for maker in makers:
            yield from maker(fault, layout, physics)

    return changes


def _targets(fault: Fault, layout: Layout, targets: str) -> tuple[int, ...] | range:
    if targets == "every nic":
        return range(layout.n_nics)
    if targets == "every rank":
        return range(layout.n_ranks)
    return {"ranks": fault.ranks, "nics": fault.nics, "job": (JOB,)}[targets]


def _amount(fault: Fault, physics: Physics) -> float:
    return fault.amount


def _starved_ns(fault: Fault, physics: Physics) -> float:
    """A thread that gets a share x of a CPU waits (1 - x) / x of its work; its work here is a slot."""
    return physics.slot_ns * fault.amount / (1 - fault.amount)


def _hand_over_ns(fault: Fault, physics: Physics) -> float:
    return physics.slot_ns * (1 / fault.amount - 1)


def _once(what: str, amount: Callable[[Fault, int], float], targets: str = "ranks", second: float = 0.0) -> Maker:
    def changes(fault: Fault, layout: Layout, physics: Physics) -> Iterator[Change]:
        for target in _targets(fault, layout, targets):
            yield fault.start_s, (what, target, amount(fault, target), second)

    return changes


def _ends(fault: Fault, layout: Layout, physics: Physics) -> Iterator[Change]:
    """The main thread raises; the GPU goes on with what it was given until the process has taken itself down."""
    for rank in fault.ranks:
        yield fault.start_s, ("host_over", rank, 0.0, 0.0)
        yield fault.start_s + EXIT_S, ("kill", rank, 0.0, 0.0)


def _sleeps(fault: Fault, layout: Layout, physics: Physics) -> Iterator[Change]:
    for rank in fault.ranks:
        yield fault.start_s, ("sleep_every", rank, fault.amount * S, SLEEP_EVERY_NS)
        yield fault.end_s, ("sleep_every", rank, 0.0, 0.0)


def _sleep_on(fault: Fault, layout: Layout, physics: Physics) -> Iterator[Change]:
    for rank in fault.ranks:
        yield fault.start_s, ("sleep_once", rank, (fault.end_s - fault.start_s) * S, 0.0)


def _long(fault: Fault, target: int) -> float:
    return fault.amount * S


def _uneven(fault: Fault, target: int) -> float:
    """Some ranks compile longer than others."""
    return fault.amount * S * (1 + 0.2 * (target * 2654435761 % 1000) / 1000)


_STEPS: Final[dict[str, Maker]] = {
    "nic_down": _switch("nic_down", "nic_up", "nics"),
    "nic_limited": _during("nic_share", "nics", _amount),
    "background_traffic": _during("traffic", "nics", _amount, 0.0),
    "nic_pcie_slow": _both(_during("pcie_share", "nics", _amount), _during("hand_over", "nics", _hand_over_ns, 0.0)),
    "cross_numa": _during("wobble", "nics", _amount, 0.0),
    "pcie_contended": _both(
        _during("pcie_share", "nics", _amount), _during("wobble", "nics", lambda fault, physics: BURSTS, 0.0)
    ),
    "misaligned": _during("dma_factor", "ranks", _amount),
    "gpu_pcie_slow": _during("copy_factor", "ranks", _amount),
    "gpu_slow": _during("compute_factor", "ranks", _amount),
    "background_compute": _both(
        _during("background", "ranks", lambda fault, physics: 1 / (1 - fault.amount)),
        _during("proxy_delay", "ranks", lambda fault, physics: 0.1 * _starved_ns(fault, physics), 0.0),
    ),
    "cpu_contention": _during("proxy_delay", "ranks", _starved_ns, 0.0),
    "cpu_throttled": _during("proxy_delay", "ranks", _starved_ns, 0.0),
    "proxy_sleeps": _sleeps,
    "proxy_stuck": _sleep_on,
    "rank_frozen": _switch("freeze", "thaw", "ranks"),
    "rank_killed": _switch("kill", "", "ranks"),
    "gpu_error": _switch("gpu_dead", "", "ranks"),
    "cuda_error": _ends,
    "stuck_before": _switch("stuck", "unstuck", "ranks"),
    "different_op": _once("mismatch", lambda fault, target: 1),
    "different_size": _once("mismatch", lambda fault, target: 2),
    "different_order": _once("mismatch", lambda fault, target: 3),
    "hot_expert": _during("expert", "ranks", _amount),
    "links_slow": _during("wire_share", "every nic", _amount),
    "gpus_slow": _during("compute_factor", "every rank", _amount),
    "node_silent": _switch("kill", "", "ranks"),
    "evaluation_pause": _once("pause", _long, "job"),
    "checkpoint": _once("hold", _long, "ranks", CHECKPOINT_BYTES_PER_S),
    "recompile": _once("hold", _uneven, "every rank"),
    "overlap": _during("overlap", "job", _amount, 0.0),
    "data_slow": _during("data_extra", "ranks", lambda fault, physics: fault.amount * S, 0.0),
    "heavy_master": _during("host_extra", "ranks", lambda fault, physics: fault.amount * S, 0.0),
}


def _change_physics(found: Effects, fault: Fault) -> None:
    if fault.name == "warm_up":
        found.physics = dataclasses.replace(found.physics, warmup_steps=int(fault.amount))
    if fault.name == "warm_experts":
        found.physics = dataclasses.replace(found.physics, moe_spread=fault.amount)


def _change_clocks(found: Effects, fault: Fault) -> None:
    for node in fault.nodes:
        if fault.name == "clock_skew":
            found.clock_offset_ns[node] = int(fault.amount * S)
        if fault.name == "clock_drift":
            found.clock_drift_ppm[node] = fault.amount


def _absences(fault: Fault, layout: Layout) -> list[Absence]:
    start, end = int(fault.start_s * S), int(min(fault.end_s, FOR_EVER_S) * S)
    until = start + int(fault.amount * S)
    if fault.name in ("node_silent", "agent_silent"):
        return [Absence(node, start, end, True) for node in fault.nodes]
    if fault.name in ("agent_restart", "spool_drain"):
        return [Absence(node, start, until, fault.name == "agent_restart") for node in fault.nodes]
    if fault.name == "server_outage":
        return [Absence(node, start, until, False) for node in range(layout.n_nodes)]
    return []
