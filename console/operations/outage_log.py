"""One line for an outage: while the database or Valkey is away, the same error comes with every request and every task.

The first of a spell is logged without its traceback, the others are counted; when none came for half a minute, the count
is logged. Ten kilobytes for each request of each open page would push what matters out of the log.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass, field
from typing import Final

import psycopg
import redis

QUIET_SECONDS: Final = 30.0
WORDS_MAX: Final = 300
log = logging.getLogger(__name__)


@dataclass
class Spell:
    """Errors of one server since the first that was logged. watcher: ends with the spell; dead in a forked child."""

    last_at: float
    watcher: threading.Thread = field(default_factory=threading.Thread)
    n_left_out: int = 0


class Outages(logging.Filter):
    """Lets the first error of a spell through, shortened, and says how many followed when it is over."""

    def __init__(self, quiet_seconds: float = QUIET_SECONDS) -> None:
        super().__init__()
        self._quiet_seconds = quiet_seconds
        self._spells: dict[str, Spell] = {}
        self._lock = threading.Lock()

    def filter(self, record: logging.LogRecord) -> bool:
        server = server_away(record)
        if not server:
            return True
        with self._lock:
            spell = self._spells.get(server)
            if spell is not None and spell.watcher.is_alive():
                spell.last_at, spell.n_left_out = time.monotonic(), spell.n_left_out + 1
                return False
            spell = self._spells[server] = Spell(time.monotonic())
            spell.watcher = threading.Thread(target=self._await_end, args=(server, spell), daemon=True)
            spell.watcher.start()
        _shorten(record, server)
        return True

    def _await_end(self, server: str, spell: Spell) -> None:
        while (left := spell.last_at + self._quiet_seconds - time.monotonic()) > 0:
            time.sleep(left)
        with self._lock:
            self._spells.pop(server, None)
        if spell.n_left_out:
            words = "%s: no error for %.0f s; %d were not logged since the one that was"
            log.warning(words, server, self._quiet_seconds, spell.n_left_out, extra={"not_logged": spell.n_left_out})


def server_away(record: logging.LogRecord) -> str:
    """Which server's absence this line is about; empty for every other line."""
    if record.name == "django.request" and getattr(record, "status_code", 0) == 503:
        return "the database"  # what console/dashboard/away.py answered
    given = record.args if isinstance(record.args, tuple) else ()
    raised = [record.exc_info[1]] if record.exc_info else []
    error = next((one for one in [*raised, *given] if isinstance(one, BaseException)), None)
    while error is not None:
        if isinstance(error, psycopg.Error):
            return "the database" if _is_gone(error) else ""
        if isinstance(error, redis.ConnectionError | redis.TimeoutError):
            return "Valkey"
        error = error.__cause__ or error.__context__
    return ""


def _is_gone(error: psycopg.Error) -> bool:
    """Whether the server was not there or sent us away; a deadlock or a full disk is an error of its own."""
    if not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
        return False
    return error.sqlstate is None or error.sqlstate.startswith(("08", "57P"))


def _shorten(record: logging.LogRecord, server: str) -> None:
    error = record.exc_info[1] if record.exc_info else None
    words = [*record.getMessage().strip().splitlines()[:1], *str(error or "").strip().splitlines()[:1]]
    said = ": ".join(dict.fromkeys(words))[:WORDS_MAX]
    record.msg, record.args = f"{server} does not answer; further errors are counted, not logged: {said}", ()
    record.exc_info, record.exc_text = None, None
