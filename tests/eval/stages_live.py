"""Live rows of the suite `stages`: torch's DDP, FSDP and ZeRO-1 over gloo with the recorder in the loop (stages_job.py).

A job trains two windows as usual and one under the fault. Gloo's ops are not traced: the program declares that its ranks are
one synchronous group, so labels are those of a job without the plugin, and nothing is fused. Jobs mostly sleep; some run
beside each other.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from ingest.window import Window
from nccl_instrument.stage_schema import FORWARD_EVENTS
from nccl_instrument.tables import SYNCHRONOUS
from rca.frontier.cutting import Cursor
from rca.settings import DEFAULT
from tests.eval.stages_job import PYTHON, JobFailed, Recorded, run_job
from tests.eval.stages_rows import STAGE_OF, USUAL_WINDOWS, Row, Truth, judged_row
from tests.rca.frontier.built import joined, stage_window

N_RANKS: Final = 8
BASE_MS: Final = 207
"""An undisturbed step without collectives: 120 ms is 0.58 of it, as in Table 14 at 8 ranks."""
STAGE_NAME: Final = {"callback_sync": "callback", "callback_host": "callback", "optimizer_host": "optimizer"}
EVENT_SHARE: Final = "0.2"
SHARDED: Final = {"fsdp": ("--fsdp",), "zero1": ("--zero",)}


@dataclass(frozen=True)
class Scenario:
    """A live job. more: further options of it, also part of its name."""

    family: str
    name: str
    delay_ms: int
    wrapper: str = ""
    more: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        wrapped = f" {self.wrapper}" if self.wrapper else ""
        return f"{self.family} {N_RANKS} ranks{wrapped}, {self.name} {self.delay_ms} ms"


def scenarios() -> list[Scenario]:
    """E3 and its controls; E7 with four micro-steps of which one is reduced; E8, each fault with a barrier in its span, and
    the host-local optimizer that nobody waits for."""
    events = ("--event-share", EVENT_SHARE)
    found = [
        Scenario("e3", name, 120, more=events)
        for name in ("data", "backward", "comm", "forward_host", "forward_device")
    ]
    found += [
        Scenario("callback_sync", "callback_sync", 180), Scenario("control", "callback_host", 120),
        Scenario("control", "optimizer_host", 180), Scenario("subthreshold", "data", 30), Scenario("no_fault", "none", 0),
    ]  # fmt: skip
    accumulated = ("--accumulation", "4", "--micro", "1", *events)
    found += [Scenario("e7", name, 120, more=accumulated) for name in ("data", "backward", "forward_device")]
    for wrapper, options in SHARDED.items():
        found += [
            Scenario("e8", name, 180, wrapper, (*options, "--sync"))
            for name in ("data", "forward_host", "backward", "comm", "callback_sync")
        ]
        found.append(Scenario("control", "optimizer_host", 180, wrapper, options))
    return found


def live_rows(folder: Path, seed: int, seeds: int, tell: Callable[[float, str], None]) -> tuple[list[Row], list[str]]:
    """Every scenario so many times, and what did not train."""
    if not PYTHON.exists() or not seeds:
        return [], ["no live rows: torch is not installed"] if seeds else []
    planned = [(number, one) for number in range(seeds) for one in scenarios()]
    rows, failed = list[Row](), list[str]()

    def run(one: tuple[int, Scenario]) -> None:
        number, scenario = one
        try:
            found = _row(folder, scenario, seed, number)
            rows.append(found)
            what = f"{found.title}: {', '.join(found.ranked()[:2])}"
        except (JobFailed, ValueError) as error:
            what = f"{scenario.title}: {error}"
            failed.append(what)
        tell((len(rows) + len(failed)) / len(planned), what)

    with ThreadPoolExecutor((os.cpu_count() or 1) + 1) as pool:
        list(pool.map(run, planned))
    order = [one.title for one in scenarios()]
    return sorted(rows, key=lambda row: order.index(row.title)), failed


def _row(folder: Path, of: Scenario, seed: int, number: int) -> Row:
    steps, warm_up = DEFAULT.stage_steps, DEFAULT.stage_warm_up
    rank = int(np.random.default_rng([seed, number, *of.title.encode()]).integers(N_RANKS))
    since = USUAL_WINDOWS * steps
    recorded = run_job(
        folder / f"{of.family}-{of.wrapper}-{of.name}-{of.delay_ms}-{number}", "--scenario", of.name, "--ranks", str(N_RANKS),
        "--hidden-rank", str(rank), "--delay-ms", str(of.delay_ms), "--seed", str(seed + number), "--base-ms", str(BASE_MS),
        "--warmup", str(warm_up), "--steps", str(since + steps), "--fault", f"{since}:{since + steps}", *of.more,
    )  # fmt: skip
    truth = Truth(STAGE_OF[STAGE_NAME.get(of.name, of.name)], rank, of.name) if of.delay_ms else Truth("", None)
    begun = Cursor(warm_up - 1, 0, 0)  # the job leaves no rows of its warm-up
    under = since + warm_up, since + steps + warm_up
    return judged_row((of.family, of.title, N_RANKS, seed), truth, _window(recorded), under, cursor=begun)


def _window(recorded: Recorded) -> Window:
    """The rows the agents would send."""
    first = int(recorded.steps[0])
    window = stage_window(recorded.durations_s, schema=recorded.schema, groups=(), first_step=first)
    recorder = window.rows("recorder").copy()
    recorder["flags"] |= SYNCHRONOUS
    tables = {**window.tables, "recorder": recorder}
    if FORWARD_EVENTS in recorded.schema.sides and len(recorded.sides):
        side = np.zeros(len(recorded.sides), window.rows("side").dtype)
        side["rank"], side["step"] = recorded.sides[:, 0], recorded.sides[:, 1]
        side["channel"], side["value_ns"] = recorded.sides[:, 2], recorded.sides[:, 3]
        tables["side"] = joined("side", side, side["rank"].tolist())
    return replace(window, tables=tables)
