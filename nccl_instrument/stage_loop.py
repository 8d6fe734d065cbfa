"""A training loop as its loader, its model, `backward` and its optimizer tell of it, as stages of a step (stage_hooks.py).

Who is told is a list of this process: `Tensor.backward` and `GradScaler.step` are wrapped once, and call whoever watches. torch
is looked up among what the program has already imported. Nothing here raises into the program.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any, Final

from nccl_instrument.stage_schema import (
    BACKWARD,
    CALLBACKS,
    DATA,
    FORWARD,
    FORWARD_BACKWARD,
    OPTIMIZER,
    PREPARE,
    Schema,
)
from nccl_instrument.stages import Stages

LOOP: Final = Schema((DATA, PREPARE, FORWARD, BACKWARD, OPTIMIZER, CALLBACKS))
PIPELINE: Final = Schema((DATA, FORWARD_BACKWARD, OPTIMIZER, CALLBACKS))
LOOPS_MAX: Final = 16
"""Models that are watched at once: each is told of every `backward`."""
_WATCHING: Final[list[Loop]] = []  # whoever is told of every `backward`
_SCALED: Final[list[tuple[Loop, Any]]] = []  # loops, and the optimizers that a gradient scaler may leave out


class Loop:
    """What the loader, the model and the optimizer say, as stages of a step."""

    def __init__(self, stages: Stages) -> None:
        self.stages = stages
        self._has_stepped, self._is_first, self._is_in_backward, self._is_in_optimizer = False, True, False, False
        self._handles: list[Any] = []
        self._watched: tuple[Any, ...] = ()

    @property
    def is_after_optimizer(self) -> bool:
        return self._has_stepped

    def asked(self) -> None:
        """The next batch is asked for: a step whose optimizer has stepped is over."""
        if self.stages.is_in_step and self._has_stepped:
            self.stages.end()
        else:
            self.stages.switch(None)
        self._has_stepped = False

    def fetched(self, waited_ns: int) -> None:
        """It is there. Of micro-steps the waits belong to the step that goes on. A loader that fetches one batch ahead waits
        for two at first, and from then on for the batch of the step after the one that begins."""
        if not self.stages.ahead:
            self.stages.charge(DATA, waited_ns)
        else:
            self.stages.fetched(DATA, waited_ns)
            if self._is_first:
                self.stages.fetched(DATA, 0)
        self._is_first = False
        if not self.stages.is_in_step:
            self.stages.begin()
        if PREPARE in self.stages.schema.stages:
            self.entered(PREPARE)

    def entered(self, stage: str) -> None:
        """The program is in this stage now. After the optimizer's step everything is callbacks, an evaluation too; inside
        backward, where checkpointed parts run their forward and backward again, everything is backward."""
        if not self._has_stepped and not self._is_in_backward:
            self.stages.switch(stage)

    def begins_backward(self) -> bool:
        """Whether this is the outermost: what a checkpoint in it recomputes calls `backward` again, on any thread."""
        if self._is_in_backward:
            return False
        self.entered(BACKWARD)
        self._is_in_backward = True
        return True

    def ends_backward(self) -> None:
        """Back to where it was called from: an optimizer's closure is in the optimizer's step."""
        self._is_in_backward = False
        if not self._has_stepped:
            self.stages.switch(OPTIMIZER if self._is_in_optimizer else None)

    def failed(self) -> None:
        """An exception left the step: what was recorded of it is no step, also where the program goes on with the next batch."""
        self._is_in_backward = self._is_in_optimizer = False
        if self.stages.is_in_step and not self._has_stepped:
            self.stages.end(is_broken=True)

    def stepped(self) -> None:
        """The optimizer has stepped."""
        self._is_in_optimizer = False
        if self.stages.is_in_step:
            self._has_stepped = True
            self.stages.switch(CALLBACKS)

    def over(self) -> None:
        """No further batch."""
        if self.stages.is_in_step:
            self.stages.end(is_broken=not self._has_stepped)
        self._has_stepped = False

    def attach(self, model: Any, optimizer: Any) -> None:
        """Be told by the model, by `backward` and by the optimizer. Whoever watched one of them before is told no more."""
        for other in loops_of(model, optimizer):
            other.detach()
        while len(_WATCHING) >= LOOPS_MAX:
            _WATCHING[0].detach()
        self._watched = weakref.ref(model), weakref.ref(optimizer)
        self._handles += [
            model.register_forward_pre_hook(lambda module, _: self.entered(FORWARD) if module.training else None),
            model.register_forward_hook(self._after_forward, always_call=True),
            optimizer.register_step_pre_hook(lambda _, args, named: self._begin_optimizer(*args, *named.values())),
            optimizer.register_step_post_hook(lambda *_: self.stepped()),
        ]
        self.stages.synchronous = self.stages.synchronous or is_one_group(model)
        _hear_of_backward(self)
        hear_of_scaler(self, optimizer)

    def is_of(self, *objects: Any) -> bool:
        """Whether it watches one of these, or something that no longer lives."""
        held = [one() for one in self._watched]
        return any(one is None or any(one is other for other in objects) for one in held)

    def _begin_optimizer(self, *given: Any) -> None:
        """With a closure forward and backward come inside the optimizer's step, and are told first."""
        self._is_in_optimizer = True
        if not any(callable(one) for one in given):
            self.entered(OPTIMIZER)

    def _after_forward(self, _: Any, __: Any, made: Any) -> None:
        if made is None and sys.exc_info()[0] is not None:
            self.failed()

    def detach(self) -> None:
        """Be told no more."""
        self.over()
        if self in _WATCHING:
            _WATCHING.remove(self)
        _SCALED[:] = [pair for pair in _SCALED if pair[0] is not self]
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


def loops_of(*objects: Any) -> list[Loop]:
    """Whoever watches one of these, or something that no longer lives."""
    return [one for one in _WATCHING if one.is_of(*objects)]


def is_one_group(model: Any) -> bool:
    """Whether all ranks reduce this model's gradients together in every backward: DDP or FSDP around it, over everybody."""
    try:
        torch: Any = sys.modules["torch"]
        group = getattr(model, "process_group", None)  # DDP's and FSDP's; a group of fewer ranks is none of everybody
        if group is None and "FSDP" in type(model).__name__:
            state = model._get_fsdp_state()
            group = state._fsdp_param_group.mesh_info.shard_process_group if state._fsdp_param_group else None
        return group is not None and torch.distributed.get_world_size(group) == torch.distributed.get_world_size() > 1
    except Exception:
        return False


def _hear_of_backward(loop: Loop) -> None:
    """`Tensor.backward` calls torch.autograd.backward by name: one wrapper there hears of all."""
    autograd: Any = sys.modules["torch"].autograd
    _WATCHING.append(loop)
    if getattr(autograd.backward, "is_watched", False):
        return
    plain = autograd.backward

    @functools.wraps(plain)
    def backward(*args: Any, **of: Any) -> Any:
        loops = [one for one in _WATCHING if one.begins_backward()]
        try:
            done = plain(*args, **of)
        except BaseException:
            for one in loops:
                one.failed()
            raise
        for one in loops:
            one.ends_backward()
        return done

    backward.is_watched = True  # type: ignore[attr-defined]
    autograd.backward = backward


def hear_of_scaler(loop: Loop, optimizer: Any) -> None:
    """`GradScaler.step` leaves the optimizer's step out where a gradient is infinite, and then no hook of the optimizer is
    called: the training step is over all the same, or the next one would be taken for a part of it."""
    scaler: Any = getattr(sys.modules["torch"].amp, "GradScaler", None)
    _SCALED.append((loop, optimizer))
    if scaler is None or getattr(scaler.step, "is_watched", False):
        return
    plain = scaler.step

    @functools.wraps(plain)
    def step(self: Any, stepping: Any, *args: Any, **of: Any) -> Any:
        loops = [one for one, its in _SCALED if its is stepping]
        for one in loops:
            one.entered(OPTIMIZER)
        done = plain(self, stepping, *args, **of)
        for one in loops:
            if not one.is_after_optimizer:
                one.stepped()
        return done

    step.is_watched = True  # type: ignore[attr-defined]
    scaler.step = step
