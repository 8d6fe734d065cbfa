"""Which of Diogenes' processes this is, and when its main loop last came round.

The name is read off the command line, so that whoever starts a process need not say it twice. A loop that is stuck
cannot tick: that is what tells a process that lives from one that merely exists.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

SERVERS: Final = ("web", "ingest", "looks", "worker", "beat")
LOOKS_QUEUE: Final = "watch"
_APPLICATIONS: Final = {"console.asgi:application": "web", "ingest.asgi:application": "ingest"}


def process_name(arguments: Sequence[str]) -> str:
    """One of SERVERS, else the management command, else the program."""
    for argument in arguments:
        if argument in _APPLICATIONS:
            return _APPLICATIONS[argument]
    program = Path(arguments[0]) if arguments else Path("python")
    if "celery" in program.parts[-2:]:  # celery, or celery/__main__.py
        return _celery_name(arguments[1:])
    if program.parts[-2:] == ("ingest", "serve.py"):
        return "ingest"
    if program.name == "manage.py" and len(arguments) > 1:
        return "ingest" if arguments[1] == "consume" else arguments[1]  # the same work, another road in
    return program.name


def _celery_name(arguments: Sequence[str]) -> str:
    """A worker that takes looks and nothing else is `looks`."""
    if "worker" in arguments:
        options = dict(pairwise(arguments))
        return "looks" if options.get("--queues") == LOOKS_QUEUE else "worker"
    return "beat" if "beat" in arguments else "celery"


NAME: Final = process_name(sys.argv)
_ticked = time.monotonic()


def tick() -> None:
    """The main loop came round."""
    global _ticked
    _ticked = time.monotonic()


def tick_age() -> float:
    """Seconds since it last did."""
    return time.monotonic() - _ticked
