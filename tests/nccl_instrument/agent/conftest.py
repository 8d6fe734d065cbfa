"""A node for the agent's tests: a folder of segments, a server, trainers, and the agent as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ingest.door.impossible import impossible_rows
from nccl_instrument.wire import TraceBatch

from .scripted_server import ScriptedServer, wait_until
from .scripted_trainer import ScriptedTrainer

# `python -m nccl_instrument.agent` with seconds that last a third of one.
PROGRAM = """
import sys
from ingest.door.impossible import impossible_rows
from nccl_instrument.agent import __main__, sweep
from nccl_instrument.agent.sending import uplink
def broken(*arguments):
    raise RuntimeError("a bug")
sweep.SWEEP_NS //= 3
{bug}
sys.exit(__main__.main())
"""


class Node:
    """One node; everything it starts it also ends."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.segments = folder, folder / "segments"
        self.server = ScriptedServer()
        self.log = folder / "agent.log"
        self.trainers: list[ScriptedTrainer] = []
        self.agent: subprocess.Popen[bytes] | None = None
        (folder / "token").write_text("token")

    def start_agent(self, *flags: str, bug: str = "", **environment: str) -> None:
        command = [sys.executable, "-c", PROGRAM.format(bug=bug), "--server", self.server.url, "--node", "node-a"]
        command += ["--token-file", str(self.folder / "token"), "--spool", str(self.folder / "spool"), *flags]
        surroundings = os.environ | {"DIOGENES_SEGMENT_DIR": str(self.segments)} | environment
        with self.log.open("ab") as log:
            self.agent = subprocess.Popen(command, stderr=log, env=surroundings)

    def stop_agent(self, number: int = signal.SIGTERM) -> None:
        assert self.agent is not None
        self.agent.send_signal(number)
        assert self.agent.wait(15) == (0 if number == signal.SIGTERM else -number)
        self.agent = None

    def trainer(self, job: str = "job", rank: int = 0, **identity: Any) -> ScriptedTrainer:
        trainer = ScriptedTrainer(self.segments, job, rank, **identity)
        self.trainers.append(trainer)
        return trainer

    def batches(self, job: str = "job") -> list[TraceBatch]:
        return [batch for batch in self.server.accepted if batch.job == job]

    def rows(self, table: str, job: str = "job", since: int = 0) -> np.ndarray:
        return np.concatenate([batch.rows(table) for batch in self.batches(job)[since:]] or [np.zeros(0)])

    def next_batches(self, n_batches: int = 2, job: str = "job") -> list[TraceBatch]:
        """The batches after those that have already come."""
        n_seen = len(self.batches(job))
        wait_until(lambda: len(self.batches(job)) >= n_seen + n_batches)
        return self.batches(job)[n_seen:]

    def close(self) -> None:
        for trainer in self.trainers:
            if trainer.process.poll() is None:
                trainer.kill()
        if self.agent is not None:
            self.agent.kill()
            self.agent.wait()
        self.server.close()


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path)
    yield node
    node.close()
    for batch in node.server.accepted:
        for table, rows in batch.tables.items():
            assert not impossible_rows(table, rows, batch.mono_ns).any(), f"{table} of batch {batch.number}"
