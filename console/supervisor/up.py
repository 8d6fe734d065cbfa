"""`manage.py up`: the whole of Diogenes in one command, until Ctrl-C.

It is no Django command: the supervisor makes the secret key and the servers that Django's settings ask for, so it
starts before them, and stays small beside what it runs.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from console.supervisor.folder import FolderInUse, claim
from console.supervisor.preflight import data_problems, demo_problems, port_problems
from console.supervisor.servers import ServerFailed
from console.supervisor.stack import Stack
from console.supervisor.watch import Stopped, Watch, kill_on_signals, stop_on_signals


def main(arguments: list[str]) -> int:
    """Run the stack; 0 when it was asked to stop, 1 with a sentence when it cannot run."""
    chosen = parser().parse_args(arguments)
    started_at = time.monotonic()

    def say(text: str) -> None:
        print(f"[{time.monotonic() - started_at:5.1f} s] {text}", flush=True)

    try:
        stop_on_signals()
        return run(chosen.data.absolute(), chosen.port, bool(chosen.demo), say)
    except Stopped:
        return 0  # before anything was started
    except (FolderInUse, ServerFailed) as reason:
        print(reason, file=sys.stderr)
        return 1


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="manage.py up", description=__doc__)
    made.add_argument("--port", type=int, default=8000, help="of the pages; ingest listens on the one above it")
    made.add_argument("--data", type=Path, default=Path("var"), help="folder for everything that is kept")
    made.add_argument("--demo", type=int, choices=(0, 1), default=1, help="0 starts without the demo job")
    return made


def run(data_folder: Path, port: int, with_demo: bool, say: Callable[[str], None]) -> int:
    """Start, keep running, stop. Raises FolderInUse or ServerFailed when it cannot."""
    refuse_if(demo_problems(str(int(with_demo)), os.environ.get("DEMO_FAULT", "")))
    refuse_if(data_problems(data_folder))
    if not data_folder.exists():
        refuse_if(port_problems(port))  # a start that is refused leaves no folder behind
    # Claimed before the ports are looked at: what a killed start left may still hold them for a moment.
    folder = claim(data_folder)
    stack = Stack(folder, port, say)
    try:
        refuse_if(port_problems(port))
        link = stack.start(with_demo)
        say(f"Diogenes is running at {stack.base_url} - sign in once with {link} (Ctrl-C stops everything)")
        Watch(stack).forever()
    except Stopped as stopped:
        say(f"{stopped}: stopping everything")
    finally:
        kill_on_signals(stack)
        stack.stop()
        folder.release()
    return 0


def refuse_if(problems: list[str]) -> None:
    if problems:
        raise ServerFailed("\n".join(problems))
