"""Ingest as it is shipped: the supervisor's command line in a process of its own, on a test database.

For tests and suites that need a real socket. The process ends with the `with` block.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from console.supervisor.processes import ROOT, ingest_recipe
from tests.eval.stack import free_port_pair
from tests.rawhttp import Heard, ask, head

READY_SECONDS = 60.0
METRICS_TOKEN = "seen-by-tests"


@dataclass(frozen=True)
class Shipped:
    """A running ingest process."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def health(self) -> dict[str, Any]:
        heard = ask(self.port, head("GET", "/ingest/health", Authorization=f"Bearer {METRICS_TOKEN}"))
        assert heard.status in (200, 503), heard
        answer: dict[str, Any] = json.loads(heard.body)
        return answer

    def rss_mb(self) -> float:
        """Resident memory of the process and of those it started."""
        return sum(_rss_kb(pid) for pid in _family(self.process.pid)) / 1024


@contextmanager
def shipped_ingest(environment: Mapping[str, str], log: Path) -> Iterator[Shipped]:
    """Start ingest with these variables set beside ours, and wait until it answers."""
    port = free_port_pair()
    argv, seen = ingest_recipe(port).argv, {"DIOGENES_METRICS_TOKEN": METRICS_TOKEN}
    with log.open("wb") as file:
        process = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, **seen, **environment}, stdout=file, stderr=file)
    shipped = Shipped(process, port, log)
    try:
        _wait(shipped)
        yield shipped
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait(shipped: Shipped) -> None:
    give_up_at = time.monotonic() + READY_SECONDS
    while shipped.process.poll() is None and time.monotonic() < give_up_at:
        try:
            if ask(shipped.port, head("GET", "/ingest/health")).status == 200:
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise AssertionError(f"ingest did not start: {shipped.log.read_text()[-2000:]}")


def _family(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found += [one for child in task.read_text().split() for one in _family(int(child))]
    return found


def _rss_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def said_by(heard: Heard) -> str:
    """The reason in an error's JSON."""
    return str(json.loads(heard.body)["error"])
