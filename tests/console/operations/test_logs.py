"""Log lines: one JSON object each, with what the line is about; readable text for a terminal."""

from __future__ import annotations

import json
import logging
import logging.config
import subprocess
import sys

import pytest

from console.operations.logs import (
    STRANGERS_LINES_MAX,
    STRANGERS_SECONDS,
    JsonLines,
    Strangers,
    TextLines,
    logging_settings,
)
from ingest.log_context import log_fields


def record(message: str, *arguments: object, **extra: object) -> logging.LogRecord:
    made = logging.LogRecord("ingest.traces.committer", logging.ERROR, __file__, 1, message, arguments, None)
    made.__dict__.update(extra)
    return made


def test_a_line_is_one_object_with_what_it_is_about() -> None:
    batch = {"job": "llama", "node": "n1", "boot": "ab", "number": 7}
    with log_fields(request_id="req-1234"):
        line = json.loads(JsonLines().format(record("no room for %s", "it", batch=batch)))
    assert (line["message"], line["level"], line["logger"]) == ("no room for it", "ERROR", "ingest.traces.committer")
    assert (line["request_id"], line["batch"]) == ("req-1234", batch)
    assert line["at"].endswith("Z")


def test_a_message_of_several_lines_stays_one_line() -> None:
    try:
        raise ValueError("first\nsecond")
    except ValueError:
        made = record("odd\nwords")
        made.exc_info = sys.exc_info()
    text = JsonLines().format(made)
    assert len(text.splitlines()) == 1
    assert "ValueError: first\nsecond" in json.loads(text)["exception"]


def test_what_json_cannot_hold_is_written_as_words() -> None:
    assert "object at" in json.loads(JsonLines().format(record("x", batch=object())))["batch"]


def test_text_says_it_at_the_end_of_the_line() -> None:
    with log_fields(request_id="req-1234"):
        assert (
            TextLines()
            .format(record("x", incident=7))
            .endswith("ingest.traces.committer: x [request_id=req-1234 incident=7]")
        )
    assert TextLines().format(record("x")).endswith("ingest.traces.committer: x")


@pytest.mark.parametrize("form", ["json", "text"])
def test_the_settings_can_be_used(form: str) -> None:
    script = (
        "import logging, logging.config; from console.operations.logs import logging_settings;"
        f"logging.config.dictConfig(logging_settings({form!r}, 'INFO')); logging.getLogger('uvicorn.error').info('hi')"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    (line,) = done.stderr.splitlines()
    assert (json.loads(line)["message"] == "hi") if form == "json" else line.endswith("uvicorn.error: hi")
    assert logging_settings(form, "INFO")["root"]["level"] == "INFO"


def test_refused_strangers_are_a_few_lines_and_bugs_are_all_told() -> None:
    now = [0.0]
    strangers = Strangers(lambda: now[0])

    def line(status: int, name: str = "django.security.DisallowedHost") -> logging.LogRecord:
        made = logging.LogRecord(
            name, logging.ERROR, "x.py", 1, "Invalid HTTP_HOST", (), (ValueError, ValueError(), None)
        )
        made.status_code = status
        return made

    assert sum(strangers.filter(line(400)) for _ in range(500)) == STRANGERS_LINES_MAX
    assert all(strangers.filter(line(500, "django.request")) for _ in range(50))
    now[0] += STRANGERS_SECONDS
    later = line(404, "django.request")
    assert strangers.filter(later)
    assert (later.not_logged, later.exc_info) == (500 - STRANGERS_LINES_MAX, None)
