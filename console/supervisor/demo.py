"""`manage.py demo`: a live job on this machine, watched by agents, that hangs after half a minute.

It starts the testbed (eight ranks on four nodes), one agent per node, injects one fault on a rank drawn at random, and
then leaves the job hanging for somebody to look at. What was injected is said here and nowhere else: Diogenes has to
find it. Everything started here dies with this process.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from console.supervisor.children import Child, Recipe, start
from console.supervisor.processes import wait_until
from console.supervisor.servers import ServerFailed
from console.supervisor.watch import Stopped, stop_on_signals
from nccl_instrument.testbed.control import ask

FAULT: Final = "nic_down"
FAULT_AFTER_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 0.5
DEAD_RANK: Final = re.compile(r"Rank (\d+) ended with code (-?\d+): (.*)")


@dataclass
class LiveJob:
    """A testbed and the agents of its nodes, as our children. `folder` holds the run, the spools and the logs."""

    server: str
    token_file: Path
    folder: Path
    job: str = "demo"
    children: dict[str, Child] = field(default_factory=dict)

    @property
    def rundir(self) -> Path:
        return self.folder / "run"

    def start(self) -> None:
        """Start job and agents. Raises ServerFailed when the job does not come up."""
        shutil.rmtree(self.rundir, ignore_errors=True)
        self.rundir.mkdir(parents=True)
        options = ["run", "--run-dir", str(self.rundir), "--job", self.job, "--seed", str(random.randrange(2**31))]
        testbed = self._spawn("testbed", "nccl_instrument.testbed", *options)
        wait_until(testbed, (self.rundir / "manifest.json").exists)
        for node in self.manifest()["nodes"]:
            self._start_agent(node)

    def manifest(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads((self.rundir / "manifest.json").read_text())
        return made

    def inject(self, fault: str, rank: int) -> None:
        """Ask the testbed for a fault. Raises ServerFailed with its reason."""
        try:
            answer = ask(self.rundir, {"do": "inject", "fault": fault, "rank": rank})
        except (OSError, ValueError) as error:
            raise ServerFailed(f"the testbed does not answer: {error}") from None
        if not answer.get("ok"):
            raise ServerFailed(f"the testbed refused {fault}: {answer.get('error')}")

    def look(self) -> None:
        """Start dead agents again, as a service manager would. Raises ServerFailed when the job itself ended."""
        for name, child in list(self.children.items()):
            if child.is_running():
                continue
            if name == "testbed":
                raise ServerFailed(how_it_ended(child.exit_code(), child.log_text()))
            self.children[name] = start(child.recipe, child.log_path)

    def _start_agent(self, node: dict[str, Any]) -> None:
        spool = self.folder / "spool" / node["name"]
        spool.mkdir(parents=True, exist_ok=True)
        options = ["--server", self.server, "--token-file", str(self.token_file)]
        options += ["--node", node["name"], "--cluster", "demo"]
        options += ["--segments", node["segment_dir"], "--spool", str(spool)]
        for nic in node["nics"]:
            options += ["--nic", f"{nic['name']}={nic['sysfs']}"]
        self._spawn(f"agent-{node['name']}", "nccl_instrument.agent", *options)

    def _spawn(self, name: str, module: str, *options: str) -> Child:
        recipe = Recipe(name, [sys.executable, "-m", module, *options], death_signal=signal.SIGTERM)
        child = start(recipe, self.folder / "logs" / f"{name}.log")
        self.children[name] = child
        return child

    def stop(self) -> None:
        """Agents first, all at once, so that they can still drain; the job last."""
        for name, child in self.children.items():
            if name != "testbed":
                child.ask_to_stop()
        for child in reversed(self.children.values()):
            child.stop()
        self.children.clear()


def main(arguments: list[str]) -> int:
    """Run until stopped: 0 when asked to, 1 when the job ended by itself."""
    chosen = parser().parse_args(arguments)
    stop_on_signals()
    job = LiveJob(chosen.server, chosen.token_file, chosen.folder.absolute())
    try:
        run(job, chosen.fault, chosen.after_s)
    except Stopped:
        return 0
    except ServerFailed as failure:
        say(str(failure))
        return 1
    finally:
        job.stop()
    return 0


def run(job: LiveJob, fault: str, after_s: float) -> None:
    """Start, wait, inject, and then only keep the agents running. Raises ServerFailed, or Stopped from a signal."""
    job.start()
    n_ranks = int(job.manifest()["layout"]["n_ranks"])
    say(f"{n_ranks} ranks on {len(job.manifest()['nodes'])} nodes are training; a fault follows in {after_s:.0f} s")
    inject_at = time.monotonic() + after_s
    while time.monotonic() < inject_at:
        job.look()
        time.sleep(LOOK_SECONDS)
    rank = random.randrange(n_ranks)
    job.inject(fault, rank)
    say(f"injected {fault} on rank {rank}; the job hangs from now on")
    while True:
        job.look()
        time.sleep(LOOK_SECONDS)


def how_it_ended(code: int, log: str) -> str:
    """Why the job ended: the testbed's last line is only how far it came, so the rank that died is looked for."""
    if died := DEAD_RANK.search(log):
        rank, rank_code, words = died.groups()
        return f"rank {rank} {_end(int(rank_code))}" + ("" if int(rank_code) < 0 else f": {words}")
    return f"the testbed {_end(code)}: {(log.splitlines() or ['it said nothing'])[-1]}"


def _end(code: int) -> str:
    return f"was killed (signal {-code})" if code < 0 else f"ended (exit {code})"


def say(text: str) -> None:
    print(f"demo: {text}", flush=True)


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="manage.py demo", description=__doc__)
    made.add_argument("--server", default="http://127.0.0.1:8001", help="where ingest listens")
    made.add_argument("--token-file", type=Path, default=Path("var/agent_token"), help="the agents' token")
    made.add_argument("--folder", type=Path, default=Path("var/demo"), help="for the run, the spools and the logs")
    made.add_argument("--fault", default=os.environ.get("DEMO_FAULT") or FAULT, help="see docs/testbed.md")
    made.add_argument("--after-s", type=float, default=FAULT_AFTER_SECONDS, help="seconds of training before the fault")
    return made
