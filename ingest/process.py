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

SERVERS: Final = ("web", "ingest", "looks", "urgent", "worker", "beat")
LOOKS_QUEUE, URGENT_QUEUE, OTHER_QUEUE = "watch", "urgent", "celery"
_WORKERS: Final = {LOOKS_QUEUE: "looks", URGENT_QUEUE: "urgent"}
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
    """A worker that takes one queue and nothing else is called after it; one that takes several is a `worker`."""
    if "worker" in arguments:
        return _WORKERS.get(_queues(arguments), "worker")
    return "beat" if "beat" in arguments else "celery"


def _queues(arguments: Sequence[str]) -> str:
    """In all spellings that Celery takes: `--queues watch`, `--queues=watch`, `-Q watch`, `-Qwatch`."""
    for argument, following in pairwise((*arguments, "")):
        option, _, value = argument.partition("=")
        if option == "--queues":
            return value or following
        if argument.startswith("-Q"):
            return argument.removeprefix("-Q") or following
    return ""


NAME: Final = process_name(sys.argv)
_ticked = time.monotonic()


def tick() -> None:
    """The main loop came round."""
    global _ticked
    _ticked = time.monotonic()


def tick_age() -> float:
    """Seconds since it last did."""
    return time.monotonic() - _ticked
