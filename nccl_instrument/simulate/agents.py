"""The agents of all nodes: ten sweeps and one batch a second, each on its own grid, and what becomes of the batches.

Nodes fall into at most ten phases that sweep at different moments, so that nothing in the trace is in step with the
job. A dead agent sends nothing and comes back under another boot id; one that cannot reach the server keeps its batches
and sends them when it can; a batch that is lost is counted by the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.simulate.effects import Absence
from nccl_instrument.simulate.engine import Engine
from nccl_instrument.simulate.rows import (
    Roster,
    flow_rows,
    joined,
    nic_rows,
    op_rows,
    process_rows,
    progress_rows,
)
from nccl_instrument.simulate.stages import recorder_rows, schema_rows, stage_rows
from nccl_instrument.simulate.traffic import NodesTraffic
from nccl_instrument.stage_schema import Schema
from nccl_instrument.tables import LOSSES, empty_rows
from nccl_instrument.wire import TraceBatch, encode_batch

SWEEP_NS: Final = 10**8
SWEEPS_PER_CUT: Final = 10
PHASES_MAX: Final = 10
COMM_PERIOD_CUTS: Final = 30
DRAIN_PER_S: Final = 10  # batches a second once the server can be reached again
_KEPT: Final = ("op", "stage", "traffic")  # what stays in shared memory until an agent reads it
SENDING_NS: Final = 20_000_000
Rows = npt.NDArray[np.void]


@dataclass(frozen=True)
class Sent:
    """A batch on its way: when it reaches the server (unix ns, true time), its node, its bytes, and when it was cut."""

    arrives_ns: int
    node: int
    encoded: bytes
    cut_ns: int


@dataclass
class _Phase:
    """Nodes that sweep at the same moments."""

    number: int
    nodes: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int32]
    sweeps: list[tuple[int, Rows]] = field(default_factory=list)
    networked: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True)
class Seen:
    """What the agents of a phase have read for their next batches, as the engine keeps it."""

    now_ns: int
    phase: _Phase
    sweeps: list[tuple[int, Rows]]
    finished: Rows
    steps: Rows
    live_ops: Rows
    progress: Rows
    processes: Rows
    nic_counted: npt.NDArray[np.uint64]
    nic_down: npt.NDArray[np.bool_]
    traffic: tuple[Rows, npt.NDArray[np.int64]] | None


class Agents:
    """Reads the engine as agents read segments. `sweep` is called for every phase in turn, in the order of time."""

    def __init__(
        self,
        job: str,
        roster: Roster,
        seed: int,
        absences: list[Absence],
        missing: float,
        late_s: float,
        schema: Schema | None = None,
        traffic: NodesTraffic | None = None,
    ) -> None:
        """schema: of the stages the training loops record; None: they record none. traffic: None where it is not measured."""
        self.schema, self.traffic = schema, traffic
        self.job, self.roster, self.seed = job, roster, seed
        self.missing, self.late_s, self.absences = missing, late_s, absences
        layout = roster.layout
        n_phases = min(PHASES_MAX, layout.n_nodes)
        self.phases = [self._phase(number, n_phases) for number in range(n_phases)]
        self._phase_of = layout.node_of % n_phases
        self._numbers = np.zeros(layout.n_nodes, np.int64)
        self._boots = np.zeros(layout.n_nodes, np.int64)
        self._boot_ids: dict[tuple[int, int], bytes] = {}
        self._lost = np.zeros(layout.n_nodes, np.int64)
        self._backlog = np.zeros(layout.n_nodes, np.int64)
        self._finished: list[list[Rows]] = [[] for _ in self.phases]  # by phase
        self._steps: list[list[Rows]] = [[] for _ in self.phases]
        self._unread: dict[int, list[dict[str, Rows]]] = {}  # completions stay in the segment until an agent reads them
        self._random = np.random.default_rng([seed, 99])

    def _phase(self, number: int, n_phases: int) -> _Phase:
        layout = self.roster.layout
        nodes = np.arange(number, layout.n_nodes, n_phases)
        ranks = nodes[:, None] * layout.ranks_per_node + np.arange(layout.ranks_per_node)
        return _Phase(number, nodes, np.ascontiguousarray(ranks.ravel(), np.int32))

    def times(self, until_ns: int) -> Iterator[tuple[int, int, bool]]:
        """(time, phase, whether the phase cuts its batches then) of every sweep until `until_ns`, in order."""
        n = len(self.phases)
        for sweep in range(until_ns // SWEEP_NS):
            for phase in range(n):
                at_ns = sweep * SWEEP_NS + (phase + 1) * SWEEP_NS // n
                yield at_ns, phase, (sweep + 1) % SWEEPS_PER_CUT == 0

    def sweep(self, engine: Engine, now_ns: int, phase: int, is_cut: bool) -> Seen | None:
        """One phase looks at its flows; at a cut, everything its nodes put into a batch."""
        here = self.phases[phase]
        flows = engine.flows(here.ranks)
        processes = engine.processes(here.ranks)
        if (
            not is_cut and processes["is_killed"].any()
        ):  # what a dead process left does not change: once a second will do
            flows = flows[~np.isin(flows["rank"], processes["rank"][processes["is_killed"] != 0])]
        here.sweeps.append((now_ns, flows))
        if self.traffic is not None:
            self.traffic.sweep(here.ranks)
        if not is_cut:
            return None
        sweeps, here.sweeps = here.sweeps, []
        live_ops, progress = engine.live_ops(here.ranks), engine.progress(here.ranks)
        finished = self._take(self._finished, engine.finished(), here)
        moved = None if self.traffic is None else self.traffic.rows(finished, live_ops, here.ranks, now_ns)
        return Seen(
            now_ns, here, sweeps, finished, self._take(self._steps, engine.steps(), here), live_ops, progress,
            processes, *engine.nics(), moved,
        )  # fmt: skip

    def batches_of(self, seen: Seen) -> list[Sent]:
        """The batches of a cut; does not touch the engine, which may go on meanwhile."""
        tables, nodes = self._tables(seen), seen.phase.nodes
        starts = {name: _starts(of_node, nodes) for name, (_, of_node) in tables.items()}
        sent = []
        for at, node in enumerate(nodes.tolist()):
            mine = {name: rows[slice(*starts[name][at : at + 2])] for name, (rows, _) in tables.items()}
            batch = self._batch(node, seen.now_ns, mine)
            if batch is not None:
                sent.append(batch)
        return sent

    def _tables(self, seen: Seen) -> dict[str, tuple[Rows, npt.NDArray[np.int64]]]:
        """Table → rows of all nodes of the phase and the node of each, node by node."""
        roster, now_ns, here = self.roster, seen.now_ns, seen.phase
        found = {
            "op": op_rows(roster, "op", seen.finished),
            "live_op": op_rows(roster, "live_op", seen.live_ops, now_ns),
            "flow": flow_rows(roster, seen.sweeps),
            "progress": progress_rows(roster, seen.progress, now_ns),
            "process": process_rows(roster, seen.processes, now_ns),
        }
        comms = self._comm_rows(now_ns, here, seen.progress)
        found["comm"] = (comms, comms["global_rank"].astype(np.int64))
        if self.schema is not None:
            found["stage"] = stage_rows(roster, seen.steps, self.schema)
            found["recorder"] = recorder_rows(roster, seen.processes, self.schema, now_ns)
        if seen.traffic is not None:
            found["traffic"] = seen.traffic
        tables = {name: (rows, roster.node_of[ranks]) for name, (rows, ranks) in found.items()}
        if self.schema is not None:
            declared = schema_rows(roster, here.nodes, self.schema, now_ns)
            tables["schema"] = declared, np.repeat(here.nodes, len(declared) // len(here.nodes))
        nics = nic_rows(roster, here.nodes, seen.nic_counted, seen.nic_down, now_ns)
        return tables | {"nic": (nics, np.repeat(here.nodes, roster.layout.n_nics_per_node))}

    def _take(self, waiting: list[list[Rows]], new: Rows, here: _Phase) -> Rows:
        """The engine hands out what ended on all ranks: what belongs to other phases waits for their cuts."""
        phase_of = self._phase_of[new["rank"]].astype(np.uint8)
        new = new.take(np.argsort(phase_of, kind="stable"))
        ends = np.cumsum(np.bincount(phase_of, minlength=len(self.phases)))
        for phase, rows in enumerate(np.split(new, ends[:-1])):
            waiting[phase].append(rows)
        mine, waiting[here.number] = waiting[here.number], []
        return joined(mine)

    def _comm_rows(self, now_ns: int, here: _Phase, progress: Rows) -> Rows:
        """All communicators at the first cut and every 30 s; also when a network was first seen on one."""
        now_networked = progress["is_networked"].astype(np.int64)
        is_due = (now_ns // (SWEEP_NS * SWEEPS_PER_CUT)) % COMM_PERIOD_CUTS == 0
        if not is_due and np.array_equal(now_networked, here.networked):
            return empty_rows("comm")
        here.networked = now_networked
        mask = np.zeros(self.roster.n_members, bool)
        mask[self.roster.members_at(progress["rank"], progress["group"])] = now_networked != 0
        return self.roster.comm_rows(here.ranks, mask)

    def _batch(self, node: int, now_ns: int, tables: dict[str, Rows]) -> Sent | None:
        """The node's batch, None when its agent is dead or the batch gets lost."""
        absence = next((a for a in self.absences if a.node == node and a.start_ns <= now_ns < a.end_ns), None)
        if absence is not None and absence.is_silent:
            self._boots[node] += self._numbers[node] > 0
            self._numbers[node] = 0
            self._unread.setdefault(node, []).append({name: tables[name] for name in _KEPT if name in tables})
            return None
        if unread := self._unread.pop(node, []):
            tables |= {
                name: np.concatenate([*(one[name] for one in unread), tables[name]]) for name in _KEPT if name in tables
            }
        if self.missing and self._random.random() < self.missing:
            self._lost[node] += 1
            self._numbers[node] += 1
            return None
        clocks = self.roster.clocks
        mono_ns = int(clocks.mono_ns(np.array([node]), np.array([now_ns]))[0])
        tables["loss"] = self._loss_rows(node)
        batch = TraceBatch(
            self.job, f"node{node}", self._boot_id(node), int(self._numbers[node]), clocks.wall_ns(node, now_ns),
            mono_ns, tables,
        )  # fmt: skip
        self._numbers[node] += 1
        arrives_ns = self._arrives_ns(node, now_ns, absence)
        return Sent(arrives_ns, node, encode_batch(batch), clocks.origin_ns + now_ns)

    def _arrives_ns(self, node: int, now_ns: int, absence: Absence | None) -> int:
        late_ns = SENDING_NS + int(self._random.random() * self.late_s * 1e9)
        if absence is not None:  # oldest first, as fast as an agent drains its spool
            late_ns += absence.end_ns - now_ns + int(self._backlog[node] * 1e9) // DRAIN_PER_S
            self._backlog[node] += 1
        else:
            self._backlog[node] = 0
        return self.roster.clocks.origin_ns + now_ns + late_ns

    def _loss_rows(self, node: int) -> Rows:
        n_lost, self._lost[node] = int(self._lost[node]), 0
        rows = empty_rows("loss", 1 if n_lost else 0)
        if n_lost:
            rows["kind"], rows["count"] = LOSSES.index("spool_batches"), n_lost
        return rows

    def _boot_id(self, node: int) -> bytes:
        key = node, int(self._boots[node])
        if key not in self._boot_ids:
            self._boot_ids[key] = np.random.default_rng([self.seed, *key]).bytes(16)
        return self._boot_ids[key]


def _starts(of_node: npt.NDArray[np.int64], nodes: npt.NDArray[np.int64]) -> list[int]:
    """Where each node's rows begin, and where the last one's end."""
    return [*np.searchsorted(of_node, nodes).tolist(), len(of_node)]
