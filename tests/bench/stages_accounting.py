"""Frontier accounting of a window against the paper's plain triple loop and against reading the matrix once.

600 steps × 6 stages of 128, 10,000 and 100,000 ranks. The largest matrix is 2.9 GB, so steps are made in blocks and each
block is accounted, read and thrown away; the loop runs over so many ranks and steps as take a second or two, and is
scaled. Times are of the processor, all of it being one thread's work.
"""

from __future__ import annotations

import time
from typing import Final

import numpy as np

from rca.frontier.accounting import Seconds, account, account_step

RANKS: Final = (128, 10_000, 100_000)
STEPS, STAGES, RUNS = 600, 6, 3
BLOCK_STEPS: Final = 50
LOOP_CELLS: Final = 1_500_000


def measure() -> dict[str, dict[str, float]]:
    """Ranks → seconds of the accounting, of the loop (scaled to the whole) and of one read of the matrix."""
    found = {}
    for n_ranks in RANKS:
        rng = np.random.default_rng(n_ranks)
        accounted, read = [], []
        for _ in range(RUNS):
            one, other = _whole(n_ranks, rng)
            accounted.append(one)
            read.append(other)
        loop_s, n_cells = _loop(n_ranks, rng)
        found[str(n_ranks)] = {
            "s": round(float(np.median(accounted)), 4), "loop_s": round(loop_s, 3),
            "read_s": round(float(np.median(read)), 4), "loop_cells_run": n_cells,
        }  # fmt: skip
        print(f"{n_ranks:,} ranks: {found[str(n_ranks)]}", flush=True)
    return found


def _whole(n_ranks: int, rng: np.random.Generator) -> tuple[float, float]:
    """Seconds of the accounting and of one read, over all blocks."""
    accounted = read = 0.0
    for _ in range(STEPS // BLOCK_STEPS):
        block = rng.random((BLOCK_STEPS, STAGES, n_ranks)).transpose(0, 2, 1)
        began = time.process_time()
        account(block)
        accounted += time.process_time() - began
        began = time.process_time()
        block.max()
        read += time.process_time() - began
    return accounted, read


def _loop(n_ranks: int, rng: np.random.Generator) -> tuple[float, int]:
    """Seconds of the plain loop for the whole window, from a part of it; and how many cells that part had."""
    some = min(n_ranks, LOOP_CELLS // STAGES // 2)
    steps = max(1, min(STEPS, LOOP_CELLS // (some * STAGES)))
    block = rng.random((steps, some, STAGES))
    rows: list[list[list[float]]] = block.tolist()
    began = time.process_time()
    advances = plain(rows)
    took = time.process_time() - began
    if not np.allclose(advances, [account_step(step).advances for step in block]):
        raise AssertionError("the loop and the accounting differ")
    return took * (STEPS / steps) * (n_ranks / some), int(block.size)


def plain(window: list[list[list[float]]] | Seconds) -> list[list[float]]:
    """The pseudo-code of the paper (§3): for every step, stage and rank."""
    found = []
    for step in window:
        before, reached, advances = 0.0, [0.0] * len(step), []
        for stage in range(len(step[0])):
            frontier = 0.0
            for rank, durations in enumerate(step):
                reached[rank] += durations[stage]
                frontier = max(frontier, reached[rank])
            advances.append(frontier - before)
            before = frontier
        found.append(advances)
    return found
