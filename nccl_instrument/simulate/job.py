"""A simulated job from its description to batches: builds the engine's tables, lets time pass, lets the agents look."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.simulate.agents import Agents, Sent
from nccl_instrument.simulate.clocks import Clocks
from nccl_instrument.simulate.effects import Effects, effects_of
from nccl_instrument.simulate.engine import SETTINGS, Engine
from nccl_instrument.simulate.faults import Fault, FaultError, Scenario, truth
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import KIB, Physics
from nccl_instrument.simulate.rows import Roster
from nccl_instrument.simulate.schedule import build_schedule
from nccl_instrument.simulate.stages import schema_of
from nccl_instrument.simulate.topology import build_topology
from nccl_instrument.simulate.traffic import NodesTraffic

CUTS_WAITING_MAX: Final = 2
SLICES_MAX: Final = 8_000_000  # until they are read: some 600 MB
ORIGIN_NS: Final = 1_790_000_000 * 10**9
Rows = npt.NDArray[np.void]
Tables = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True)
class JobSettings:
    """What is simulated. origin_ns: unix time of the job's start, true time. records_stages: with a stage recorder in it."""

    layout: Layout
    physics: Physics
    scenario: Scenario = field(default_factory=Scenario)
    name: str = "simulated"
    transport: str = "IB"
    origin_ns: int = ORIGIN_NS
    records_stages: bool = True


class SimulatedJob:
    """`batches` is the job's life as its agents tell it; `truth` what really happened."""

    def __init__(self, settings: JobSettings) -> None:
        self.settings = settings
        effects = effects_of(settings.scenario, settings.layout, settings.physics)
        seed = settings.scenario.seed
        clocks = Clocks(settings.layout.n_nodes, settings.origin_ns, seed)
        clocks.change(effects.clock_offset_ns, effects.clock_drift_ppm)
        is_ib = settings.transport == "IB"
        roster = Roster(settings.layout, effects.physics, settings.name, seed, is_ib, clocks)
        self.engine = make_engine(settings.layout, effects, seed, is_ib)
        scenario = settings.scenario
        schema = schema_of(effects.physics, settings.layout.pp) if settings.records_stages else None
        self.traffic = _traffic(effects.physics, roster, self.engine)
        self.agents = Agents(
            settings.name, roster, seed, effects.absences, scenario.missing, scenario.late_s, schema, self.traffic
        )
        self._n_swept = 0

    @property
    def truth(self) -> list[dict[str, Any]]:
        """One entry per fault, for the side file."""
        return [truth(fault, self.settings.layout, self.settings.origin_ns) for fault in self.settings.scenario.faults]

    def befall(self, fault: Fault) -> None:
        """`fault` happens as well, later on. Raises FaultError where a job has it from its start, and for what is past."""
        settings = self.settings
        effects = effects_of(replace(settings.scenario, faults=(fault,)), settings.layout, settings.physics)
        if effects.physics != settings.physics or effects.clock_offset_ns or effects.clock_drift_ppm:
            raise FaultError(f"A job has {fault.name} from its start, or not at all.")
        if fault.start_s * 1e9 <= self.engine.now_ns:
            raise FaultError(
                f"The job is {self.engine.now_ns / 1e9:.3f} s old: {fault.name} cannot have happened before."
            )
        self.engine.befall(effects.actions)
        self.agents.absences += effects.absences
        self.settings = replace(
            settings, scenario=replace(settings.scenario, faults=(*settings.scenario.faults, fault))
        )

    def batches(self, seconds: float, tell: Callable[[float], None] = lambda done_s: None) -> Iterator[list[Sent]]:
        """The batches of the job until it is `seconds` old, as they are cut; `tell` hears how many seconds have passed.

        Called again it goes on where it was, once it was read to its end.
        """
        cutting: deque[Future[list[Sent]]] = deque()
        with ThreadPoolExecutor(
            1
        ) as writer:  # encoding takes as long as the engine, and the engine lets go of the lock
            for now_ns, phase, is_cut in islice(self.agents.times(int(seconds * 1e9)), self._n_swept, None):
                self._n_swept += 1
                self.engine.run(now_ns, lambda reached_ns: tell(reached_ns / 1e9))
                seen = self.agents.sweep(self.engine, now_ns, phase, is_cut)
                if seen is not None:
                    cutting.append(writer.submit(self.agents.batches_of, seen))
                while len(cutting) > CUTS_WAITING_MAX:
                    yield cutting.popleft().result()
            while cutting:
                yield cutting.popleft().result()

    def close(self) -> None:
        self.engine.close()


def _traffic(physics: Physics, roster: Roster, engine: Engine) -> NodesTraffic | None:
    if not physics.traffic_rows:
        return None
    return NodesTraffic(roster, engine, physics.traffic_rows, physics.epoch_us * 1000)


def make_engine(layout: Layout, effects: Effects, seed: int, is_ib: bool) -> Engine:
    """The engine of a job, at its start."""
    physics = effects.physics
    topology, schedule = build_topology(layout, physics), build_schedule(layout, physics)
    tables: Tables = {
        "ranks": topology.ranks, "groups": topology.groups, "members": topology.members, "links": topology.links,
        "lanes": topology.lanes, "classes": schedule.classes, "tasks": schedule.tasks,
        "stream_tasks": schedule.stream_tasks, "specs": schedule.specs, "actions": effects.actions,
        "nic_rates": np.full(layout.n_nics, physics.link_bytes_per_s, np.int64),
    }  # fmt: skip
    return Engine(_settings(physics, tables, seed, is_ib), tables)


def _settings(physics: Physics, tables: Tables, seed: int, is_ib: bool) -> Rows:
    made = np.zeros(1, SETTINGS)
    row = made[0]
    row["seed"], row["is_ib"], row["slot_bytes"] = seed, is_ib, physics.slot_kib * KIB
    row["copy_bytes_per_s"] = physics.link_bytes_per_s * physics.copy_to_link_ratio
    row["node_bytes_per_s"] = physics.node_gbyte_per_s * 1e9
    row["step_gap_ns"] = physics.step_gap_ms * 1e6
    for name in ("latency", "node_latency", "host_call", "flush", "poll"):
        row[f"{name}_ns"] = getattr(physics, f"{name}_us") * 1000
    for name in ("jitter", "moe_spread", "overlap_compute", "overlap_copy", "ahead", "slices", "warmup_steps",
                 "warmup_factor", "gpu_dies_with_process", "credits_queue"):  # fmt: skip
        row[name] = getattr(physics, name)
    row["slices_every"], row["slices_max"] = physics.slices_every, SLICES_MAX
    for name, counted in (("n_nics", "nic_rates"), *((f"n_{table}", table) for table in tables)):
        if name in (SETTINGS.names or ()):
            row[name] = len(tables[counted])
    return made
