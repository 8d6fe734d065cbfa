"""Log lines: one JSON object a line for machines, readable text for a terminal; DIOGENES_LOG says which.

Both carry what a line is about (ingest/log_context.py): the request's id, the task and its look, the attempt, the
incident, the batch. A line is never lost for a field that cannot be written as JSON.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from ingest import process
from ingest.log_context import current_fields

FIELDS: Final = (
    "request_id", "task", "look", "attempt", "incident", "batch", "check", "not_logged",
)  # fmt: skip
"""What a line may be about; in `extra` of a logging call as well."""
MESSAGE_CHARACTERS_MAX: Final = 10_000
REFUSING: Final = ("django.request", "django.security")
STRANGERS_LINES_MAX: Final = 10
STRANGERS_SECONDS: Final = 10.0


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """What the line is about, outermost first; what the call itself says wins."""
    given = {name: getattr(record, name) for name in FIELDS if getattr(record, name, None) is not None}
    return {**current_fields(), **given}


class JsonLines(logging.Formatter):
    """at, level, logger, process, pid, message, then what the line is about, then the exception."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "process": process.NAME,
            "pid": record.process,
            "message": record.getMessage()[:MESSAGE_CHARACTERS_MAX],
            **fields_of(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line, default=str, ensure_ascii=False)


class TextLines(logging.Formatter):
    """Time, level, logger, message, and what the line is about in brackets."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        about = " ".join(f"{name}={value}" for name, value in fields_of(record).items())
        line = super().formatMessage(record)
        return f"{line} [{about}]" if about else line


class Unusual(logging.Filter):
    """Leaves out what beat says of every task it sends."""

    def filter(self, record: logging.LogRecord) -> bool:
        return record.levelno > logging.INFO or not str(record.msg).startswith("Scheduler: Sending")


class Strangers(logging.Filter):
    """What strangers can cause at will, requests refused by Django: a few lines at a time, and no traceback.

    A flood of wrong Host headers would fill the disk. The counts by status in /metrics are exact all the same.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._now = now
        self._since = float("-inf")
        self._n_lines = self._n_left_out = 0

    def filter(self, record: logging.LogRecord) -> bool:
        if not record.name.startswith(REFUSING) or getattr(record, "status_code", 500) >= 500:
            return True
        if self._now() - self._since >= STRANGERS_SECONDS:
            self._since, self._n_lines = self._now(), 0
        self._n_lines += 1
        if self._n_lines > STRANGERS_LINES_MAX:
            self._n_left_out += 1
            return False
        record.exc_info, record.exc_text = None, None
        record.not_logged = self._n_left_out or None
        self._n_left_out = 0
        return True


def logging_settings(form: str, level: str) -> dict[str, Any]:
    """Django's LOGGING. uvicorn's and Celery's own lines go the same way as ours."""
    formatter = "console.operations.logs.JsonLines" if form == "json" else "console.operations.logs.TextLines"
    # A line per look and second would bury what matters.
    loggers: dict[str, Any] = {name: {"level": "WARNING"} for name in ("celery.worker.strategy", "celery.app.trace")}
    loggers |= {name: {"handlers": [], "propagate": True} for name in ("uvicorn", "uvicorn.error")}
    loggers |= {"uvicorn.access": {"handlers": [], "propagate": False}, "celery.beat": {"filters": ["unusual"]}}
    stderr = {"class": "logging.StreamHandler", "formatter": "line", "filters": ["strangers", "outages"]}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "filters": {
            "unusual": {"()": "console.operations.logs.Unusual"},
            "strangers": {"()": "console.operations.logs.Strangers"},
            "outages": {"()": "console.operations.outage_log.Outages"},
        },
        "formatters": {"line": {"()": formatter}},
        "handlers": {"stderr": stderr},
        "loggers": loggers,
        "root": {"handlers": ["stderr"], "level": level},
    }
