"""One line in a training program that has no contexts yet: stages told from where PyTorch itself calls the loader, the model,
`backward` and the optimizer.

    loader = stage_hooks.watch(loader, model, optimizer)     # plain PyTorch, DDP, FSDP; before the loop
    stage_hooks.watch_trainer(trainer)                       # Hugging Face Trainer; before trainer.train()
    trainer = Trainer(callbacks=[stage_hooks.lightning()])   # Lightning
    data, run, optimizer = stage_hooks.watch_megatron(data, forward_backward, optimizer)

A step begins with the first batch that is fetched after an optimizer step and ends when the next is asked for, so micro-steps
of gradient accumulation belong to one. What the program does with a batch before its forward is a stage of its own. What
follows the optimizer in a step (logging, saving, evaluating) is callbacks, which is why they come after it here. Each returns
what it was given where it cannot watch; nothing here raises into the program.
torch is looked up among what the program has already imported.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from nccl_instrument.stage_loop import (
    LOOP,
    PIPELINE,
    Loop,
    hear_of_scaler,
    is_one_group,
    loops_of,
)
from nccl_instrument.stage_ring import open_road
from nccl_instrument.stage_schema import BACKWARD, DATA, FORWARD, FORWARD_BACKWARD, OPTIMIZER, Schema
from nccl_instrument.stages import Stages


class Watched:
    """A loader whose batches are waited for on somebody's account. Everything else is the loader's own."""

    def __init__(self, loader: Any, loop: Loop) -> None:
        self._loader, self._loop = loader, loop

    def __iter__(self) -> Iterator[Any]:
        return _Waiting(iter(self._loader), self._loop)

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name in ("_loader", "_loop"):  # asked for before they are there, by copy and pickle
            raise AttributeError(name)
        return getattr(self._loader, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, in another process or here, is the loader itself: nobody's steps wait for it."""
        return _itself, (self._loader,)


def _itself(loader: Any) -> Any:
    return loader


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
    """The loader to iterate instead; an iterator for an iterator. model: the outermost one, DDP or FSDP around it. stages: with a
    road of its own already; else the node's agent is sent what is recorded. A model or optimizer that was watched before is
    watched anew; `unwatch(model)` ends it.
    """
    try:
        loop = Loop(stages or started(LOOP))
        loop.attach(model, optimizer)
        return _Waiting(loader, loop) if isinstance(loader, Iterator) else Watched(loader, loop)
    except Exception:  # not a torch model, or an older torch: the program goes on unwatched
        return loader


def unwatch(model: Any) -> None:
    """No more is recorded of this model, and what hung on it and its optimizer is taken off. The loader goes on as it is."""
    for loop in loops_of(model):
        with contextlib.suppress(Exception):
            loop.detach()


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
            loop.stages.synchronous = loop.stages.synchronous or is_one_group(trainer.strategy.model)
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
