"""The rows of the suite `stages`: the paper's experiments, on the mechanistic model and as live DDP jobs over gloo."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from tests.eval.stages_model import Fault, Job

E3 = ("data", "backward", "comm", "forward_device", "forward_host")
E3_RANKS, E3_DELAY_S, SEEDS = (8, 32), 0.120, 5
TAILS = ((8, 0.15), (8, 0.18), (32, 0.15), (32, 0.18), (64, 0.18), (128, 0.18))
SUB = tuple((n, s) for n in (8, 32) for s in (0.012, 0.030, 0.060))
STEP_S = {8: (0.200, 0.240), 16: (0.205, 0.240), 32: (0.218, 0.240), 64: (0.225, 0.245), 128: (0.300, 0.330)}
"""No-fault step, drawn: so that 120 ms is 0.50 to 0.60 of it at 8 and 32 ranks, as in Table 14, and less at 128."""
EVENT_SHARE = 0.2


@dataclass(frozen=True)
class Case:
    """What is run. family: e3, callback_sync, e6, e7, e8, tail, scale: positive; control, subthreshold, no_fault."""

    family: str
    job: Job
    fault: Fault
    seed: int
    n_windows: int = 1

    @property
    def title(self) -> str:
        what = f"{self.fault.where} {self.fault.delay_s * 1e3:.0f} ms" if self.fault.where else "no fault"
        return f"{self.family} {self.job.n_ranks} ranks, {what}"


POSITIVE = ("e3", "callback_sync", "e6", "e7", "e8", "tail", "scale")


def cases(seed: int, seeds: int = SEEDS) -> Iterator[Case]:
    """Every row of the model; seeds of a row follow from the suite's."""
    for number, made in enumerate(_planned(seeds)):
        rng = np.random.default_rng([seed, number])
        job = _drawn(made.job, rng)
        fault = replace(made.fault, rank=int(rng.integers(job.n_ranks)))
        yield replace(made, job=job, fault=fault, seed=int(rng.integers(2**31)))


def _planned(seeds: int) -> Iterator[Case]:
    few = min(seeds, 3)
    for n in E3_RANKS:
        for where in E3:
            yield from _times(seeds, "e3", Job(n, events=EVENT_SHARE), Fault(where, 0, E3_DELAY_S))
    for delay in (0.06, 0.12, 0.18, 0.24):
        yield from _times(few, "callback_sync", Job(8, barrier="callback"), Fault("callback", 0, delay))
    yield from _times(few, "e6", Job(8, barrier="callback"), Fault("callback", 0, 0.12))
    for where in ("data", "backward", "forward_device"):
        yield from _times(seeds, "e7", Job(8, micro_steps=4, events=EVENT_SHARE), Fault(where, 0, E3_DELAY_S))
    yield from _sharded(few)
    for n, delay in TAILS:
        yield from _times(few, "tail", Job(n), Fault("data", 0, delay))
    for n in (64, 128):
        yield from _times(few, "scale", Job(n), Fault("comm", 0, 0.12))
    for n in E3_RANKS:
        yield from _times(few, "control", Job(n), Fault("callback", 0, 0.12))
        yield from _times(few, "control", Job(n), Fault("optimizer", 0, 0.18))
        yield from _times(few, "control", Job(n, sharded=True), Fault("optimizer", 0, 0.18))
    for n, delay in SUB:
        yield from _times(seeds, "subthreshold", Job(n), Fault("data", 0, delay))
    yield from _times(seeds, "subthreshold", Job(128), Fault("data", 0, 0.12))
    for n in (8, 16, 32):
        yield from _times(7 * seeds, "no_fault", Job(n), Fault(), 3)


def _sharded(few: int) -> Iterator[Case]:
    """E8: weights gathered before forward (FSDP), and after the optimizer (ZeRO-1), with faults that a collective follows."""
    for n in (8, 16, 32):
        for where in ("data", "forward_host", "backward", "comm"):
            yield from _times(few, "e8", Job(n, sharded=True), Fault(where, 0, 0.18))
        for where in ("data", "forward_host", "backward", "comm", "optimizer"):
            yield from _times(few, "e8", Job(n, barrier="optimizer"), Fault(where, 0, 0.18))
        yield from _times(few, "e8", Job(n, barrier="callback", sharded=True), Fault("callback", 0, 0.18))


def _times(n: int, family: str, job: Job, fault: Fault, n_windows: int = 1) -> Iterator[Case]:
    for _ in range(n):
        yield Case(family, job, fault, 0, n_windows)


def _drawn(job: Job, rng: np.random.Generator) -> Job:
    """The job with a step and shares of its stages drawn at random: no row is like another."""
    shares = {
        "data": rng.uniform(0.02, 0.05), "forward": rng.uniform(0.27, 0.31), "backward": rng.uniform(0.37, 0.41),
        "callback": rng.uniform(0.02, 0.05), "optimizer": rng.uniform(0.13, 0.17), "other": rng.uniform(0.02, 0.05),
    }  # fmt: skip
    whole = sum(shares.values())
    return replace(
        job, step_s=rng.uniform(*STEP_S[job.n_ranks]), shares={name: share / whole for name, share in shares.items()},
        jitter=rng.uniform(0.01, 0.03), device_share=rng.uniform(0.15, 0.3),
    )  # fmt: skip
