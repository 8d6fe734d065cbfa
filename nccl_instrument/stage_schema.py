"""The ordered stages of a training step: which, in which order, and how they are told from every other list.

Vectors of different ranks may be compared only when their schemas are equal, so a schema has a hash over its version and
its stages in order. Sub-stages may replace a broad stage, and gradient accumulation repeats the stages of a micro-step
with an index; both are schemas of their own (StageFrontier Appendix A).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import cached_property
from typing import Final

DATA: Final = "data.next_wait"
FORWARD: Final = "model.fwd_loss_cpu_wall"
BACKWARD: Final = "model.backward_cpu_wall"
CALLBACKS: Final = "callbacks.cpu_wall"
OPTIMIZER: Final = "optim.step_cpu_wall"
OTHER: Final = "step.other_cpu_wall"
STAGES_MAX: Final = 64
NAME_CHARS_MAX: Final = 48
VERSION: Final = 1


class BadSchema(ValueError):
    """A list of stages that cannot be recorded; the message says why."""


@dataclass(frozen=True)
class Schema:
    """stages: in order, the residual OTHER last; it is added when it is not there. micro_steps: of a step."""

    stages: tuple[str, ...]
    micro_steps: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", (*(one for one in self.stages if one != OTHER), OTHER))
        if len(set(self.stages)) != len(self.stages):
            raise BadSchema("a stage is listed twice")
        if not 1 < len(self.stages) <= STAGES_MAX:
            raise BadSchema(f"1 to {STAGES_MAX - 1} stages, besides {OTHER}")
        if any(not one or len(one) > NAME_CHARS_MAX or not one.isascii() or "\n" in one for one in self.stages):
            raise BadSchema(f"a stage's name has 1 to {NAME_CHARS_MAX} plain characters")
        if self.micro_steps < 1:
            raise BadSchema("a step has at least one micro-step")

    @cached_property
    def order_hash(self) -> int:
        """64 bits, the same wherever the same stages come in the same order."""
        said = "\n".join((str(VERSION), str(self.micro_steps), *self.stages))
        return int.from_bytes(hashlib.blake2b(said.encode(), digest_size=8).digest(), "little")

    def refined(self, stage: str, *parts: str) -> Schema:
        """A schema in which `parts`, in order, replace the broad `stage`."""
        if stage not in self.stages or stage == OTHER or not parts:
            raise BadSchema(f"there is no stage {stage} to be replaced")
        at = self.stages.index(stage)
        return Schema((*self.stages[:at], *parts, *self.stages[at + 1 :]), self.micro_steps)

    def accumulated(self, micro_steps: int, repeated: tuple[str, ...] = (DATA, FORWARD, BACKWARD)) -> Schema:
        """A schema in which the `repeated` stages come once per micro-step, as `stage[0]`, `stage[1]` and so on."""
        if any(one not in self.stages for one in repeated):
            raise BadSchema("only stages of the schema can be repeated")
        indexed = [f"{one}[{micro}]" for micro in range(micro_steps) for one in repeated]
        return Schema((*indexed, *(one for one in self.stages if one not in repeated)), micro_steps)


DEFAULT: Final = Schema((DATA, FORWARD, BACKWARD, CALLBACKS, OPTIMIZER))
