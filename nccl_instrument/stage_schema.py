"""The ordered stages of a training step: which, in which order, and how they are told from every other list.

Vectors of different ranks may be compared only when their stages are the same in the same order, so a schema has a hash
over its version and its stages. Sub-stages may replace a broad stage, gradient accumulation repeats the stages of a
micro-step with an index, and side channels are measured beside the stages without being one (StageFrontier Appendix A).
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

DATA: Final = "data.next_wait"
FORWARD: Final = "model.fwd_loss_cpu_wall"
BACKWARD: Final = "model.backward_cpu_wall"
CALLBACKS: Final = "callbacks.cpu_wall"
OPTIMIZER: Final = "optim.step_cpu_wall"
OTHER: Final = "step.other_cpu_wall"
PREPARE: Final = "data.prepare"
"""What the program's own thread does with a batch between fetching it and its forward: copying it, tokenising, augmenting."""
FORWARD_BACKWARD: Final = "model.fwd_bwd_cpu_wall"
"""Both, where a pipeline runs those of its microbatches in turn."""
FORWARD_EVENTS: Final = "model.fwd_loss_cuda_event_ms"
"""The paper's name; what travels is nanoseconds, as everything does."""
STAGES_MAX: Final = 64
SIDES_MAX: Final = 16
NAME_CHARS_MAX: Final = 48
MICRO_STEPS_MAX: Final = 4096
VERSION: Final = 1
ORDERED, SIDE = 0, 1  # codes of tables.STAGE_KINDS, which would bring numpy into the training program
_MICRO: Final = re.compile(r"\[(\d+)\]$")


class BadSchema(ValueError):
    """A list of stages that cannot be recorded; the message says why."""


@dataclass(frozen=True, slots=True)
class Declared:
    """One stage or side channel. kind: ORDERED or SIDE. position: among its kind. micro: -1 when it comes once a step."""

    kind: int
    position: int
    micro: int
    name: str
    parent: str


@dataclass(frozen=True)
class Schema:
    """stages: in order, the residual OTHER last; it is added when it is not there. micro_steps: of a step.

    parents: (sub-stage or side channel, the broad stage it is a part of). sides: side channels, measured inside a stage.
    """

    stages: tuple[str, ...]
    micro_steps: int = 1
    parents: tuple[tuple[str, str], ...] = ()
    sides: tuple[str, ...] = ()
    version: int = field(default=VERSION)

    def __post_init__(self) -> None:
        object.__setattr__(self, "stages", (*(one for one in self.stages if one != OTHER), OTHER))
        names = (*self.stages, *self.sides)
        if len(set(names)) != len(names):
            raise BadSchema("a stage is listed twice")
        if not 1 < len(self.stages) <= STAGES_MAX:
            raise BadSchema(f"1 to {STAGES_MAX - 1} stages, besides {OTHER}")
        if len(self.sides) > SIDES_MAX:
            raise BadSchema(f"at most {SIDES_MAX} side channels")
        if any(not _is_name(one) for one in (*names, *(parent for _, parent in self.parents))):
            raise BadSchema(f"a stage's name has 1 to {NAME_CHARS_MAX} plain characters")
        if any(_micro_of(one) >= MICRO_STEPS_MAX for one in names):
            raise BadSchema(f"the number in a stage's name is below {MICRO_STEPS_MAX}")
        if not 1 <= self.micro_steps <= MICRO_STEPS_MAX:
            raise BadSchema(f"a step has 1 to {MICRO_STEPS_MAX} micro-steps")

    @cached_property
    def order_hash(self) -> int:
        """64 bits, the same wherever the same stages come in the same order."""
        return _hash(str(self.version), str(self.micro_steps), *self.stages)

    @cached_property
    def schema_id(self) -> int:
        """64 bits, the same wherever all that `declared` says is."""
        said = (f"{one.kind}.{one.position}.{one.name}.{one.parent}" for one in self.declared())
        return _hash(str(self.version), str(self.micro_steps), *said)

    @cached_property
    def once_a_micro_step(self) -> tuple[int, ...]:
        """Stages that come once in each micro-step, by position: how often they were entered is how many there were."""
        for broad in (BACKWARD, FORWARD):
            found = tuple(at for at, name in enumerate(self.stages) if _MICRO.sub("", name) == broad)
            if found:
                return found
        return tuple(range(len(self.stages)))

    def declared(self) -> tuple[Declared, ...]:
        """Every stage in order, and every side channel."""
        parents = dict(self.parents)
        kinds = ((ORDERED, self.stages), (SIDE, self.sides))
        return tuple(
            Declared(kind, at, _micro_of(name), name, parents.get(name, ""))
            for kind, names in kinds
            for at, name in enumerate(names)
        )

    def refined(self, stage: str, *parts: str) -> Schema:
        """A schema in which `parts`, in order, replace the broad `stage`."""
        if stage not in self.stages or stage == OTHER or not parts:
            raise BadSchema(f"there is no stage {stage} to be replaced")
        at = self.stages.index(stage)
        parents = (*self.parents, *((part, stage) for part in parts if part != stage))
        return replace(self, stages=(*self.stages[:at], *parts, *self.stages[at + 1 :]), parents=parents)

    def accumulated(self, micro_steps: int, repeated: tuple[str, ...] = (DATA, FORWARD, BACKWARD)) -> Schema:
        """A schema in which the `repeated` stages come once per micro-step, as `stage[0]`, `stage[1]` and so on."""
        if any(one not in self.stages for one in repeated):
            raise BadSchema("only stages of the schema can be repeated")
        indexed = [(f"{one}[{micro}]", one) for micro in range(micro_steps) for one in repeated]
        stages = (*(name for name, _ in indexed), *(one for one in self.stages if one not in repeated))
        return replace(self, stages=stages, micro_steps=micro_steps, parents=(*self.parents, *indexed))

    def folded(self, micro_steps: int) -> Schema:
        """This schema for steps of several micro-steps whose stages are added up: which of them waited is not known."""
        return replace(self, micro_steps=micro_steps)

    def with_side(self, name: str, stage: str = "") -> Schema:
        """A schema that also has the side channel `name`, measured inside `stage`."""
        if name in self.sides:
            return self
        parents = (*self.parents, (name, stage)) if stage else self.parents
        return replace(self, sides=(*self.sides, name), parents=parents)


def _is_name(name: str) -> bool:
    return 0 < len(name) <= NAME_CHARS_MAX and name.isascii() and name.isprintable()


def _micro_of(name: str) -> int:
    found = _MICRO.search(name)
    return int(found[1]) if found else -1


def _hash(*said: str) -> int:
    return int.from_bytes(hashlib.blake2b("\n".join(said).encode(), digest_size=8).digest(), "little")


DEFAULT: Final = Schema((DATA, FORWARD, BACKWARD, CALLBACKS, OPTIMIZER))
