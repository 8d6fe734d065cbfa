"""A real PyTorch job over gloo for the suite `torch`: one process per rank, a fault put in while it trains.

torch lives in an environment of its own, which the Makefile makes; the job needs from us the recorder only. Ranks are
started as torchrun starts them, in a session of their own, and every one of them is ended whatever happens.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from tests.eval.torch_cases import TorchCase

ROOT: Final = Path(__file__).resolve().parents[2]
PYTHON: Final = ROOT / ".venv-torch" / "bin" / "python"
SCRIPT: Final = Path(__file__).with_name("torch_jobs") / "train.py"
START_SECONDS: Final = 180.0
STEPS_AHEAD: Final = 40  # the first rank says every twentieth step
TRAIN_STEPS: Final = 60  # long enough for the recorder's first dump, which takes seconds, and for a checkpoint


class TorchFailed(RuntimeError):
    """The job did not train; the message holds the end of what its first rank printed."""


class TorchJob:
    """`with TorchJob(case, folder, name) as job:` trains until the block ends. pids: by rank."""

    def __init__(self, case: TorchCase, folder: Path, name: str) -> None:
        self.case, self.folder, self.name = case, folder, name
        self.control, self.segments = folder / "control", folder / "segments"
        self.ranks: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        for path in (self.control, self.segments):
            path.mkdir(parents=True)
        port = _free_port()
        try:
            for rank in range(self.case.n_ranks):
                self.ranks.append(self._start(rank, port))
            self.wait_for_step(TRAIN_STEPS)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    @property
    def pids(self) -> dict[int, int]:
        return {rank: process.pid for rank, process in enumerate(self.ranks)}

    @property
    def nodes(self) -> list[str]:
        return sorted({self.segment_folder(rank).name for rank in self.pids})

    def trainers_of(self, node: str) -> dict[int, int]:
        return {rank: pid for rank, pid in self.pids.items() if self.segment_folder(rank).name == node}

    def segment_folder(self, rank: int) -> Path:
        """Where the rank's node keeps what an agent reads: several nodes are played on one machine."""
        return self.segments / f"node{rank // self.case.ranks_per_node}"

    def _start(self, rank: int, port: int) -> subprocess.Popen[bytes]:
        node, local = divmod(rank, self.case.ranks_per_node)
        self.segment_folder(rank).mkdir(exist_ok=True)
        environment = {
            **os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "DIOGENES_JOB": self.name,
            "DIOGENES_SEGMENT_DIR": str(self.segment_folder(rank)), "RANK": str(rank), "LOCAL_RANK": str(local),
            "WORLD_SIZE": str(self.case.n_ranks), "LOCAL_WORLD_SIZE": str(self.case.ranks_per_node),
            "GROUP_RANK": str(node), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
            "TORCH_FR_BUFFER_SIZE": "2000", "TORCH_FR_DUMP_TEMP_FILE": str(self.folder / "torch_trace_"),
            "TORCH_RESTART_COUNT": "0",
        }  # fmt: skip
        argv = [str(PYTHON), str(SCRIPT), "--control", str(self.control), *self.case.arguments]
        with (self.folder / f"rank{rank}.log").open("wb") as log:
            return subprocess.Popen(argv, env=environment, stdout=log, stderr=log, start_new_session=True, cwd="/")

    def step(self) -> int:
        """The newest step the first rank has said, -1 before."""
        with contextlib.suppress(OSError, ValueError):
            return int((self.control / "step").read_text())
        return -1

    def wait_for_step(self, step: int) -> None:
        deadline = time.monotonic() + START_SECONDS
        while self.step() < step:
            if time.monotonic() > deadline or any(one.poll() is not None for one in self.ranks):
                raise TorchFailed((self.folder / "rank0.log").read_text()[-2000:])
            time.sleep(0.2)

    def inject(self) -> float:
        """Put the fault in; unix time at which the first victim met it."""
        if self.case.fault == "stopped":
            for rank in self.case.victims:
                os.kill(self.ranks[rank].pid, signal.SIGSTOP)
            return time.time()
        if self.case.fault == "killed":
            for rank in self.case.victims:
                os.kill(self.ranks[rank].pid, signal.SIGKILL)
            return time.time()
        part = self.control / "fault.part"
        fault = {"fault": self.case.fault, "victims": self.case.victims, "how": self.case.how}
        part.write_text(json.dumps({**fault, "at_step": self.step() + STEPS_AHEAD}))
        part.replace(self.control / "fault.json")
        deadline = time.monotonic() + START_SECONDS
        while not any((self.control / f"met-{rank}").exists() for rank in self.case.victims):
            if time.monotonic() > deadline:
                raise TorchFailed("no victim met its fault")
            time.sleep(0.05)
        return time.time()

    def stop(self) -> None:
        for process in self.ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # its data-loader workers, too
        for process in self.ranks:
            process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port
