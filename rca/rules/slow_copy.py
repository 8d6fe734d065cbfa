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
from rca.edges import slot_bytes_of
from rca.findings import Component, FaultKind, Finding, Symptom
from rca.inside import Wait
from rca.keys import Mask
from rca.settings import Settings
from rca.slow_words import finding_of, for_everybody
from rca.slowdown import Slowdown
from rca.streams import Floats

RULE = "slow_copy"
VERSION = 3
NEEDS = frozenset({GPU_READY_NAME})

SMALL_MAX = 0.1  # of the bytes of a rank's slowest op: what copies of fewer take longer is lost in the noise
TINY_MAX = 0.01  # of them
WORST_MIN = 0.9  # of a rank's most
TOLD = "`nvidia-smi -q -d PERFORMANCE,CLOCK`, `nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv`"


def explain(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per rank whose GPU delays its own chunks; () when none does."""
    del symptom, settings
    own = own_copy_ns(slowdown)
    found = covered(slowdown.iterations, slowdown.nodes, own, _would_show(slowdown, own), slowdown.lost_ns)
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
    """(P,) what chunks wait for the GPU, less what the sends of its node are held up: a full way out stops the way in.

    A receive's first chunk may lie while the GPU still computes: of its wait only what makes it last longer counts.
    """
    excess = slowdown.inside.excess
    passes_on = (slowdown.iterations.func != FUNC_SEND) & (slowdown.iterations.func != FUNC_RECV)
    grown = np.maximum(np.nan_to_num(slowdown.inside.lasted_slow - slowdown.inside.lasted_usual), 0.0)
    copies = excess(Wait.COPY)
    copies = np.where(slowdown.iterations.func == FUNC_RECV, np.minimum(copies, grown), copies)
    held_up = np.where(passes_on, slowdown.inside.of_room(excess(Wait.NETWORK) + excess(Wait.CREDIT)), 0.0)
    return np.maximum(copies - held_up, 0.0)


def _would_show(slowdown: Slowdown, own_ns: Floats) -> Mask:
    """(P,) the ops in which slow copies would show: not those that move far fewer bytes than the rank's slowest.

    An op that mates on the node take part in may show a mate's excess, so where one does all but the tiniest count.
    """
    iterations, room = slowdown.iterations, slowdown.inside.room
    moved, channels = (np.nanmax(iterations.column(name), axis=1, initial=0.0) for name in ("bytes", "channels"))
    # How long a send waits for its first chunk is not counted: its kernel may have begun late.
    moved = np.where(iterations.func == FUNC_SEND, np.maximum(moved - channels * slot_bytes_of(slowdown), 0.0), moved)
    rank_at = iterations.rank_at
    worst, most = np.zeros(len(iterations.ranks)), np.zeros(len(iterations.ranks))
    np.maximum.at(worst, rank_at, own_ns)
    is_worst = (own_ns > 0) & (own_ns >= WORST_MIN * worst[rank_at])
    np.maximum.at(most, rank_at[is_worst], moved[is_worst])
    is_shared = (np.bincount(room)[room] > 1) & (own_ns > 0)
    has_mates = slowdown.sum(is_shared.astype(np.float64))[rank_at] > 0
    found: Mask = (moved >= np.where(has_mates, TINY_MAX, SMALL_MAX) * most[rank_at]) | (own_ns > 0)
    return found
