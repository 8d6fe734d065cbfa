"""Which of Diogenes' processes this is, and when its main loop last came round.

The name is read off the command line, so that whoever starts a process need not say it twice. A loop that is stuck
cannot tick: that is what tells a process that lives from one that merely exists.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

SERVERS: Final = ("web", "ingest", "worker", "beat")
_APPLICATIONS: Final = {"console.asgi:application": "web", "ingest.asgi:application": "ingest"}


def process_name(arguments: Sequence[str]) -> str:
    """One of SERVERS, else the management command, else the program."""
    for argument in arguments:
        if argument in _APPLICATIONS:
            return _APPLICATIONS[argument]
    program = Path(arguments[0]) if arguments else Path("python")
    if "celery" in program.parts[-2:]:  # celery, or celery/__main__.py
        return next((name for name in ("worker", "beat") if name in arguments[1:]), "celery")
    if program.parts[-2:] == ("ingest", "serve.py"):
        return "ingest"
    if program.name == "manage.py" and len(arguments) > 1:
        return "ingest" if arguments[1] == "consume" else arguments[1]  # the same work, another road in
    return program.name


NAME: Final = process_name(sys.argv)
_ticked = time.monotonic()


def tick() -> None:
    """The main loop came round."""
    global _ticked
    _ticked = time.monotonic()


def tick_age() -> float:
    """Seconds since it last did."""
    return time.monotonic() - _ticked
