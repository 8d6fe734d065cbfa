"""Which counters this job's communication library keeps: what is absent must not be read as 0 (Mycroft §9).

Not every library, or version of one, can count every stage of a chunk. Some say so when a rank joins a communicator
(`counters_seen`); of others it shows, because a chunk cannot have been transmitted before its GPU had it ready. Where
GPU_ready is absent, it is taken to be what was transmitted at least, and what GPUs consumed, where that is absent too, to be
what was flushed; rules that would conclude from it abstain.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import (
    CONSUMED,
    FLUSHED,
    GPU_READY,
    LACKS_DONE,
    LACKS_GPU_READY,
    LACKS_TRANSMITTED,
    OP_HAS_FLOWS,
    RDMA_TRANSMITTED,
    SEND,
)
from rca.findings import Condition, Finding, State

NAMES: Final = {LACKS_GPU_READY: "GPU_ready", LACKS_TRANSMITTED: "RDMA_transmitted", LACKS_DONE: "RDMA_done"}
GPU_READY_NAME: Final = NAMES[LACKS_GPU_READY]
TRANSMITTED_NAME: Final = NAMES[LACKS_TRANSMITTED]
DONE_NAME: Final = NAMES[LACKS_DONE]
SAMPLE_MAX: Final = 10_000
OPS_MIN: Final = 20
"""Fewer ops that show no wait for a GPU may be chance."""
_FROM_GPU_READY: Final = (State.NOT_TRANSMITTED, State.GPU_NOT_READY)


def marked(window: Window) -> Window:
    """`window` with what shows to be absent declared so, and GPU_ready, where absent, as little as it can be."""
    lacks = 0 if not len(window.ranks) else int(np.bitwise_or.reduce(window.ranks["counters_seen"]))
    if lacks & (LACKS_TRANSMITTED | LACKS_DONE):  # inside an op nothing can be told; who has not entered it can
        window = replace(window, tables={**window.tables, "flow": window.rows("flow")[:0]})
    if not lacks & LACKS_GPU_READY and not _shows_no_gpu_ready(window):
        return window
    ranks, flow = window.ranks.copy(), window.rows("flow").copy()
    ranks["counters_seen"] |= LACKS_GPU_READY
    sends = flow["direction"] == SEND
    flow["counters"][sends, GPU_READY] = flow["counters"][sends, RDMA_TRANSMITTED]
    if not flow["counters"][~sends, CONSUMED].any():  # who does not see a GPU produce may not see it consume
        flow["counters"][~sends, CONSUMED] = flow["counters"][~sends, FLUSHED]
    return replace(window, ranks=ranks, tables={**window.tables, "flow": flow})


def absent(window: Window) -> frozenset[str]:
    """Names of the counters that some rank of a `marked` window does not keep."""
    found = int(np.bitwise_or.reduce(window.ranks["counters_seen"])) if len(window.ranks) else 0
    return frozenset(name for bit, name in NAMES.items() if found & bit)


def needs_of(rule: Callable[..., Any]) -> frozenset[str]:
    """The counters a rule's file says it cannot do without, as NEEDS."""
    found: frozenset[str] = getattr(sys.modules[rule.__module__], "NEEDS", frozenset())
    return found


def is_able(rule: Callable[..., Any], lacking: frozenset[str]) -> bool:
    """Whether all that the rule needs is counted."""
    return not needs_of(rule) & lacking


def abstentions(rules: Iterable[Callable[..., Any]], lacking: frozenset[str]) -> tuple[str, ...]:
    """Why rules abstain, a sentence each."""
    unable = [(rule.__module__.rsplit(".", 1)[-1], needs_of(rule) & lacking) for rule in rules]
    return tuple(f"Rule {name} abstains: {_and(why)} is not counted by this library." for name, why in unable if why)


def judged(findings: list[Finding], lacking: frozenset[str]) -> tuple[list[Finding], tuple[str, ...]]:
    """Findings of hangs that rest on what is counted, and why there may be fewer."""
    said = []
    if lacking & {TRANSMITTED_NAME, DONE_NAME}:
        what = _and(lacking & {TRANSMITTED_NAME, DONE_NAME})
        said.append(f"{what} is not counted by this library: only who has not entered an op can be told.")
    if GPU_READY_NAME in lacking:
        findings = [replace(one, conditions=_told(one.conditions)) for one in findings if one.subject.kind != "gpu"]
        said.append(f"{GPU_READY_NAME} is not counted by this library: that a GPU produces nothing cannot be told.")
    return findings, tuple(said)


def _told(conditions: tuple[Condition, ...]) -> tuple[Condition, ...]:
    return tuple(one for one in conditions if one.state not in _FROM_GPU_READY)


def _and(names: frozenset[str]) -> str:
    return " and ".join(sorted(names))


def _shows_no_gpu_ready(window: Window) -> bool:
    """Whether chunks were transmitted, or ops are over, and no GPU ever had any ready."""
    op = window.rows("op")
    some = op[:: max(1, len(op) // SAMPLE_MAX)]
    if (some["gpu_wait_ns"] > some["receive_gpu_wait_ns"]).any():
        return False  # a send waited for its GPU, so that is counted; flows, which may be many, need not be read
    flow = window.rows("flow")
    some = flow[:: max(1, len(flow) // SAMPLE_MAX)]
    if some["counters"][some["direction"] == SEND, GPU_READY].any():
        return False  # as nearly always; the rest need not be looked at
    sends = flow["counters"][flow["direction"] == SEND]
    if sends[:, RDMA_TRANSMITTED].any():
        return not sends[:, GPU_READY].any()
    op = op[((op["flags"] & OP_HAS_FLOWS) != 0) & (op["done_ns"] > 0) & (op["net_wait_ns"] > 0)]
    return len(op) >= OPS_MIN and bool((op["gpu_wait_ns"] <= op["receive_gpu_wait_ns"]).all())
