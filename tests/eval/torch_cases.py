"""Hangs of a PyTorch job and what a right answer says of them: drawn at random, in layout, victim and detail.

The six of the paper's kind (Mycroft §8), the healthy one, and some that are in no list. A truth is written before anything
is run; nothing of it reaches what is scored.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final

CULPRITS: Final = (
    "data_loader", "launches_nothing", "opposite_order", "mismatched_size", "swallowed", "stopped"
)  # fmt: skip
HEALTHY: Final = "long_checkpoint"
UNLISTED: Final = (
    "barrier_instead", "gathers_instead", "other_type", "receives_forever", "leaves_early", "exits", "raises",
    "long_save", "wrong_root", "killed",
)  # fmt: skip
OUT_OF_SYNC: Final = "out of sync"
LAYOUTS: Final = ((4, 2), (6, 2), (6, 3), (8, 2), (8, 4))  # ranks, tensor-parallel size


@dataclass(frozen=True, slots=True)
class TorchCase:
    """A job and its fault. truth: sets of ranks each of which is right; layers: those that are right.

    tie: of whom it may be said that nobody can tell who of them it was. groups, sides: of a cycle.
    """

    fault: str
    n_ranks: int
    tp: int
    workers: int
    victims: tuple[int, ...]
    how: str
    truth: tuple[frozenset[int], ...]
    layers: frozenset[str]
    tie: frozenset[int] = frozenset()
    groups: tuple[str, ...] = ()
    sides: tuple[frozenset[int], ...] = ()
    ranks_per_node: int = 4
    seed: int = field(default=0, compare=False)

    @property
    def arguments(self) -> list[str]:
        return ["--tp", str(self.tp), "--workers", str(self.workers)]

    @property
    def said(self) -> str:
        """For a progress line."""
        how = f" ({self.how})" if self.how else ""
        return f"{self.fault}{how} on {list(self.victims)} of {self.n_ranks}, tp {self.tp}"


def draw_case(fault: str, seed: int, layout: tuple[int, int] | None = None) -> TorchCase:
    """A case of this fault; layout: (ranks, tensor-parallel size) instead of a drawn one."""
    draw = random.Random(f"{fault}/{seed}")
    n_ranks, tp = layout or draw.choice(LAYOUTS)
    workers = draw.choice((0, 1, 2)) if n_ranks <= 8 else 0
    victim = draw.randrange(n_ranks)
    known = {"n_ranks": n_ranks, "tp": tp, "workers": workers, "seed": seed, "ranks_per_node": max(n_ranks // 2, 1)}
    if fault == "data_loader":
        victim -= victim % tp  # those load
    how = _how(fault, draw, n_ranks)
    column = frozenset(range(victim % tp, n_ranks, tp))
    if fault == "opposite_order":
        return _opposite(draw, column, victim % tp, known)
    # A root is not recorded: that the op does not end is all that can be known.
    alone = (frozenset({victim}), *([frozenset[int]()] if fault == "wrong_root" else []))
    if fault == HEALTHY:
        return TorchCase(fault, victims=(0,), how=how, truth=(frozenset(),), layers=frozenset(), **known)
    tie = frozenset(column) if fault == "mismatched_size" and len(column) == 2 else frozenset()
    return TorchCase(fault, victims=(victim,), how=how, truth=alone, layers=_layers(fault), tie=tie, **known)


def _layers(fault: str) -> frozenset[str]:
    """A stopped process is behind for the recorder, and below everything else that looks: both say where to go."""
    if fault == "data_loader":
        return frozenset({"data loader"})
    if fault == "long_save":
        return frozenset({"checkpoint"})
    if fault == "wrong_root":
        return frozenset({OUT_OF_SYNC, "collective"})
    if fault in ("stopped", "killed", "exits"):
        return frozenset({OUT_OF_SYNC, "below"})
    return frozenset({OUT_OF_SYNC})


def _how(fault: str, draw: random.Random, n_ranks: int) -> str:
    ways = {
        "data_loader": ("sleep", "socket", "pipe", "lock"),
        "launches_nothing": ("lock", "condition", "queue", "loop", "compute"),
        "mismatched_size": ("larger", "smaller"),
        "swallowed": ("tp", "dp", "world"),
        HEALTHY: ("30", "40", "50"),
    }
    return draw.choice(ways[fault]) if fault in ways else ""


def _opposite(draw: random.Random, column: frozenset[int], at: int, known: dict[str, int]) -> TorchCase:
    """Some members of a column reduce statistics before gradients, the others as ever: they wait for each other."""
    members = sorted(column)
    those = frozenset(draw.sample(members, draw.randrange(1, len(members))))
    return TorchCase(
        "opposite_order", victims=tuple(sorted(those)), how="", truth=(column, those), layers=frozenset({OUT_OF_SYNC}),
        groups=(f"dp{at}", f"stats{at}"), sides=(those, column - those), **known,
    )  # fmt: skip
