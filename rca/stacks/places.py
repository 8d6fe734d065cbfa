"""Known places of training code: what a stack is doing, told by its calls.

The innermost call that belongs to a known place decides, so a barrier inside a checkpoint is a wait for others, and a save
is not. What no pattern knows is the job's own code, which is a place, too.
"""

from __future__ import annotations

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final

from rca.stacks.process import Frame, Stack


class Place(StrEnum):
    """Where a process is. WAITS are those in which it may only be waiting for other ranks."""

    DATA_LOADER = "data loader"
    CHECKPOINT_SAVE = "saving a checkpoint"
    CHECKPOINT_LOAD = "loading a checkpoint"
    COLLECTIVE = "in a collective"
    BARRIER = "in a barrier"
    GPU_WAIT = "waiting for the GPU"
    STORE = "waiting for the rendezvous store"
    COMPILE = "compiling"
    GARBAGE = "collecting garbage"
    LOCK = "waiting for a lock"
    CODE = "in its own code"
    NOTHING = "nothing seen"


WAITS: Final = frozenset({Place.COLLECTIVE, Place.BARRIER, Place.GPU_WAIT, Place.STORE})

_CHECKPOINT_FILE: Final = r"torch/(serialization\.py$|distributed/checkpoint/)|safetensors/|checkpoint|ckpt|snapshot"
_KEPT: Final = r"(ckpts?|checkpoints?|snapshots?|weights?|states?|state_dict|model|optim|optimizer)(_|$)"
"""What a checkpoint is made of, as a function's name says it. Shards are read by data loaders, too."""
_LIBRARY: Final = re.compile(
    r"^(torch|multiprocessing|concurrent|asyncio|json|ssl|http|urllib|numpy|importlib|<frozen)(/|\b)"
    r"|^(threading|selectors|socket|queue|subprocess|contextlib|functools|pickle|codecs)\.py$"
)
_PATTERNS: Final = tuple(
    (place, re.compile(file), re.compile(name))
    for place, file, name in (
        (Place.BARRIER, r"torch/distributed/distributed_c10d\.py$", r"^(monitored_)?barrier$"),
        (Place.STORE, r"torch/distributed/(rendezvous|elastic/(rendezvous|utils/store))", r""),
        (Place.STORE, r"torch/distributed/distributed_c10d\.py$", r"^(_store_based_barrier|_new_process_group_helper)$"),
        (
            Place.COLLECTIVE, r"torch/distributed/(distributed_c10d|_functional_collectives)\.py$",
            r"^_?(all_|allgather|allreduce|broadcast|reduce|gather|scatter|send|recv|isend|irecv|batch_isend|wait)",
        ),
        (Place.GPU_WAIT, r"torch/cuda/(__init__|streams)\.py$", r"(^|\.)(synchronize|wait)$"),
        (Place.CHECKPOINT_LOAD, _CHECKPOINT_FILE, r"(^|[._])_?(load|restore|read)"),
        (Place.CHECKPOINT_SAVE, _CHECKPOINT_FILE, r"(^|[._])_?(save|write|persist)"),
        (Place.CHECKPOINT_LOAD, r"", r"(^|\.)load_(checkpoint|state_dict|model)$"),
        (Place.CHECKPOINT_SAVE, r"", r"(^|\.)(save_checkpoint|save_pretrained|save_model|_save_checkpoint)$"),
        # Of a job's own code, in whatever file: save_ckpt, _write_model_shards, restore_optimizer_state.
        (Place.CHECKPOINT_LOAD, r"", r"(^|[._])(load|restore|read|resume|download)_(\w+_)?" + _KEPT),
        (Place.CHECKPOINT_SAVE, r"", r"(^|[._])(save|dump|write|persist|flush|export|upload|store)_(\w+_)?" + _KEPT),
        (Place.DATA_LOADER, r"torch/utils/data/|webdataset/|^datasets/|megatron/(core/)?data(sets)?/|streaming/base/", r""),
        (Place.DATA_LOADER, r"", r"(^|\.)(__getitem__|__getitems__|get_batch|next_batch|collate_fn|fetch_batch)$"),
        (Place.COMPILE, r"torch/(_dynamo|_inductor|_functorch)/|triton/(compiler|runtime/(jit|autotuner))", r""),
        (Place.GARBAGE, r"", r"(^|\.)(gc_collect|collect_garbage)$"),
        (Place.LOCK, r"^threading\.py$", r"^(Condition\.wait|Event\.wait|Lock\.acquire|_RLock\.acquire|Thread\.join)$"),
        (Place.LOCK, r"filelock/|fasteners/", r""),
    )
)  # fmt: skip


_EVALUATION: Final = re.compile(r"(^|[._])_?(evaluat\w*|eval_(step|loop|epoch)|validat\w*)($|_)", re.IGNORECASE)


def place_of(stack: Stack) -> tuple[Place, Frame | None]:
    """The place of a stack and the call that tells it; of the job's own code the innermost call outside libraries."""
    weak: tuple[Place, Frame] | None = None
    for frame in stack:
        place = _place_of_call(frame.file, frame.name)
        if place is not None and place is not Place.LOCK:
            return place, frame
        if place is not None:
            weak = weak or (place, frame)
    if weak is not None:
        return weak
    return (Place.CODE, _own_call(stack)) if stack else (Place.NOTHING, None)


def is_evaluating(stack: Stack) -> bool:
    """Whether one of the calls, however far out, is an evaluation: training pauses for it on purpose."""
    return any(_is_evaluation(frame.file, frame.name) for frame in stack)


@lru_cache(maxsize=65_536)  # thousands of ranks make the same calls
def _place_of_call(file: str, name: str) -> Place | None:
    return next((place for place, files, names in _PATTERNS if files.search(file) and names.search(name)), None)


@lru_cache(maxsize=65_536)
def _is_evaluation(file: str, name: str) -> bool:
    return not _LIBRARY.match(file) and _EVALUATION.search(name) is not None


def _own_call(stack: Stack) -> Frame:
    """The innermost call outside the standard library and torch."""
    return next((frame for frame in stack if not _LIBRARY.match(frame.file)), stack[0])
