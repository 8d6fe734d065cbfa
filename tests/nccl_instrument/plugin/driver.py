"""Runs plugin/driver, a stand-in for NCCL, as the training process, and opens its segment as the agent would."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from nccl_instrument.agent.processes.ring import OpRing
from nccl_instrument.agent.processes.segment import Segment

PLUGIN_FOLDER = Path(__file__).parents[3] / "nccl_instrument" / "plugin"
ABIS = (3, 4, 5, 6, 7)
WITH_STEPS = (4, 5, 6, 7)  # interface v3 counts chunks on the op itself


@dataclass(frozen=True)
class Built:
    """A plugin and a driver, built alike (plainly or with a sanitizer)."""

    folder: Path
    environment: dict[str, str]


class Driver:
    """One running driver process; `step()` waits for its next stage and returns what it says it did."""

    def __init__(
        self, built: Built, abi: int, script: str, folder: Path, wrap: tuple[str, ...] = (), **environment: str
    ) -> None:
        """`wrap` is a command that runs the driver, its last argument being the driver's command line."""
        self.folder = folder
        plugin = built.folder / "libnccl-profiler-diogenes.so"
        self.process = subprocess.Popen(
            [*wrap, built.folder / "driver", plugin, str(abi), script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={"PATH": os.environ["PATH"], "DIOGENES_SEGMENT_DIR": str(folder), **built.environment, **environment},
        )
        self._is_waiting = False

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.process.kill()
        self.process.communicate()

    def step(self) -> dict[str, Any]:
        """Let the script go on to its next stage."""
        assert self.process.stdin and self.process.stdout
        if self._is_waiting:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, self.process.communicate()[1]
        self._is_waiting = True
        said: dict[str, Any] = json.loads(line)
        return said

    def until(self, stage: str) -> dict[str, Any]:
        """Step until `stage`."""
        while (said := self.step())["stage"] != stage:
            pass
        return said

    def finish(self) -> str:
        """Let the script run to its end; it must end well. Returns what it wrote to stderr."""
        _, errors = self.process.communicate("\n" * 20, timeout=60)
        assert self.process.returncode == 0, errors
        return errors

    def die(self) -> int:
        """Let the script go on to where it kills itself; the number of the signal."""
        self.process.communicate("\n", timeout=60)
        return -self.process.returncode

    def files(self) -> list[Path]:
        return sorted(self.folder.glob("diogenes.*"))

    def segment(self) -> Segment:
        """This process's own segment (a forked child may have left one beside it)."""
        (path,) = self.folder.glob(f"diogenes.*.{self.process.pid}.*")
        return Segment.open(path)


def records(segment: Segment) -> Any:
    """Every completion record of the segment; none may be lost."""
    rows, lost = OpRing.drain(segment.op_ring())
    assert lost == 0
    return rows


def counted(segment: Segment) -> dict[str, int]:
    """The counters that are not zero, without the ones every healthy op raises."""
    healthy = {"comms_joined", "ops_enqueued", "flows_started", "flows_done", "ops_done", "comms_finalized"}
    polls = {"peer_wait_polls", "repeated_recv_starts"}
    return {name: n for name, n in segment.counters().items() if n and name not in healthy | polls}


def is_ordered(counters: Any) -> bool:
    """No stage ahead of the one before it."""
    return bool((np.diff(counters.astype(np.int64), axis=1) <= 0).all())
