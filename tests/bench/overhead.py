"""What tracing costs a training job: the testbed with an empty plugin, with ours, and with ours and an agent.

`python -m tests.bench.overhead` (about 11 minutes; `--short` for one). The variants alternate within the same running
processes, in paired blocks (empty, plugin, agent; agent, plugin, empty; …), and only differences inside a block count;
intervals are bootstrapped over blocks (paired.py). Steps: 8 ranks on paced 200 Mbit/s links, default job, one agent for
all of them. Bandwidth: two ranks over unlimited loopback, so that callbacks and agent compete with the moving of bytes
for the machine's cores; few ops of large sizes. The headline figures are those with the agent.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nccl_instrument.testbed.settings import PLUGIN
from tests.bench.overhead_runs import STEP_LAYOUT, VARIANTS, Series, StepJob, Stretch, SweepJob, SweepSizes
from tests.bench.paired import Interval, difference, loss_pct, slowdown_pct

HERE = Path(__file__).parent
TESTBED, MIB, DAY_S, FLEET = HERE.parents[1] / "nccl_instrument" / "testbed", 1 << 20, 86_400, 10_000
STEP_AIM_PCT, TB_AIM, BLOCKS_MIN = 0.3, 1.5, 3


@dataclass(frozen=True)
class Plan:
    """Blocks are measured for that many seconds, and BLOCKS_MIN of each kind at least."""

    steps_s: float
    iterations: int
    steady_iterations: int  # in one piece, for what an agent uses and sends
    sweeps_s: float
    sizes: SweepSizes


@dataclass
class Measured:
    """Per variant, one entry per block; and the long stretch with an agent."""

    steps: dict[str, list[Stretch]]
    sweeps: dict[str, list[list[Series]]]
    steady: Stretch
    agent_mb: float
    plugin_mb: float


FULL = Plan(300, 10, 160, 300, SweepSizes(256 * MIB, 16 * MIB, 100))
SHORT = Plan(20, 5, 20, 10, SweepSizes(2 * MIB, 4 * MIB, 20))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.overhead", description=__doc__)
    parser.add_argument("--short", action="store_true", help="a few short blocks, sizes up to 2 MiB")
    plan = SHORT if parser.parse_args().short else FULL
    subprocess.run(["make", "-s", "-C", PLUGIN.parents[1], "all"], check=True)
    subprocess.run(["make", "-s", "-C", TESTBED], check=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="diogenes-bench-") as folder:
        empty = compile_empty(Path(folder))
        measured = measure(plan, empty)
    report = report_of(plan, measured, time.monotonic() - began)
    show(report)
    print(json.dumps(report))


def compile_empty(folder: Path) -> Path:
    empty = folder / "empty.so"
    source = HERE / "tracepoint_empty.c"
    subprocess.run(["gcc", "-std=gnu11", "-O2", "-shared", "-fPIC", source, "-o", empty], check=True)
    return empty


def measure(plan: Plan, empty: Path) -> Measured:
    both, steps = f"{empty}:{PLUGIN}", {variant: list[Stretch]() for variant in VARIANTS}
    with StepJob(both) as job:
        job.wait_for_agent()
        steady = job.stretch("agent", plan.steady_iterations)
        for block in blocks(plan.steps_s):
            for variant in in_order(block):
                steps[variant].append(job.stretch(variant, plan.iterations))
            tell("steps", block, [median_ms(steps[variant][-1]) for variant in VARIANTS])
        agent_mb = job.agent.mb
    with SweepJob(both, plan.sizes) as sweep:
        for block in blocks(plan.sweeps_s):
            tell("bandwidth", block, [1000 * sweep.run_pass(variant) for variant in in_order(block)])
        sweeps = sweep.series()
    return Measured(steps, sweeps, steady, agent_mb, rank_mb(PLUGIN) - rank_mb(empty))


def blocks(seconds: float) -> Iterator[int]:
    """Numbers of blocks until the time is over."""
    end, block = time.monotonic() + seconds, 0
    while block < BLOCKS_MIN or time.monotonic() < end:
        yield block
        block += 1


def in_order(block: int) -> tuple[str, ...]:
    return VARIANTS if block % 2 == 0 else VARIANTS[::-1]


def rank_mb(plugin: Path) -> float:
    """Resident memory of all ranks that load `plugin` alone."""
    with StepJob(str(plugin)) as job:
        job.reach(3)
        return job.rank_mb()


def tell(what: str, block: int, ms: list[float]) -> None:
    print(f"  {what} block {block + 1}" + "".join(f"{value:10.2f}" for value in ms) + " ms", flush=True)


def report_of(plan: Plan, measured: Measured, wall_s: float) -> dict[str, Any]:
    steady, n_ranks = measured.steady, STEP_LAYOUT.n_ranks
    tb_per_day = steady.sent_bytes / steady.seconds / n_ranks * FLEET * DAY_S / 1e12
    step, agent_cores = slower(measured, "agent", median_ms), steady.agent_cpu_s / steady.seconds
    rank_cores = more(measured, "plugin", lambda run: run.rank_cpu_s / run.seconds)
    return {
        "bench": "overhead",
        "cores": os.cpu_count(),
        "step_pct": rounded(step),
        "busbw_pct": rounded(bandwidth_lost(measured, "agent")),
        "cpu_pct": round(100 * (rank_cores["mid"] + agent_cores), 2),
        "mb": round(measured.plugin_mb + measured.agent_mb, 1),
        "bytes_per_iteration": round(steady.sent_bytes / len(steady.step_ms)),
        "tb_per_day_10k": round(tb_per_day, 2),
        "aims_met": {"step": step["upper95"] <= STEP_AIM_PCT, "tb_per_day_10k": tb_per_day <= TB_AIM},
        "details": details_of(plan, measured, wall_s),
    }


def details_of(plan: Plan, measured: Measured, wall_s: float) -> dict[str, Any]:
    steady = measured.steady
    rank_cores = more(measured, "plugin", lambda run: run.rank_cpu_s / run.seconds)
    return {
        "step_pct_plugin_alone": rounded(slower(measured, "plugin", median_ms)),
        "step_pct_of_means": rounded(slower(measured, "agent", lambda run: statistics.fmean(run.step_ms))),
        "busbw_pct_plugin_alone": rounded(bandwidth_lost(measured, "plugin")),
        "busbw": [series_of(measured, at) for at in range(len(measured.sweeps["empty"][0]))],
        "cpu_pct_ranks": {name: round(100 * value, 3) for name, value in rank_cores.items()},
        "cpu_pct_agent": round(100 * steady.agent_cpu_s / steady.seconds, 2),
        "mb_plugin": round(measured.plugin_mb, 1),
        "mb_agent": round(measured.agent_mb, 1),
        "node_bytes_per_s": round(steady.sent_bytes / steady.seconds),
        "step_ms": {name: round(statistics.median(map(median_ms, runs)), 3) for name, runs in measured.steps.items()},
        "step_blocks": len(measured.steps["empty"]),
        "iterations_per_block_and_variant": plan.iterations,
        "sweep_blocks": len(measured.sweeps["empty"]),
        "settings": f"{STEP_LAYOUT.n_ranks} ranks, 1 agent, ordinary scheduling; steps: paced 200 Mbit/s links; bandwidth: "
        f"2 ranks, unlimited loopback, sizes of 8 bytes to {plan.sizes.bytes_max}",
        "wall_s": round(wall_s),
    }


def slower(measured: Measured, variant: str, step_ms: Callable[[Stretch], float]) -> Interval:
    empty, treated = ([step_ms(run) for run in measured.steps[name]] for name in ("empty", variant))
    return slowdown_pct(empty, treated)


def more(measured: Measured, variant: str, what: Callable[[Stretch], float]) -> Interval:
    empty, treated = ([what(run) for run in measured.steps[name]] for name in ("empty", variant))
    return difference(empty, treated)


def bandwidth_lost(measured: Measured, variant: str) -> Interval:
    """Over all collectives and sizes alike."""
    seconds = {
        name: [[one.seconds_per_op for one in sweep] for sweep in runs] for name, runs in measured.sweeps.items()
    }
    return loss_pct(seconds["empty"], seconds[variant])


def series_of(measured: Measured, at: int) -> dict[str, Any]:
    """One collective at one size: bus bandwidth with the empty plugin, and what the others lose of it."""
    seconds = {name: [[sweep[at].seconds_per_op] for sweep in runs] for name, runs in measured.sweeps.items()}
    series = measured.sweeps["empty"][0][at]
    factor = {"AllGather": 0.5, "ReduceScatter": 0.5, "SendRecv": 2.0}.get(series.name, 1.0)  # of two ranks
    moved = factor * series.size_bytes / statistics.median(row[0] for row in seconds["empty"])
    return {
        "op": series.name,
        "bytes": series.size_bytes,
        "empty_mb_per_s": float(f"{moved / 1e6:.4g}"),
        "plugin": rounded(loss_pct(seconds["empty"], seconds["plugin"])),
        "agent": rounded(loss_pct(seconds["empty"], seconds["agent"])),
    }


def median_ms(run: Stretch) -> float:
    return statistics.median(run.step_ms)


def rounded(interval: Interval) -> Interval:
    return {name: round(value, 3) for name, value in interval.items()}


def show(report: dict[str, Any]) -> None:
    print(f"{'op':<15}{'bytes':>11}{'MB/s':>10}{'plugin loses':>26}{'with agent':>26}   (%, 95 % interval)")
    for one in report["details"]["busbw"]:
        cells = "".join(f"{_text(one[name]):>26}" for name in ("plugin", "agent"))
        print(f"{one['op']:<15}{one['bytes']:>11}{one['empty_mb_per_s']:>10}{cells}")
    alone = report["details"]["step_pct_plugin_alone"]
    print(f"step time: plugin {_text(alone)}, with agent {_text(report['step_pct'])} (%)", flush=True)


def _text(interval: Interval) -> str:
    return f"{interval['mid']:+.2f} [{interval['lower95']:+.2f}, {interval['upper95']:+.2f}]"


if __name__ == "__main__":
    main()
