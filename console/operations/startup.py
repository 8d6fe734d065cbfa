"""The start-up checks, run once beside a starting process and logged: what is wrong, with its id and what to do.

They run in a thread after a moment, because the process should answer first and some of them ask the servers. A
problem is never a reason not to start: the pages must be there to say so.
"""

from __future__ import annotations

import logging
import threading
from typing import Final

from django.core import checks

from console.operations.checks import TAG

PAUSE_SECONDS: Final = 2.0
log = logging.getLogger(__name__)


def say_problems(pause_seconds: float = PAUSE_SECONDS) -> threading.Timer:
    """Log what the checks find, soon."""
    timer = threading.Timer(pause_seconds, log_problems)
    timer.daemon = True
    timer.start()
    return timer


def log_problems() -> None:
    try:
        for problem in checks.run_checks(tags=[TAG], include_deployment_checks=True):
            level = logging.ERROR if problem.level >= checks.ERROR else logging.WARNING
            log.log(level, "%s %s", problem.msg, problem.hint or "", extra={"check": problem.id})
    except Exception:
        log.exception("the start-up checks could not be run")
