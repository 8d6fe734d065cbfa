"""A short live job on the testbed with the real plugin and the agents' own sweeps; their batches stay in memory.

What a simulated job is compared with: the same columns, from a job that really ran.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nccl_instrument.agent.nics import Nic, NicReader
from nccl_instrument.agent.processes.trainer import Bookmark
from nccl_instrument.agent.sending.losses import Losses
from nccl_instrument.agent.sweep import Sweep
from nccl_instrument.agent.traffic.sampling import ROWS_PER_S, Sampling
from nccl_instrument.testbed.settings import HERE as TESTBED_FOLDER
from nccl_instrument.wire import TraceBatch, decode_batch
from tests.nccl_instrument.testbed.jobs import REPO, RunningJob, wait_until

PLUGIN_FOLDER = TESTBED_FOLDER.parent / "plugin"


@dataclass
class LiveJob:
    """A running job; `arrived` grows by a batch per node and second: (unix ns, encoded)."""

    running: RunningJob
    arrived: list[tuple[int, bytes]] = field(default_factory=list)

    def take(self, batches: Sequence[tuple[str, bytes]], bookmarks: Mapping[str, Bookmark]) -> None:
        self.arrived += [(time.time_ns(), encoded) for _, encoded in batches]

    def record(self, seconds: float) -> list[TraceBatch]:
        """The batches of the next seconds."""
        first = len(self.arrived)
        time.sleep(seconds)
        return [decode_batch(encoded) for _, encoded in self.arrived[first:]]

    def everything(self) -> list[TraceBatch]:
        """All batches so far."""
        return [decode_batch(encoded) for _, encoded in list(self.arrived)]

    def inject(self, fault: str, **words: Any) -> None:
        assert self.running.ask("inject", fault=fault, **words)["ok"]

    def heal(self, fault: str) -> None:
        assert self.running.ask("heal", fault=fault)["ok"]
        time.sleep(1)


@contextmanager
def live_job(folder: Path, *words: str, rows_per_s: int = ROWS_PER_S, **environment: str) -> Iterator[LiveJob]:
    """2 × 2 × 2 on four nodes with the testbed's own sizes, as simulate's TESTBED. rows_per_s: of traffic, of a node."""
    for built in (TESTBED_FOLDER, PLUGIN_FOLDER):
        subprocess.run(["make", "-s", "-C", str(built)], check=True)
    command = [
        sys.executable,
        "-m",
        "nccl_instrument.testbed",
        "run",
        "--run-dir",
        str(folder),
        "--job",
        "live",
        *words,
    ]
    log = (folder.parent / "testbed.log").open("wb")
    process = subprocess.Popen(command, cwd=REPO, env=os.environ | environment, stdout=log, stderr=subprocess.STDOUT)
    job, stopped = LiveJob(RunningJob(folder, process)), threading.Event()
    threads: list[threading.Thread] = []
    readers: list[NicReader] = []
    try:
        wait_until(job.running.has_started, f"the job does not start: see {log.name}", 60)
        for node in job.running.manifest()["nodes"]:
            reader = NicReader([Nic(nic["name"], Path(nic["sysfs"])) for nic in node["nics"]])
            sweep = Sweep(
                [Path(node["segment_dir"])],
                node["name"],
                "",
                reader,
                Losses(),
                {},
                job.take,
                Sampling(rows_per_s=rows_per_s),
            )
            threads.append(threading.Thread(target=sweep.run, args=(stopped,), daemon=True))
            readers.append(reader)
        for thread in (*readers, *threads):
            thread.start()
        wait_until(lambda: job.running.iteration() >= 3, "the job does not train", 60)
        yield job
    finally:
        stopped.set()
        for thread in threads:
            thread.join(10)
        for reader in readers:
            reader.stop()
        process.terminate()
        process.wait(30)
        log.close()
