"""The parts of a running stack that `kills` kills: where each process is found, and when it runs again.

The supervisor starts its children again, the suite starts the supervisor and the agents again, as a service manager
would. Killing is SIGKILL to the one process; what dies with it is the stack's own affair.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from console.supervisor.demo import LiveJob
from tests.eval.stack import RunningStack

PARTS: Final = ("web", "ingest", "looks", "urgent", "worker", "beat", "valkey", "postgres", "agent", "supervisor")
RESTART_SECONDS_MAX: Final = 60.0


class NotRestarted(RuntimeError):
    """A killed part was not started again."""


def children(stack: RunningStack) -> dict[str, int]:
    """Name → pid of the supervisor's children, as it notes them."""
    lines = (stack.data / "children").read_text().splitlines()
    return {name: int(pid) for pid, _, name in (line.split() for line in lines)}


def names_of(part: str, running: dict[str, int]) -> list[str]:
    """Children that make up a part: `ingest` may be several processes."""
    return sorted(name for name in running if name == part or name.startswith(f"{part}-"))


def kill(part: str, stack: RunningStack, job: LiveJob, draw: random.Random) -> tuple[str, float, float]:
    """SIGKILL one process of the part: its name, when it was killed, when its successor was started (unix seconds)."""
    if part == "supervisor":
        return kill_supervisor(stack)
    if part == "agent":
        return kill_agent(job, draw)
    running = children(stack)
    name = draw.choice(names_of(part, running))
    killed_at = time.time()
    os.kill(running[name], signal.SIGKILL)
    return name, killed_at, wait_for(lambda: children(stack).get(name, running[name]) != running[name], name)


def kill_supervisor(stack: RunningStack) -> tuple[str, float, float]:
    """Its children die with it; it is started anew on the same folder and ports."""
    assert stack.process is not None
    killed_at = time.time()
    stack.process.kill()
    stack.process.wait()
    restarted_at = time.time()
    stack.start()
    return "supervisor", killed_at, restarted_at


def kill_agent(job: LiveJob, draw: random.Random) -> tuple[str, float, float]:
    name = draw.choice(sorted(name for name in job.children if name.startswith("agent-")))
    killed_at = time.time()
    os.kill(job.children[name].pid, signal.SIGKILL)
    job.children[name].process.wait()
    job.look()
    return name, killed_at, time.time()


def wait_for(is_so: Callable[[], bool], what: str, limit_s: float = RESTART_SECONDS_MAX) -> float:
    """When it became so, unix seconds. Raises NotRestarted."""
    give_up_at = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > give_up_at:
            raise NotRestarted(f"{what} was not started again within {limit_s:.0f} s")
        time.sleep(0.02)
    return time.time()


def hold(stack: RunningStack, name: str) -> Path:
    """Keep the supervisor from starting this child again, until the file returned is removed."""
    held = stack.data / "held" / name
    held.parent.mkdir(exist_ok=True)
    held.touch()
    return held
