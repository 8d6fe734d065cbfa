"""`manage.py demo`: a live job on this machine, watched by agents, that hangs after half a minute.

It starts the testbed (eight ranks on four nodes unless told otherwise), one agent per node, injects one fault on a
rank drawn at random, and then leaves the job hanging for somebody to look at. Nothing here knows what Diogenes will
say about it. Everything it starts dies with it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from console.supervisor.children import Child, Recipe, start
from console.supervisor.processes import wait_until
from console.supervisor.servers import ServerFailed
from console.supervisor.watch import Stopped, stop_on_signals

FAULTS = ("nic_down", "freeze", "kill", "proxy_sleep", "stuck")


@dataclass
class Demo:
    """One demo: the testbed first, then an agent per node of its manifest."""

    server: str
    token_file: Path
    folder: Path
    job: str = "demo"
    children: list[Child] = field(default_factory=list)

    @property
    def rundir(self) -> Path:
        return self.folder / "run"

    def start(self) -> None:
        """Start job and agents. Raises ServerFailed when the job does not come up."""
        shutil.rmtree(self.rundir, ignore_errors=True)
        self.rundir.mkdir(parents=True)
        testbed = self._spawn(
            "testbed", "nccl_instrument.testbed", "run", "--rundir", str(self.rundir), "--job", self.job
        )
        wait_until(testbed, (self.rundir / "manifest.json").exists)
        for node in self.manifest()["nodes"]:
            self._start_agent(node)

    def manifest(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads((self.rundir / "manifest.json").read_text())
        return made

    def _start_agent(self, node: dict[str, Any]) -> None:
        spool = self.folder / "spool" / node["name"]
        spool.mkdir(parents=True, exist_ok=True)
        options = ["--server", self.server, "--token-file", str(self.token_file), "--node", node["name"]]
        options += ["--segments", node["segment_dir"], "--spool", str(spool)]
        self._spawn(f"agent-{node['name']}", "nccl_instrument.agent", *options)

    def _spawn(self, name: str, module: str, *options: str) -> Child:
        recipe = Recipe(name, [sys.executable, "-m", module, *options], death_signal=signal.SIGTERM)
        child = start(recipe, self.folder / "logs" / f"{name}.log")
        self.children.append(child)
        return child

    def stop(self) -> None:
        for child in reversed(self.children):
            child.stop()
        self.children.clear()


def main(arguments: list[str]) -> int:
    raise NotImplementedError
