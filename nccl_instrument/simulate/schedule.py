"""A training step as each pipeline stage enqueues it, as the engine's tasks.

`gpipe` is the testbed's step (all forwards, then all backwards), `1f1b` Megatron's: warm-up forwards, then one forward
and one backward in turn with fused exchanges, then the rest. Gradients are reduced in buckets under the last backward;
then a world AllReduce of the norm, the optimizer, and the AllGather of the parameters. With experts, each layer is
attention, dispatch, expert compute, combine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.simulate.engine import CLASS, N_STREAMS, SPEC, TASK
from nccl_instrument.simulate.layout import KINDS, Layout
from nccl_instrument.simulate.physics import KIB, MS, Physics
from nccl_instrument.tables import FUNCS

COMPUTE, EXPERT, WAIT, KERNEL = range(4)  # the engine's enum task_kind
STREAM_COMPUTE, STREAM_DP, STREAM_PP, STREAM_EP = range(N_STREAMS)
BEFORE, AFTER = 0, 1
_, FORWARD_STAGE, BACKWARD_STAGE, _, OPTIMIZER_STAGE = range(5)  # of the recorder's default schema
SHAPES: Final = ("full", "neighbours", "all_to_one", "one_to_all")
"""Who sends to whom in a group of sends and receives, in the order of the engine's enum."""
EXPERT_SHARE: Final = 0.5  # of a layer's compute, when there are experts
Rows = npt.NDArray[np.void]


@dataclass
class Schedule:
    """The engine's tables of what a step consists of; one class per pipeline stage."""

    classes: Rows
    tasks: Rows
    stream_tasks: npt.NDArray[np.int32]
    specs: Rows


def build_schedule(layout: Layout, physics: Physics) -> Schedule:
    """The step of every stage."""
    steps = [_Step(layout, physics, stage) for stage in range(layout.pp)]
    classes = np.zeros(layout.pp, CLASS)
    tasks: list[dict[str, int]] = []
    specs: list[dict[str, int]] = []
    order: list[int] = []
    for number, step in enumerate(steps):
        step.fill()
        first = len(tasks)
        classes[number]["swapped"] = [first + at if at >= 0 else -1 for at in step.swapped()]
        classes[number]["first_task"], classes[number]["n_tasks"] = first, len(step.tasks)
        for stream in range(N_STREAMS):
            classes[number]["first_in_stream"][stream] = len(order)
            order += [first + at for at, task in enumerate(step.tasks) if task["stream"] == stream]
            mine = [task for task in step.tasks if task["stream"] == stream]
            classes[number]["before_update"][stream] = sum(task["stage"] != OPTIMIZER_STAGE for task in mine)
        tasks += [{**task, "first_op": task["first_op"] + len(specs)} for task in step.tasks]
        specs += step.specs
    return Schedule(classes, _table(TASK, tasks), np.array(order, np.int32), _table(SPEC, specs))


def _table(dtype: np.dtype[np.void], found: list[dict[str, int]]) -> Rows:
    return np.array([tuple(row[name] for name in dtype.names or ()) for row in found], dtype)


@dataclass
class _Step:
    layout: Layout
    physics: Physics
    stage: int
    tasks: list[dict[str, int]] = field(default_factory=list)
    part: int = FORWARD_STAGE
    specs: list[dict[str, int]] = field(default_factory=list)
    queued: list[int] = field(default_factory=lambda: [0] * N_STREAMS)

    def fill(self) -> None:
        """Enqueue the whole step."""
        if self.physics.schedule in SHAPES:
            self._collective_alone()
            return
        if self.physics.schedule == "gpipe" or self.layout.pp == 1:
            self._gpipe()
        else:
            self._one_forward_one_backward()
        self._update()

    def swapped(self) -> tuple[int, int]:
        """The last tensor-parallel op and the world's: a rank that exchanges them deadlocks. (-1, -1) without them."""
        last = dict.fromkeys(("tp", "world"), -1)
        for at, task in enumerate(self.tasks):
            if task["kind"] == KERNEL and KINDS[self.specs[task["first_op"]]["slot"]] in last:
                last[KINDS[self.specs[task["first_op"]]["slot"]]] = at
        return last["tp"], last["world"]

    # ---- the two schedules ----

    def _gpipe(self) -> None:
        n = self.physics.n_microbatches
        for _ in range(n):
            self._receive(BEFORE)
            self._forward()
            self._send(AFTER)
        for i in range(n):
            self._receive(AFTER)
            self._backward(i == n - 1)
            self._send(BEFORE)

    def _one_forward_one_backward(self) -> None:
        n = self.physics.n_microbatches
        n_warm = min(self.layout.pp - self.stage - 1, n)
        for _ in range(n_warm):
            self._receive(BEFORE)
            self._forward()
            self._send(AFTER)
        if n_warm < n:
            self._receive(BEFORE)
        for i in range(n - n_warm):
            is_last = i == n - n_warm - 1
            self._forward()
            self._exchange(AFTER)
            self._backward(is_last and n_warm == 0)
            if is_last:
                self._send(BEFORE)
            else:
                self._exchange(BEFORE)
        for i in range(n_warm):
            self._receive(AFTER)
            self._backward(i == n_warm - 1)
            self._send(BEFORE)

    def _collective_alone(self) -> None:
        """No training: one custom collective after the other, as a benchmark of the network runs them."""
        spec = self._spec("ep", "AlltoAll", self.physics.ep_kib, shape=SHAPES.index(self.physics.schedule))
        self._kernel(STREAM_EP, [spec])

    # ---- their parts ----

    def _forward(self) -> None:
        self.part = FORWARD_STAGE
        for layer in range(self.physics.n_layers):
            self._layer(self.physics.forward_ms / self.physics.n_layers, layer)

    def _backward(self, is_last: bool) -> None:
        self.part = BACKWARD_STAGE
        n_parts = self.physics.n_buckets if is_last else 1
        for bucket in range(n_parts):
            for layer in reversed(range(self.physics.n_layers)):
                self._layer(self.physics.backward_ms / self.physics.n_layers / n_parts, layer, bucket == n_parts - 1)
            if is_last:
                self._reduce_gradients(n_parts)

    def _layer(self, ms: float, layer: int, is_last_part: bool = True) -> None:
        has_experts = "ep" in self.layout.groups
        self._compute(ms * (1 - EXPERT_SHARE) if has_experts else ms)
        if has_experts:
            dispatch = self._all_to_all(layer, is_combine=False)
            self._expert(ms * EXPERT_SHARE, dispatch)
            self._all_to_all(layer, is_combine=True)
        # The testbed makes one TP AllReduce per pass, after the last bucket.
        if "tp" in self.layout.groups and is_last_part:
            self._collective("tp", "AllReduce", self.physics.tp_kib, STREAM_COMPUTE)

    def _reduce_gradients(self, n_parts: int) -> None:
        func = "ReduceScatter" if self.physics.dp_reduce == "sharded" else "AllReduce"
        for kind in ("dp", "edp"):
            if kind in self.layout.groups:
                self._wait(STREAM_DP, STREAM_COMPUTE)
                self._collective(kind, func, self.physics.dp_kib // (4 if kind == "edp" else 1), STREAM_DP)

    def _update(self) -> None:
        self.part = OPTIMIZER_STAGE
        self._wait(STREAM_COMPUTE, STREAM_DP)
        if "world" in self.layout.groups:
            self._collective("world", "AllReduce", self.physics.world_kib, STREAM_COMPUTE)
        self._compute(self.physics.optimizer_ms)
        if "dp" in self.layout.groups and self.physics.dp_reduce == "sharded":
            self._wait(STREAM_DP, STREAM_COMPUTE)
            self._collective("dp", "AllGather", self.physics.dp_kib, STREAM_DP)

    def _has(self, neighbour: int) -> bool:
        return self.stage > 0 if neighbour == BEFORE else self.stage + 1 < self.layout.pp

    def _send(self, neighbour: int) -> None:
        if self._has(neighbour):
            self._wait(STREAM_PP, STREAM_COMPUTE)
            self._kernel(STREAM_PP, [self._pair("Send", neighbour)])

    def _receive(self, neighbour: int) -> None:
        self.part = FORWARD_STAGE if neighbour == BEFORE else BACKWARD_STAGE
        if self._has(neighbour):
            self._kernel(STREAM_PP, [self._pair("Recv", neighbour)])
            self._wait(STREAM_COMPUTE, STREAM_PP)

    def _exchange(self, neighbour: int) -> None:
        """Send what was just computed and receive what comes next, in one launch: apart they would deadlock."""
        if self._has(neighbour):
            self._wait(STREAM_PP, STREAM_COMPUTE)
            self._kernel(STREAM_PP, [self._pair("Send", neighbour), self._pair("Recv", neighbour)])
            self._wait(STREAM_COMPUTE, STREAM_PP)

    def _all_to_all(self, layer: int, is_combine: bool) -> int:
        self._wait(STREAM_EP, STREAM_COMPUTE)
        spec = self._spec("ep", "AlltoAll", self.physics.ep_kib, layer=layer, is_combine=int(is_combine))
        self._kernel(STREAM_EP, [spec])
        self._wait(STREAM_COMPUTE, STREAM_EP)
        return len(self.specs) - 1

    def _pair(self, func: str, neighbour: int) -> dict[str, int]:
        return self._spec("pp", func, self.physics.pp_kib, neighbour=neighbour)

    def _collective(self, kind: str, func: str, kib: int, stream: int) -> None:
        self._kernel(stream, [self._spec(kind, func, kib)])

    @staticmethod
    def _spec(kind: str, func: str, kib: int, **more: int) -> dict[str, int]:
        plain = {"neighbour": 0, "layer": 0, "is_combine": 0, "root": 0, "shape": 0}
        return {**plain, **more, "func": FUNCS.index(func), "slot": KINDS.index(kind), "bytes": kib * KIB}

    # ---- the queues ----

    def _add(self, stream: int, **task: Any) -> None:
        plain = {"other": 0, "position": 0, "first_op": 0, "n_ops": 0, "ns": 0}
        self.tasks.append({**plain, **task, "stream": stream, "stage": self.part})
        self.queued[stream] += 1

    def _compute(self, ms: float) -> None:
        self._add(STREAM_COMPUTE, kind=COMPUTE, ns=int(ms * MS))

    def _expert(self, ms: float, dispatch: int) -> None:
        self._add(STREAM_COMPUTE, kind=EXPERT, ns=int(ms * MS), first_op=dispatch)

    def _wait(self, stream: int, other: int) -> None:
        self._add(stream, kind=WAIT, other=other, position=self.queued[other])

    def _kernel(self, stream: int, specs: list[dict[str, int]]) -> None:
        self._add(stream, kind=KERNEL, first_op=len(self.specs), n_ops=len(specs))
        self.specs += specs


def op_kinds(schedule: Schedule, stage: int) -> Iterator[tuple[str, str]]:
    """(communicator kind, function) of the ops of a stage's step, in order."""
    row = schedule.classes[stage]
    for task in schedule.tasks[row["first_task"] : row["first_task"] + row["n_tasks"]]:
        for spec in schedule.specs[task["first_op"] : task["first_op"] + task["n_ops"]]:
            yield KINDS[spec["slot"]], FUNCS[spec["func"]]
