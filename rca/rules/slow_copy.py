"""A GPU that moves data slowly: chunks lie ready at its rank, in all its ops, and it does not take them.

    rank 1 ──▶ [arrived ······ waits for rank 2's GPU ······ taken] ──▶ rank 3: on time, then late

A slow copy engine or a downgraded PCIe link shows inside the op, after the rank's kernel has begun, and nowhere else: its
peers wait for its data or its credit, never for their own GPUs. Abstains when only some of a rank's ops show it. When
most ranks do, the job does, and nobody is blamed. docs/rules/slow_copy.md
"""

from __future__ import annotations

import numpy as np

from nccl_instrument.tables import FUNC_RECV, FUNC_SEND
from rca.counters import GPU_READY_NAME
from rca.cover import covered
from rca.findings import Component, FaultKind, Finding, Symptom
from rca.inside import Wait
from rca.settings import Settings
from rca.slow_words import finding_of, for_everybody
from rca.slowdown import Slowdown, uses_sockets
from rca.streams import Floats

RULE = "slow_copy"
VERSION = 2
NEEDS = frozenset({GPU_READY_NAME})

TOLD = "`nvidia-smi -q -d PERFORMANCE,CLOCK`, `nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv`"


def explain(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per rank whose GPU delays its own chunks; () when none does."""
    del symptom, settings
    every_place = np.ones(len(slowdown.iterations.rank), bool)
    found = covered(slowdown.iterations, own_copy_ns(slowdown), every_place, slowdown.lost_ns)
    if found.is_everybody:
        return (for_everybody(RULE, VERSION, slowdown, Component.GPU, found.excess_ns, "copies more slowly"),)
    return tuple(
        finding_of(
            RULE, VERSION, slowdown, (int(at),), Component.COPY, FaultKind.COMPUTATION_FAIL_SLOW,
            float(found.excess_ns[at]), f"in {found.n[at]} of {found.of[at]} ops of an iteration",
            "The GPU of {who} takes and hands over chunks late", "chunks waited for the GPU's copies, more than usual", TOLD,
            (int(found.n[at]), int(found.of[at])),
        )
        for at in np.flatnonzero(found.is_blamed)
    )  # fmt: skip


def own_copy_ns(slowdown: Slowdown) -> Floats:
    """(P,) what chunks wait for the GPU, less what the sends of its node are held up: a full way out stops the way in."""
    excess = slowdown.inside.excess
    passes_on = (slowdown.iterations.func != FUNC_SEND) & (slowdown.iterations.func != FUNC_RECV)
    if uses_sockets(slowdown.window):  # nor whether a mate's way out is full
        excess_of_all = excess(Wait.COPY)
        room = slowdown.inside.room
        return np.where(
            np.bincount(room)[room] > 1, 0.0, np.maximum(excess_of_all - excess(Wait.CREDIT) * passes_on, 0.0)
        )
    held_up = np.where(passes_on, slowdown.inside.of_room(excess(Wait.NETWORK) + excess(Wait.CREDIT)), 0.0)
    return np.maximum(excess(Wait.COPY) - held_up, 0.0)
