"""A mechanistic model of synchronous training on hosts with asynchronous devices, for more ranks than a machine can run.

Each rank has a host that goes through the stages and a device that works off what the host launches. Gradients are
reduced in buckets: the k-th reduction ends once every rank's device has reached it, and the host leaves backward when its
device and the last reduction are done. So waits, spill-over from forward into backward, and what is absorbed by the next
step's synchronisation are results of the mechanism, not assumptions. Faults act on one rank's host or device. What comes
out are the rows a recorder and the plugin would send; the analysis sees nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from ingest.window import Window
from nccl_instrument.stage_schema import DEFAULT, FORWARD_EVENTS, Schema
from tests.rca.frontier.built import END_NS, joined, op_rows, stage_window

Seconds = npt.NDArray[np.float64]

BUCKETS: Final = 4
NAMES: Final = ("data", "forward", "backward", "callback", "optimizer", "other")


@dataclass(frozen=True)
class Job:
    """Seconds of an undisturbed step, and how it varies. shares: of NAMES, by the host. device_share: of a stage's work
    that the host launches, the part that is still on the device when the host goes on. barrier: a stage that ends with
    one on all ranks: 'callback' or 'optimizer'. micro_steps: of a step, reduced after the last one only. sharded: weights
    are gathered at the begin of forward, which synchronises too."""

    n_ranks: int = 8
    step_s: float = 0.207
    shares: dict[str, float] = field(
        default_factory=lambda: {
            "data": 0.04, "forward": 0.34, "backward": 0.41, "callback": 0.04, "optimizer": 0.13, "other": 0.04
        }
    )  # fmt: skip
    jitter: float = 0.02
    hiccups: float = 0.01
    device_share: float = 0.2
    barrier: str = ""
    micro_steps: int = 1
    sharded: bool = False
    events: float = 0.0

    @property
    def schema(self) -> Schema:
        schema = DEFAULT.accumulated(self.micro_steps) if self.micro_steps > 1 else DEFAULT
        return schema.with_side(FORWARD_EVENTS) if self.events else schema


@dataclass(frozen=True)
class Fault:
    """`delay_s` on one rank, in every `every`-th step from `since` to before `until`. where: data, forward_host, forward_device,
    backward, comm, callback, optimizer; '' none."""

    where: str = ""
    rank: int = 0
    delay_s: float = 0.0
    every: int = 1
    since: int = 0
    until: int = 2**62

    def at(self, step: int) -> Fault:
        """What of it is there in a step."""
        is_there = self.where and self.since <= step < self.until and (step - self.since) % self.every == 0
        return self if is_there else Fault()


@dataclass(frozen=True)
class Run:
    """durations: (T, R, S); launched, ready: (T, R, K) of the reductions, and began: (T, R) of the steps, seconds since the
    start; device_s: (T, R) device time of forward."""

    job: Job
    durations: Seconds
    launched: Seconds
    ready: Seconds
    began: Seconds
    device_s: Seconds


def run(job: Job, fault: Fault, n_steps: int, rng: np.random.Generator) -> Run:
    """The job for so many steps."""
    host, device = np.zeros(job.n_ranks), np.zeros(job.n_ranks)
    kept: list[tuple[Seconds, ...]] = []
    for step in range(n_steps):
        began = host.copy()
        spent, launched, ready, forward_s, device = _step(job, fault.at(step), host, device, _work(job, rng))
        host = began + spent.sum(axis=1)
        kept.append((spent, launched, ready, began, forward_s))
    durations, launched, ready, began, device_s = (np.stack(one) for one in zip(*kept, strict=True))
    return Run(job, durations, launched, ready, began, device_s)


def _work(job: Job, rng: np.random.Generator) -> dict[str, Seconds]:
    """(R,) own work of each stage in one step; now and then one rank has a hiccup somewhere."""
    found = {
        name: share * job.step_s * np.exp(rng.normal(0, job.jitter, job.n_ranks)) for name, share in job.shares.items()
    }
    if rng.random() < job.hiccups:
        found[NAMES[rng.integers(len(NAMES))]][rng.integers(job.n_ranks)] += 0.2 * job.step_s * rng.random()
    return found


def _step(
    job: Job, fault: Fault, host: Seconds, device: Seconds, work: dict[str, Seconds]
) -> tuple[Seconds, Seconds, Seconds, Seconds, Seconds]:
    """Stage durations (R, S), launch and ready times of the reductions (R, K), device time of forward (R,), device (R,)."""
    own = {name: np.zeros(job.n_ranks) for name in (*NAMES, "forward_device", "forward_host", "comm")}
    if fault.where:
        own[fault.where][fault.rank] += fault.delay_s
    at, spent, micro = host.copy(), [], job.micro_steps
    forward_s = np.zeros(job.n_ranks)
    for number in range(micro):
        is_last = number == micro - 1
        first = 1.0 if number == 0 else 0.0
        at, took = _host(at, work["data"] / micro + first * own["data"])
        spent.append(took)
        began = at
        if job.sharded:
            at = np.full_like(at, at.max())  # weights are gathered: nobody goes on before everybody has come
        launch = (1 - job.device_share) * work["forward"] / micro + first * own["forward_host"]
        on_device = work["forward"] / micro + first * own["forward_device"]
        device = np.maximum(device, at) + on_device
        forward_s += on_device
        at = at + launch
        spent.append(at - began)
        began = at
        at, launched, ready, device = _backward(job, own, work["backward"] / micro, at, device, first, is_last=is_last)
        spent.append(at - began)
    for name in ("callback", "optimizer"):
        began = at
        at = at + work[name] + own[name]
        if job.barrier == name:
            at = np.full_like(at, at.max())
        spent.append(at - began)
    spent.append(work["other"])
    return np.stack(spent, axis=1), launched, ready, forward_s, device


def _host(at: Seconds, took: Seconds) -> tuple[Seconds, Seconds]:
    return at + took, took


def _backward(
    job: Job, own: dict[str, Seconds], work: Seconds, at: Seconds, device: Seconds, first: float, *, is_last: bool
) -> tuple[Seconds, Seconds, Seconds, Seconds]:
    """The host after backward, launch and ready times of the reductions, and the device."""
    launched, ready, done = [], [], np.zeros(job.n_ranks)
    for bucket in range(BUCKETS):
        if bucket == BUCKETS // 2:
            at = at + first * own["backward"]
        at = at + (1 - job.device_share) * work / BUCKETS
        launched.append(at)
        device = np.maximum(device, at - (1 - job.device_share) * work / BUCKETS) + work / BUCKETS
        entered = np.maximum(device, at) + (first * own["comm"] if bucket == BUCKETS // 2 else 0.0)
        ready.append(entered)
        device = np.maximum(device, entered)
        if is_last:
            done = np.maximum(done, np.full_like(at, entered.max()) + 0.0005)
    at = np.maximum(np.maximum(at, device), done) if is_last else np.maximum(at, device)
    return at, np.stack(launched, axis=1), np.stack(ready, axis=1), device


def window_of(made: Run, first_step: int = 0, rng: np.random.Generator | None = None) -> Window:
    """The rows of the run, as ingest would cut them, with one communicator of all ranks."""
    n_steps, n_ranks = made.began.shape
    zero = END_NS - int((made.began[-1] + made.durations[-1].sum(axis=1)).max() * 1e9)
    window = stage_window(made.durations, schema=made.job.schema, first_step=first_step)
    stage = window.rows("stage").copy()
    ended = zero + ((made.began + made.durations.sum(axis=2)) * 1e9).astype(np.int64)
    stage["ended_ns"] = ended[stage["step"] - first_step, stage["rank"]]
    ops = op_rows(
        (zero + made.launched * 1e9).astype(np.int64), (zero + made.ready * 1e9).astype(np.int64), range(n_ranks)
    )
    tables = {**window.tables, "stage": stage, "op": ops}
    if made.job.events:
        draws = (rng or np.random.default_rng(0)).random(n_steps)
        tables["side"] = _samples(made, stage, np.asarray(draws < made.job.events), first_step)
    return replace(window, tables=tables)


def _samples(
    made: Run, stage: npt.NDArray[np.void], is_sampled: npt.NDArray[np.bool_], first_step: int
) -> npt.NDArray[np.void]:
    rows = stage[(stage["part"] == 0) & is_sampled[stage["step"] - first_step]]
    side = np.zeros(len(rows), stage_window(made.durations[:1], schema=made.job.schema).rows("side").dtype)
    for name in ("rank", "step", "schema", "ended_ns", "global_rank", "pid"):
        side[name] = rows[name]
    side["value_ns"] = (made.device_s[rows["step"] - first_step, rows["rank"]] * 1e9).astype(np.int64)
    return joined("side", side, side["rank"].tolist())
