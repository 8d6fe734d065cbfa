"""Live rows of the suite `stages`: torch's DDP over gloo with the recorder in its loop (tests/eval/stages_job.py).

A job trains two windows as usual and one under the fault. Gloo's ops are not traced, so no wait model is asked and nothing
is fused: what is scored is the routing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np

from ingest.window import Window
from rca.settings import DEFAULT
from tests.eval.stages_job import PYTHON, JobFailed, Recorded, run_job
from tests.eval.stages_rows import STAGE_OF, USUAL_WINDOWS, Row, Truth, judged_row
from tests.rca.frontier.built import stage_window

N_RANKS: Final = 8
BASE_MS: Final = 87
SUBTHRESHOLD_BASE_MS: Final = 207
"""A step without fault and collectives: so that 120 ms is 0.50 to 0.60 of the step it makes longer; a sub-threshold delay
is small beside its step."""
SCENARIOS: Final = (
    ("e3", "data", 120), ("e3", "backward", 120), ("e3", "comm", 120), ("e3", "forward_host", 120),
    ("e3", "forward_device", 120), ("callback_sync", "callback_sync", 180), ("control", "callback_host", 120),
    ("control", "optimizer_host", 180), ("subthreshold", "data", 30), ("no_fault", "none", 0),
)  # fmt: skip
STAGE_NAME: Final = {"callback_sync": "callback", "callback_host": "callback", "optimizer_host": "optimizer"}


def live_rows(folder: Path, seed: int, seeds: int, say: Callable[[str], None]) -> list[Row]:
    """Every scenario so many times; one that does not train is said and left out."""
    if not PYTHON.exists():
        say("no live rows: torch is not installed (make eval SUITE=torch installs it)")
        return []
    return list(_rows(folder, seed, seeds, say))


def _rows(folder: Path, seed: int, seeds: int, say: Callable[[str], None]) -> Iterator[Row]:
    for number in range(seeds):
        for family, scenario, delay_ms in SCENARIOS:
            rank = int(np.random.default_rng([seed, number, delay_ms]).integers(N_RANKS))
            try:
                found = _row(
                    folder / f"{scenario}-{delay_ms}-{number}", family, scenario, delay_ms, rank, seed + number
                )
            except JobFailed as error:
                say(f"live {scenario}: the job did not train: {error}")
                continue
            say(f"live {found.title}: {found.ranked()[:2]}, rank {found.named} of {found.rank}")
            yield found


def _row(folder: Path, family: str, scenario: str, delay_ms: int, rank: int, seed: int) -> Row:
    steps = DEFAULT.stage_steps
    folder.mkdir(parents=True)
    base_ms = SUBTHRESHOLD_BASE_MS if family == "subthreshold" else BASE_MS
    recorded = run_job(
        folder, "--scenario", scenario, "--ranks", str(N_RANKS), "--hidden-rank", str(rank),
        "--delay-ms", str(delay_ms), "--seed", str(seed), "--base-ms", str(base_ms),
        "--warmup", str(DEFAULT.stage_warm_up), "--steps", str((USUAL_WINDOWS + 1) * steps),
        "--fault", f"{USUAL_WINDOWS * steps}:{(USUAL_WINDOWS + 1) * steps}",
    )  # fmt: skip
    at, where = USUAL_WINDOWS * steps, STAGE_NAME.get(scenario, scenario)
    truth = Truth(STAGE_OF[where], rank) if delay_ms else Truth("", None)
    title = f"{family} {N_RANKS} ranks, {scenario} {delay_ms} ms"
    windows = (_window(recorded, slice(0, at)), _window(recorded, slice(at, at + steps)))
    return judged_row(family, title, N_RANKS, seed, truth, windows, replace(DEFAULT, stage_warm_up=0))


def _window(recorded: Recorded, steps: slice) -> Window:
    """The rows the agents would send of these steps; the warm-up is left out already."""
    return stage_window(recorded.durations_s[steps], schema=recorded.schema, groups=())
