"""What the agent costs its node: 8 ranks with 16 flows each, always in an op, for about 20 seconds.

`python -m tests.bench.agent [--untold] [--unmeasured]`. Every rank also tells how far it is (nccl_instrument/recorder.py),
unless --untold. Every flow that sends records its chunks, of which traffic is made, unless --unmeasured.
Real segments, a real server on loopback (in this process, so that its cost is not the agent's). CPU is what the kernel charged
the agent, memory its largest resident set, shared pages of segments included.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from nccl_instrument.agent.processes.proc import read_process
from nccl_instrument.wire import encode_batch
from tests.nccl_instrument.agent.scripted_server import ScriptedServer, wait_until
from tests.nccl_instrument.agent.scripted_trainer import ScriptedTrainer

RANKS, FLOWS, WARM_UP_S, MEASURED_S = 8, 16, 3, 20
TELLING = """
import os, sys, time
from pathlib import Path
from nccl_instrument import recorder
os.environ["DIOGENES_JOB"] = "bench"
from tests.nccl_instrument.agent import scripted_trainer
recorder.start(lambda: b"", Path(sys.argv[1]), steps=lambda: int(10 * time.monotonic()))
scripted_trainer.main()
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.agent", description=__doc__)
    parser.add_argument("--untold", action="store_true", help="ranks that run no recorder")
    parser.add_argument("--unmeasured", action="store_true", help="an agent that measures no traffic")
    given = parser.parse_args()
    is_told = not given.untold
    with tempfile.TemporaryDirectory(prefix="diogenes-bench-") as name:
        folder = Path(name)
        print(f"{RANKS} ranks × {FLOWS} flows, {MEASURED_S} s", flush=True)
        trainers = [start_trainer(folder, rank, is_told=is_told) for rank in range(RANKS)]
        server = ScriptedServer()
        agent = start_agent(folder, server.url, is_measuring=not given.unmeasured)
        try:
            report = measure(agent, server)
        finally:
            end(agent, trainers, server)
    print(json.dumps(report))


def start_trainer(folder: Path, rank: int, *, is_told: bool) -> ScriptedTrainer:
    code = {"code": TELLING} if is_told else {}
    trainer = ScriptedTrainer(folder / "segments", "bench", rank, **code)
    trainer.do("comm", 0, 0xBE7C4, rank, RANKS)
    trainer.tell("run", MEASURED_S + 30, FLOWS, 0.02)
    return trainer


def start_agent(folder: Path, url: str, *, is_measuring: bool) -> subprocess.Popen[bytes]:
    (folder / "token").write_text("bench")
    flags = ["--server", url, "--token-file", str(folder / "token"), "--spool", str(folder / "spool")]
    flags += ["--segments", str(folder / "segments"), "--node", "bench"]
    flags += [] if is_measuring else ["--traffic-rows-max", "0"]
    return subprocess.Popen([sys.executable, "-m", "nccl_instrument.agent", *flags])


def measure(agent: subprocess.Popen[bytes], server: ScriptedServer) -> dict[str, object]:
    wait_until(lambda: len(server.accepted) >= WARM_UP_S, 60)
    n_before, cpu_before, began = len(server.accepted), cpu_s(agent.pid), time.monotonic()
    peak_kb = anonymous_kb = 0
    while time.monotonic() - began < MEASURED_S:
        time.sleep(1)
        peak_kb, anonymous_kb = max(peak_kb, memory_kb(agent.pid, "VmRSS")), memory_kb(agent.pid, "RssAnon")
        print(f"  {time.monotonic() - began:4.0f} s  {peak_kb / 1024:.0f} MB", flush=True)
    seconds = time.monotonic() - began
    core_pct = 100 * (cpu_s(agent.pid) - cpu_before) / seconds
    batches = server.accepted[n_before:]
    size_bytes = sum(len(encode_batch(batch)) for batch in batches)
    n_flow_rows = sum(len(batch.rows("flow")) for batch in batches)
    print(f"{len(batches)} batches, {n_flow_rows} flow rows", flush=True)
    return {
        "bench": "agent", "cores": os.cpu_count(), "core_pct": round(core_pct, 2), "mb": round(peak_kb / 1024, 1),
        "node_bytes_per_s": round(size_bytes / seconds), "anonymous_mb": round(anonymous_kb / 1024, 1),
        "ranks": RANKS, "flows": FLOWS, "flow_rows_per_s": round(n_flow_rows / seconds),
        "traffic_rows_per_s": round(sum(len(batch.rows("traffic")) for batch in batches) / seconds),
        "told": max((len(np.unique(batch.rows("status")["pid"])) for batch in batches), default=0),
    }  # fmt: skip


def cpu_s(pid: int) -> float:
    started = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return read_process(pid, started).cpu_ns / 1e9


def memory_kb(pid: int, what: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(what + ":"))


def end(agent: subprocess.Popen[bytes], trainers: list[ScriptedTrainer], server: ScriptedServer) -> None:
    agent.send_signal(signal.SIGTERM)
    for trainer in trainers:
        trainer.kill()
    agent.wait()
    server.close()


if __name__ == "__main__":
    main()
