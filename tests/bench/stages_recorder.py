"""What recording stages costs a training loop, and how many bytes its steps take on their way.

`python -m tests.bench.stages_recorder` prints the recorder's half of the bench `stages`: nanoseconds per stage and step with
the ring in shared memory behind it, as per cent of steps of 10 and 100 ms; the bytes of a packet, which is the stage section
of a trace batch for 32 ranks × 40 steps, as measured durations compress; and what the agent takes to read a second of them.
Times are of the processor: the recorder waits for nobody, and what others do on the machine is not its cost.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from nccl_instrument.agent.stages.files import StageFiles
from nccl_instrument.stage_ring import Ring
from nccl_instrument.stage_schema import BACKWARD, CALLBACKS, DATA, DEFAULT, FORWARD, OPTIMIZER
from nccl_instrument.stages import Stages
from nccl_instrument.wire import TraceBatch, encode_batch
from tests.stages import stage_tables

RUNS, STEPS = 7, 20_000
FIVE = (DATA, FORWARD, BACKWARD, CALLBACKS, OPTIMIZER)
PACKET_RANKS, PACKET_STEPS = 32, 40
JITTER = 0.05
NODE_RANKS = 8


def main() -> None:
    figures = recorder_figures()
    alone = figures["ns_per_step_alone"]
    print(f"a step of five stages: {figures['ns_per_step']:,} ns recorded and sent; {alone:,} ns without a sink")
    print(f"of a 10 ms step {figures['step_pct']['10']} %, of 100 ms {figures['step_pct']['100']} %")
    print(f"{figures['packet_bytes']:,} bytes for {PACKET_RANKS} ranks × {PACKET_STEPS} steps; "
          f"{figures['node_bytes_per_s']:,} a node-second of 8 ranks at 10 steps a second")  # fmt: skip
    print(json.dumps({"bench": "stages_recorder", "cores": os.cpu_count(), **figures}))


def recorder_figures() -> dict[str, Any]:
    """The keys of the bench `stages` that are the recorder's, and some more."""
    alone, sent = (statistics.median(_ns_per_step(is_sent) for _ in range(RUNS)) for is_sent in (False, True))
    return {
        "ns_per_stage": round(sent / len(FIVE)), "ns_per_step": round(sent), "ns_per_step_alone": round(alone),
        "step_pct": {str(ms): round(100 * sent / (ms * 1e6), 4) for ms in (10, 100)},
        "packet_bytes": packet_bytes(PACKET_RANKS, PACKET_STEPS), "node_bytes_per_s": packet_bytes(NODE_RANKS, 10),
        "agent_ms_per_s": round(_agent_ms(), 2),
    }  # fmt: skip


def packet_bytes(n_ranks: int, n_steps: int) -> int:
    """Of a trace batch with nothing but stages: durations of a 200 ms step as they scatter, to the nanosecond."""
    draw = np.random.default_rng(1)
    usual = np.array([12.0, 50, 100, 8, 28, 2])
    durations = usual * draw.normal(1, JITTER, (n_steps, n_ranks, len(usual))).clip(0.1)
    tables = stage_tables(durations)
    return len(encode_batch(TraceBatch("job", "node", bytes(16), 0, 10**18, 10**15, tables)))


def _ns_per_step(is_sent: bool) -> float:
    with tempfile.TemporaryDirectory(prefix="diogenes-bench-", dir=_memory()) as folder:
        stages = Stages()
        if is_sent:
            stages.send_to(Ring(stages, Path(folder)))
        began = time.thread_time_ns()
        _train(stages, STEPS)
        with_stages = time.thread_time_ns() - began
        began = time.thread_time_ns()
        for _ in range(STEPS):
            for _ in FIVE:
                pass
        return (with_stages - (time.thread_time_ns() - began)) / STEPS


def _train(stages: Stages, n_steps: int) -> None:
    stage = stages.stage
    for _ in range(n_steps):
        with stages.step():
            for name in FIVE:
                with stage(name):
                    pass


def _agent_ms() -> float:
    """To read a second of eight ranks at ten steps a second, once a second."""
    with tempfile.TemporaryDirectory(prefix="diogenes-bench-", dir=_memory()) as folder:
        os.environ["DIOGENES_JOB"] = "bench"
        all_stages = [Stages() for _ in range(NODE_RANKS)]
        for stages in all_stages:
            stages.send_to(Ring(stages, Path(folder)))
        files, taken = StageFiles([Path(folder)], lambda *_: None), []
        for _ in range(RUNS):
            for stages in all_stages:
                _train(stages, 10)
            files._rings.clear()  # a process does not see its own locks: as if they were another's
            files.look()
            began = time.perf_counter_ns()
            files.tables("bench", time.monotonic_ns())
            taken.append((time.perf_counter_ns() - began) / 1e6)
        return statistics.median(taken)


def _memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    assert DEFAULT.stages[:5] == FIVE
    main()
