"""A live DDP job over gloo with a tiny model, whose ranks record their stages: started by tests/eval/stages_job.py.

Every rank leaves FOLDER/rank-R.json with its steps; what was done to whom is in FOLDER/truth.json, which the analysis never
reads. Compute is time that the host or a modelled device spends; collectives, DDP, its buckets and its waits are real. The
device is a thread with a queue, as a CUDA stream is one: the host only launches, and waits for it where it needs a result.
Delays are put where the scenario says, in one rank, in every measured step. Runs where torch is, without numpy.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import sys
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, ShardingStrategy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from nccl_instrument.stage_events import Events
from nccl_instrument.stage_gather import Gather, open_gather
from nccl_instrument.stage_records import SideRecord, StepRecord
from nccl_instrument.stage_ring import open_road
from nccl_instrument.stage_schema import BACKWARD, CALLBACKS, DATA, DEFAULT, FORWARD, OPTIMIZER, Schema
from nccl_instrument.stages import Stages
from tests.eval.torch_jobs.device import Device, Event, compute, spend

SCENARIOS: Final = {
    "none": "",
    "data": DATA,
    "forward_host": FORWARD,
    "forward_device": FORWARD,
    "forward_compute": FORWARD,
    "backward": BACKWARD,
    "comm": BACKWARD,
    "callback_sync": CALLBACKS,
    "callback_host": CALLBACKS,
    "optimizer_host": OPTIMIZER,
}
"""Scenario → the stage the delay is put into; forward_compute works all the while. callback_host and optimizer_host are
controls: nobody waits for them there."""
SHARES: Final = {DATA: 0.06, FORWARD: 0.24, BACKWARD: 0.50, CALLBACKS: 0.04, OPTIMIZER: 0.14}
"""Of --base-ms, where no fault is: what a bf16 transformer spends, roughly."""
MICRO: Final = ("data", "forward_host", "forward_device", "forward_compute", "backward", "comm")
JITTER: Final = 0.03
TURNS: Final = ((False, False), (True, False), (True, True), (False, False))
"""Of a block (E1): not recorded, recorded by the host's clock, with sampled device times too, not recorded again."""
NOTHING: Final[Any] = contextlib.nullcontext()
DEVICE_SHARE: Final = 0.8
"""Of the forward's host time the device is busy, beside it."""


class Collected:
    """The sink that becomes rank-R.json."""

    def __init__(self) -> None:
        self.steps: list[list[Any]] = []
        self.sides: list[list[int]] = []

    def step(self, record: StepRecord, schema: Schema) -> None:
        self.steps.append(
            [
                record.step, record.wall_ns, record.overlap_ns, record.flags, record.repeats, record.ended_ns,
                list(record.durations_ns),
            ]
        )  # fmt: skip

    def side(self, record: SideRecord, schema: Schema) -> None:
        self.sides.append([record.step, record.channel, record.value_ns])

    def ended(self, step: int) -> None:
        pass


@dataclass
class Rank:
    """One rank's training loop."""

    options: argparse.Namespace
    rank: int

    def __post_init__(self) -> None:
        options = self.options
        torch.manual_seed(0)
        self.device, self.draw = Device(), random.Random(options.seed * 1000 + self.rank)
        self.model = self._wrapped(torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.Linear(64, 32)))
        parameters = self.model.parameters()
        self.optimizer = (
            ZeroRedundancyOptimizer(parameters, torch.optim.SGD, lr=1e-3)
            if options.zero
            else torch.optim.SGD(parameters, lr=1e-3)
        )
        self.batch = torch.ones(4, 32)
        self.stages = self._recorder()
        self.collected = Collected()
        self.stages.send_to(self.collected)
        self.now = 0
        self.micro = 0
        self.blocks: list[list[float]] = []

    def _wrapped(self, model: Any) -> Any:
        """FSDP with FULL_SHARD, or DDP with a hook that begins a reduction late. Without it comm is in backward's span."""
        if self.options.fsdp:
            return FullyShardedDataParallel(
                model, sharding_strategy=ShardingStrategy.FULL_SHARD, device_id=torch.device("cpu")
            )
        made = DistributedDataParallel(model)
        made.register_comm_hook(None, self._reduce)
        return made

    def _recorder(self) -> Stages:
        options, schema = self.options, DEFAULT
        if options.accumulation > 1:
            schema = (
                DEFAULT.folded(options.accumulation) if options.collapsed else DEFAULT.accumulated(options.accumulation)
            )
        events = Events(options.event_share, lambda: Event(self.device))
        stages = Stages(schema, events=events, synchronous=True)
        if "agent" in options.road:
            open_road(stages)
        if "gather" in options.road:
            self.gather = open_gather(stages, steps=options.gather_steps)
        return stages

    # ---- what a step spends ---------------------------------------------------------------------------------------------

    def base(self, stage: str) -> float:
        """Seconds of a stage without a fault, spread over micro-steps."""
        of_micro = self.options.accumulation if stage in (DATA, FORWARD, BACKWARD) else 1
        seconds = self.options.base_ms / 1e3 * SHARES[stage] / of_micro
        return max(seconds * (1 + JITTER * self.draw.gauss(0, 1)), 0)

    def delay(self, scenario: str) -> float:
        """Seconds the fault adds here and now: in the hidden rank, in the steps and the micro-step it is meant for."""
        options = self.options
        is_mine = self.rank == options.hidden_rank and options.scenario == scenario
        is_time = (
            options.fault_from <= self.now < options.fault_to and (self.now - options.fault_from) % options.every == 0
        )
        last = options.accumulation - 1  # which is the one that is reduced
        is_micro = scenario not in MICRO or self.micro == (last if scenario == "comm" else min(options.micro, last))
        return options.delay_ms / 1e3 if is_mine and is_time and is_micro else 0.0

    def _reduce(self, _: Any, bucket: Any) -> Any:
        """DDP's allreduce of a bucket, which a slow network path begins late."""
        spend(self.delay("comm") if bucket.is_last() else 0)
        work = dist.all_reduce(bucket.buffer().div_(dist.get_world_size()), async_op=True)
        return work.get_future().then(lambda done: done.value()[0])

    _reduce.__annotations__ = {"bucket": dist.GradBucket, "return": torch.futures.Future[torch.Tensor]}  # DDP asks

    def sync(self, *names: str) -> None:
        """With --sync all ranks meet in the span of the fault, while it lasts: what is waited for there is exposed there."""
        options = self.options
        is_time = options.fault_from <= self.now < options.fault_to
        is_micro = self.micro == min(options.micro, options.accumulation - 1) or "callback_sync" in names
        if options.sync and is_time and is_micro and options.scenario in names:
            dist.barrier()

    def _range(self, label: str) -> Any:
        return torch.profiler.record_function(label) if self.is_profiled else NOTHING

    @contextlib.contextmanager
    def _stage(self, name: str, micro: int | None = None) -> Iterator[None]:
        stage = self.stages.stage(name, micro) if self.is_recorded else NOTHING
        with stage, self._range(name if micro is None else f"{name}[{micro}]"):
            yield

    def step(self) -> None:
        options = self.options
        folded = options.accumulation == 1 or options.collapsed
        with self.stages.step() if self.is_recorded else NOTHING, self._range("step"):
            for micro in range(options.accumulation):
                self.micro = micro
                is_last = micro == options.accumulation - 1
                with NOTHING if is_last else self.model.no_sync():
                    self._micro_step(None if folded else micro)
            with self._stage(CALLBACKS):
                self._callbacks()
            with self._stage(OPTIMIZER):
                spend(self.base(OPTIMIZER))
                self.optimizer.step()
                self.optimizer.zero_grad()
                spend(self.delay("optimizer_host"))
        self.now += 1

    def _micro_step(self, micro: int | None) -> None:
        with self._stage(DATA, micro):
            spend(self.base(DATA) + self.delay("data"))
            self.sync("data")
        forward, is_timed = self.base(FORWARD), self.is_recorded and self.is_timed and self.options.event_share
        with self._stage(FORWARD, micro), self.stages.device_time() if is_timed else NOTHING:
            self.device.launch(forward * DEVICE_SHARE + self.delay("forward_device"))
            spend(forward + self.delay("forward_host"))
            compute(self.delay("forward_compute"))
            self.sync("forward_host", "forward_compute")
            loss = self.model(self.batch).square().mean()
        with self._stage(BACKWARD, micro):
            self.device.synchronize()
            spend(self.base(BACKWARD) + self.delay("backward") + (self.delay("comm") if self.options.fsdp else 0))
            self.sync("backward", "comm" if self.options.fsdp else "backward")
            loss.backward()

    def _callbacks(self) -> None:
        spend(self.base(CALLBACKS) + self.delay("callback_sync") + self.delay("callback_host"))
        is_time = self.options.fault_from <= self.now < self.options.fault_to
        if self.options.scenario == "callback_sync" and is_time:
            dist.barrier()

    # ---- runs -----------------------------------------------------------------------------------------------------------

    is_recorded, is_timed, is_profiled = True, True, False
    gather: Gather | None = None

    def run(self) -> dict[str, Any]:
        options = self.options
        n = options.warmup + options.steps
        if options.blocks:
            self._run_blocks(n)
        elif options.profile:
            self._run_profiled()
        else:
            for _ in range(n):
                self.step()
        dist.barrier()
        self.stages.end(is_broken=True)  # late device times are still asked after
        if self.gather is not None:
            self.gather.close(20.0)
        schema = self.stages.schema
        return {
            "rank": self.rank, "world_size": options.ranks, "warmup": options.warmup,
            "schema": {"stages": schema.stages, "micro_steps": schema.micro_steps, "parents": schema.parents,
                       "sides": schema.sides},
            "columns": ["step", "wall_ns", "overlap_ns", "flags", "repeats", "ended_ns", "durations_ns"],
            "steps": self.collected.steps, "sides": self.collected.sides, "blocks": self.blocks,
            "counts": {name: getattr(self.stages.counts, name) for name in self.stages.counts.__dataclass_fields__},
        }  # fmt: skip

    def _run_blocks(self, n: int) -> None:
        """Turns of every kind in each block, in an order that goes round, so that what drifts falls on all of them. Two of the
        kinds are not recorded at all: what they differ by is the machine's doing."""
        for _ in range(self.options.warmup):
            self.step()
        for block in range(self.options.blocks):
            first = block % len(TURNS)
            for kind in (*range(first, len(TURNS)), *range(first)):
                self.is_recorded, self.is_timed = TURNS[kind]
                dist.barrier()
                began = time.perf_counter()
                for _ in range(self.options.steps):
                    self.step()
                dist.barrier()
                self.blocks.append([block, float(kind), time.perf_counter() - began])

    def _run_profiled(self) -> None:
        """`--profile N`: N steps behind the warm-up are captured by torch.profiler, with the stages as ranges."""
        for _ in range(self.options.warmup):
            self.step()
        self.is_profiled = True
        began = time.perf_counter()
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            for _ in range(self.options.profile):
                self.step()
        captured = time.perf_counter() - began
        self.is_profiled = False
        profiler.export_chrome_trace(str(self.options.out / f"trace-{self.rank}.json"))
        began = time.perf_counter()
        for _ in range(self.options.profile):
            self.step()
        self.blocks = [[0, 1.0, captured], [0, 0.0, time.perf_counter() - began]]


def run_rank(rank: int, options: argparse.Namespace) -> None:
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(options.ranks), "LOCAL_RANK": str(rank)}
    os.environ.setdefault("DIOGENES_JOB", f"stages-{options.scenario}")
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=f"file://{options.out}/store", rank=rank, world_size=options.ranks)
        made = Rank(options, rank).run()
        part = options.out / f"rank-{rank}.part"
        part.write_text(json.dumps(made, separators=(",", ":")))
        part.replace(options.out / f"rank-{rank}.json")
        dist.destroy_process_group()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)  # without waiting for threads of a backend that nobody needs any more


def main() -> int:
    options = parse(sys.argv[1:])
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "store").unlink(missing_ok=True)
    truth = {name: value for name, value in vars(options).items() if name != "out"} | {
        "stage": SCENARIOS[options.scenario]
    }
    (options.out / "truth.json").write_text(json.dumps(truth))
    fork = multiprocessing.get_context("fork")  # torch is imported once
    ranks = [fork.Process(target=run_rank, args=(rank, options)) for rank in range(options.ranks)]
    for process in ranks:
        process.start()
    deadline = time.monotonic() + options.seconds_max
    for process in ranks:
        process.join(max(deadline - time.monotonic(), 0.1))
    for process in ranks:
        if process.is_alive():
            process.kill()
            process.join()
    failed = [rank for rank, process in enumerate(ranks) if process.exitcode]
    if failed:
        print(f"ranks {failed} failed", file=sys.stderr)
    return int(bool(failed))


def _ranges(text: str) -> Iterator[int]:
    yield from (int(one) for one in text.split(":"))


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--out", type=Path, required=True)
    add("--scenario", choices=tuple(SCENARIOS), default="none")
    add("--ranks", type=int, default=8)
    add("--hidden-rank", type=int, default=0)
    add("--delay-ms", type=float, default=120.0)
    add("--base-ms", type=float, default=87.0, help="a step without fault and without collectives")
    add("--steps", type=int, default=120, help="measured steps; of one turn of a block with --blocks")
    add("--warmup", type=int, default=20)
    add("--seed", type=int, default=0)
    add("--every", type=int, default=1, help="the fault comes every so many steps: 10 is a periodic one")
    add("--fault", default="", help="FROM:TO, measured steps with the fault (default all): 120:240 of 360 is A/B/A")
    add("--accumulation", type=int, default=1)
    add("--micro", type=int, default=1, help="the micro-step the fault is in")
    add("--collapsed", action="store_true", help="fold micro-steps into the broad stages")
    add("--event-share", type=float, default=0.0, help="share of the steps whose device time is sampled")
    add("--fsdp", action="store_true", help="FullyShardedDataParallel, FULL_SHARD, in place of DDP")
    add("--sync", action="store_true", help="a barrier in the span of the fault, while it lasts")
    add("--zero", action="store_true", help="ZeroRedundancyOptimizer, whose step gathers what it sharded")
    add("--road", action="append", default=[], choices=("agent", "gather"), help="beside rank-R.json")
    add("--gather-steps", type=int, default=120)
    add("--blocks", type=int, default=0, help="so many blocks of turns, recorded and not (E1)")
    add("--profile", type=int, default=0, help="so many steps under torch.profiler, then as many without (E9)")
    add("--seconds-max", type=float, default=600.0)
    options = parser.parse_args(arguments)
    first, last = _ranges(options.fault) if options.fault else (0, 10**9)
    options.fault_from, options.fault_to = options.warmup + first, options.warmup + last
    return options


if __name__ == "__main__":
    sys.exit(main())
