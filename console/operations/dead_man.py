"""The dead-man ping: a URL that is called while looks are taken, so that somebody outside hears when they are not.

A monitor that waits for the call (Healthchecks, Dead Man's Snitch, an Alertmanager of your own) raises the alarm when it
stays away. The call is made by the worker `urgent`, on beat's word, and only while a worker takes looks and no running job
with reporting nodes is overdue: so it stays away when any of database, Valkey, beat, urgent or looks has stopped, whether a job
runs or not.
"""

from __future__ import annotations

import logging
import time
import urllib.error
import urllib.request
from typing import Final

from django.conf import settings

from console.operations.metrics import DEAD_MAN
from console.operations.needs import ask_roll
from console.operations.stack import looks_overdue
from ingest.needs import Missing

SECONDS: Final = 60.0
TIMEOUT_SECONDS: Final = 10
log = logging.getLogger(__name__)


def ping() -> str:
    """Call the URL if all is well; what became of it: called, refused, unreachable, overdue, no_looks, off."""
    if not settings.DEAD_MAN_URL:
        return "off"
    outcome = _wrong() or _call(settings.DEAD_MAN_URL)
    DEAD_MAN.labels(outcome).inc()
    return outcome


def _wrong() -> str:
    """Why it is to stay away; "" while looks are taken."""
    if n_overdue := looks_overdue(time.time_ns()):
        log.error("%d jobs have not been looked at for 30 s: the dead-man ping stays away", n_overdue)
        return "overdue"
    try:
        ask_roll("looks")
    except Missing as why:
        log.error("%s: the dead-man ping stays away", why)
        return "no_looks"
    return ""


def _call(url: str) -> str:
    """GET; any answer below 400 is one. The URL is a secret of the monitor's, so the log does not name it."""
    asked = urllib.request.Request(url, headers={"User-Agent": "Diogenes"})
    try:
        with urllib.request.urlopen(asked, timeout=TIMEOUT_SECONDS):
            return "called"
    except urllib.error.HTTPError as error:
        log.warning("the dead-man URL answers %d", error.code)
        return "refused"
    except (OSError, ValueError) as error:
        log.warning("the dead-man URL cannot be called: %s", type(error).__name__)
        return "unreachable"
