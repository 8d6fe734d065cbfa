"""Runs the real testbed for tests, asks its control socket and reads what the recorder plugin wrote down."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nccl_instrument.testbed.control import ask

REPO = Path(__file__).resolve().parents[3]
LIMIT_S = 30.0
ORDINARY = {"DIOGENES_TESTBED_REALTIME": "0"}  # several jobs run at once here
# A quick small job: the mechanism is the same, only the times are short.
QUICK = ["--forward-ms", "3", "--backward-ms", "6", "--optimizer-ms", "1", "--pp-kib", "128", "--dp-kib", "256"]
IS_ROOT = os.geteuid() == 0


def command(run_folder: Path, *words: str) -> list[str]:
    start = [sys.executable, "-m", "nccl_instrument.testbed", "run", "--run-dir", str(run_folder)]
    return [*start, *QUICK, *words]


def run_job(run_folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a job to its end."""
    words = words if "--plugin" in words else ("--plugin", "none", *words)
    return subprocess.run(
        command(run_folder, *words),
        cwd=REPO,
        env=os.environ | ORDINARY | environment,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


@dataclass
class RunningJob:
    folder: Path
    process: subprocess.Popen[bytes]

    def has_started(self) -> bool:
        assert self.process.poll() is None, "the testbed ended before it began"
        return (self.folder / "manifest.json").exists()

    def ask(self, do: str, **words: Any) -> dict[str, Any]:
        return ask(self.folder, {"do": do, **words})

    def status(self) -> dict[str, Any]:
        return self.ask("status")

    def manifest(self) -> dict[str, Any]:
        return json.loads((self.folder / "manifest.json").read_text())

    def iteration(self) -> int:
        return self.status()["iteration"]

    def trains(self) -> None:
        """Returns once two more iterations are done: the second began after the call."""
        goal = self.iteration() + 2
        wait_until(lambda: self.iteration() >= goal, "the job does not go on")

    def hangs(self) -> None:
        """Returns once no op has ended for half a second."""

        def stands_still() -> bool:
            before = self._n_ops_done()
            time.sleep(0.5)
            return self._n_ops_done() == before

        wait_until(stands_still, "the job does not hang")

    def _n_ops_done(self) -> int:
        return sum(rank["n_ops_done"] for rank in self.status()["ranks"])

    def iteration_ms(self, n: int = 2) -> float:
        """Mean wall time of the next n iterations."""
        first, began = self.iteration(), time.monotonic()
        wait_until(lambda: self.iteration() >= first + n, "the job does not go on")
        return (time.monotonic() - began) * 1000 / (self.iteration() - first)


@contextmanager
def running_job(run_folder: Path, *words: str, **environment: str) -> Iterator[RunningJob]:
    """A job in the background; killed at the end if it still runs."""
    words = words if "--plugin" in words else ("--plugin", "none", *words)
    log = (run_folder.parent / f"{run_folder.name}.log").open("wb")
    process = subprocess.Popen(
        command(run_folder, *words),
        cwd=REPO,
        env=os.environ | ORDINARY | environment,
        stdout=log,
        stderr=subprocess.STDOUT,
    )
    job = RunningJob(run_folder, process)
    try:
        wait_until(lambda: job.has_started(), f"the job does not start: see {log.name}")
        wait_until(lambda: job.iteration() >= 1, "the job does not train")
        yield job
    finally:
        process.terminate()
        process.wait(LIMIT_S)
        log.close()


def wait_until(is_so: Callable[[], bool], complaint: str, limit_s: float = LIMIT_S) -> None:
    deadline = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < deadline, complaint
        time.sleep(0.03)


@dataclass
class Started:
    """A startEvent call and all that followed on its handle, in order."""

    handle: int
    type: int
    context: int
    parent: int
    rank: int
    thread: int
    fields: list[str]
    states: list[tuple[int, int]] = field(default_factory=list)  # (state, size)
    is_stopped: bool = False
    place: int = 0  # line numbers in the log
    stop_place: int = 0


@dataclass
class Recording:
    communicators: dict[int, list[str]]
    started: dict[int, Started]
    finalized: list[int]

    def of_type(self, kind: int) -> list[Started]:
        return [s for s in self.started.values() if s.type == kind]

    def children(self, parent: Started, kind: int) -> list[Started]:
        return [s for s in self.of_type(kind) if s.parent == parent.handle]


def read_recording(path: Path) -> Recording:
    recording = Recording({}, {}, [])
    whole_lines = path.read_text().rpartition("\n")[0].splitlines()  # a live job may be in the middle of one
    for place, line in enumerate(whole_lines):
        thread, call, *rest = line.split()
        if call == "init":
            recording.communicators[int(rest[0])] = rest[1:]
        elif call == "start":
            context, handle, kind, parent, rank = map(int, rest[:5])
            started = Started(handle, kind, context, parent, rank, int(thread), rest[5:], place=place)
            recording.started[handle] = started
        elif call == "record":
            recording.started[int(rest[0])].states.append((int(rest[1]), int(rest[2])))
        elif call == "stop":
            stopped = recording.started[int(rest[0])]
            assert not stopped.is_stopped, f"handle {stopped.handle} stopped twice"
            stopped.is_stopped, stopped.stop_place = True, place
        elif call == "finalize":
            recording.finalized.append(int(rest[0]))
    return recording
