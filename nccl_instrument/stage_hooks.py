"""One line in a training program that has no contexts yet: stages told from where PyTorch itself calls the loader, the model,
`backward` and the optimizer.

    loader = stage_hooks.watch(loader, model, optimizer)     # plain PyTorch, DDP, FSDP; before the loop
    stage_hooks.watch_trainer(trainer)                       # Hugging Face Trainer; before trainer.train()
    trainer = Trainer(callbacks=[stage_hooks.lightning()])   # Lightning
    data, run, optimizer = stage_hooks.watch_megatron(data, forward_backward, optimizer)

A step begins with the first batch that is fetched after an optimizer step and ends when the next is asked for, so micro-steps
of gradient accumulation belong to one. What follows the optimizer in a step (logging, saving, evaluating) is callbacks, which
is why they come after it here. Each returns what it was given where it cannot watch; nothing here raises into the program.
torch is looked up among what the program has already imported.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from nccl_instrument.stage_ring import open_road
from nccl_instrument.stage_schema import (
    BACKWARD,
    CALLBACKS,
    DATA,
    FORWARD,
    FORWARD_BACKWARD,
    OPTIMIZER,
    Schema,
)
from nccl_instrument.stages import Stages

LOOP: Final = Schema((DATA, FORWARD, BACKWARD, OPTIMIZER, CALLBACKS))
PIPELINE: Final = Schema((DATA, FORWARD_BACKWARD, OPTIMIZER, CALLBACKS))
_WATCHING: Final[list[Loop]] = []  # whoever is told of every `backward`
_SCALED: Final[list[tuple[Loop, Any]]] = []  # loops, and the optimizers that a gradient scaler may leave out


class Loop:
    """What the loader, the model and the optimizer say, as stages of a step."""

    def __init__(self, stages: Stages) -> None:
        self.stages = stages
        self._has_stepped, self._is_first = False, True
        self._handles: list[Any] = []

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

    def entered(self, stage: str) -> None:
        """The program is in this stage now. After the optimizer's step everything is callbacks, an evaluation too."""
        if not self._has_stepped:
            self.stages.switch(stage)

    def stepped(self) -> None:
        """The optimizer has stepped."""
        if self.stages.is_in_step:
            self._has_stepped = True
            self.stages.switch(CALLBACKS)

    def over(self) -> None:
        """No further batch."""
        if self.stages.is_in_step:
            self.stages.end(is_broken=not self._has_stepped)
        self._has_stepped = False

    def attach(self, model: Any, optimizer: Any) -> None:
        """Be told by the model, by `backward` and by the optimizer."""
        self._handles += [
            model.register_forward_pre_hook(lambda module, _: self.entered(FORWARD) if module.training else None),
            optimizer.register_step_pre_hook(lambda *_: self.entered(OPTIMIZER)),
            optimizer.register_step_post_hook(lambda *_: self.stepped()),
        ]
        _hear_of_backward(self)
        hear_of_scaler(self, optimizer)

    def detach(self) -> None:
        """Be told no more."""
        self.over()
        if self in _WATCHING:
            _WATCHING.remove(self)
        _SCALED[:] = [pair for pair in _SCALED if pair[0] is not self]
        for handle in self._handles:
            handle.remove()
        self._handles.clear()


class Watched:
    """A loader whose batches are waited for on somebody's account. Everything else is the loader's own."""

    def __init__(self, loader: Any, loop: Loop) -> None:
        self._loader, self._loop = loader, loop

    def __iter__(self) -> Iterator[Any]:
        return _Waiting(iter(self._loader), self._loop)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _Waiting:
    """An iterator of Watched."""

    def __init__(self, batches: Iterator[Any], loop: Loop) -> None:
        self._batches, self._loop, self._clock = batches, loop, loop.stages.clock

    def __iter__(self) -> _Waiting:
        return self

    def __next__(self) -> Any:
        self._loop.asked()
        began_ns = self._clock()
        try:
            batch = next(self._batches)
        except BaseException:
            self._loop.over()
            raise
        self._loop.fetched(self._clock() - began_ns)
        return batch


def watch(loader: Iterable[Any], model: Any, optimizer: Any, *, stages: Stages | None = None) -> Any:
    """The loader to iterate instead. model: the outermost one, DDP or FSDP around it. stages: with a road of its own already;
    else the node's agent is sent what is recorded.
    """
    try:
        loop = Loop(stages or started(LOOP))
        loop.attach(model, optimizer)
        return Watched(loader, loop)
    except Exception:  # not a torch model, or an older torch: the program goes on unwatched
        return loader


def started(schema: Schema = LOOP, **options: Any) -> Stages:
    """A recorder on its way to the node's agent."""
    stages = Stages(schema, **options)
    open_road(stages)
    return stages


def watch_trainer(trainer: Any, *, stages: Stages | None = None) -> Any:
    """The Hugging Face Trainer that was given, watched from the next `train()` on."""
    with contextlib.suppress(Exception):
        base: Any = importlib.import_module("transformers").TrainerCallback
        loop = Loop(stages or started(LOOP))
        make_loader = trainer.get_train_dataloader
        loop.stages.ahead = int(trainer.args.gradient_accumulation_steps == 1)  # Accelerate's loaders fetch one ahead
        trainer.get_train_dataloader = lambda: Watched(make_loader(), loop)

        def begin(_: Any, args: Any, state: Any, control: Any, **of: Any) -> None:
            with contextlib.suppress(Exception):
                loop.stages.restart(int(state.global_step))
                loop.attach(of["model"], _plain(of["optimizer"]))

        def end(_: Any, *args: Any, **of: Any) -> None:
            with contextlib.suppress(Exception):
                loop.detach()

        made = type("StagesCallback", (base,), {"on_train_begin": begin, "on_train_end": end})
        trainer.add_callback(made())
    return trainer


def lightning(*, stages: Stages | None = None) -> Any:
    """A callback for Lightning's Trainer, the last of its list: what those behind it do at a batch's end is taken for a wait.

    Raises ImportError where there is no Lightning, as the program's own import would.
    """
    names = ("lightning.pytorch", "pytorch_lightning")
    name = next((one for one in names if one in sys.modules), names[0])
    base: Any = importlib.import_module(name).Callback
    loop = Loop(stages or started(LOOP))
    since_ns: list[int] = []

    def begin(_: Any, trainer: Any, *__: Any) -> None:
        with contextlib.suppress(Exception):
            for optimizer in trainer.optimizers:
                optimizer.register_step_post_hook(lambda *_: loop.stepped())
                hear_of_scaler(loop, optimizer)
            waiting()

    def waiting() -> None:
        loop.asked()
        since_ns[:] = [loop.stages.clock()]

    def fetched() -> None:
        loop.fetched(loop.stages.clock() - since_ns[0])
        loop.entered(FORWARD)

    hooks = {
        "on_train_batch_start": fetched, "on_before_backward": lambda: loop.entered(BACKWARD),
        "on_after_backward": lambda: loop.entered(OPTIMIZER), "on_train_batch_end": waiting, "on_train_end": loop.over,
    }  # fmt: skip
    made = {name: _safely(do) for name, do in hooks.items()} | {"on_train_start": begin}
    return type("StagesCallback", (base,), made)()


def _safely(do: Callable[[], None]) -> Callable[..., None]:
    def hook(*_: Any, **__: Any) -> None:
        with contextlib.suppress(Exception):
            do()

    return hook


def watch_megatron(
    batches: Any, forward_backward: Callable[..., Any], optimizer: Any, *, stages: Stages | None = None
) -> tuple[Any, Callable[..., Any], Any]:
    """(data iterator, forward-backward function, optimizer) of a loop like Megatron's train_step, watched.

    Its schedules run the microbatches' forward and backward in turn, so they are one stage; batches are waited for inside it,
    and their waits are taken out of it. batches: an iterator, or a list of them, or None, as Megatron passes them.
    """
    try:
        loop = Loop(stages or started(PIPELINE))
        return _waited_for(batches, loop), _in_stage(forward_backward, loop), _stepping(optimizer, loop)
    except Exception:
        return batches, forward_backward, optimizer


def _waited_for(given: Any, loop: Loop) -> Any:
    if given is None:
        return None
    if isinstance(given, list):
        return [_waited_for(one, loop) for one in given]

    def batches() -> Iterator[Any]:
        clock = loop.stages.clock
        while True:
            began_ns, is_inside = clock(), loop.stages.is_in_step
            loop.stages.switch(None)
            try:
                batch = next(given)
            except StopIteration:
                return
            finally:
                if is_inside:
                    loop.stages.charge(DATA, clock() - began_ns)
                    loop.entered(FORWARD_BACKWARD)
            yield batch

    return batches()


def _in_stage(forward_backward: Callable[..., Any], loop: Loop) -> Callable[..., Any]:
    @functools.wraps(forward_backward)
    def watched(*args: Any, **of: Any) -> Any:
        loop.asked()
        loop.fetched(0)
        loop.entered(FORWARD_BACKWARD)
        try:
            return forward_backward(*args, **of)
        finally:
            loop.stages.switch(None)

    return watched


def _stepping(optimizer: Any, loop: Loop) -> Any:
    step = optimizer.step

    @functools.wraps(step)
    def watched(*args: Any, **of: Any) -> Any:
        loop.entered(OPTIMIZER)
        try:
            return step(*args, **of)
        finally:
            loop.stepped()

    optimizer.step = watched
    return optimizer


def _plain(optimizer: Any) -> Any:
    """What is inside Accelerate's wrapper: that has no hooks of its own."""
    return getattr(optimizer, "optimizer", optimizer)


def _hear_of_backward(loop: Loop) -> None:
    """`Tensor.backward` calls torch.autograd.backward by name: one wrapper there hears of all."""
    autograd: Any = sys.modules["torch"].autograd
    _WATCHING.append(loop)
    if getattr(autograd.backward, "is_watched", False):
        return
    plain = autograd.backward

    @functools.wraps(plain)
    def backward(*args: Any, **of: Any) -> Any:
        for one in _WATCHING:
            one.entered(BACKWARD)
        try:
            return plain(*args, **of)
        finally:
            for one in _WATCHING:
                if not one.is_after_optimizer:
                    one.stages.switch(None)

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
