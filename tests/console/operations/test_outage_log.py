"""An outage is one line a spell and a count, not a traceback with every request; other errors keep theirs."""

from __future__ import annotations

import logging
import sys
import time

import psycopg
import pytest
import redis
from django.db import DatabaseError, OperationalError

from console.operations.outage_log import Outages


def record(error: Exception, cause: Exception | None = None) -> logging.LogRecord:
    try:
        raise error from cause
    except Exception:
        return logging.LogRecord("uvicorn.error", logging.ERROR, __file__, 1, "Exception in ASGI application\n", (),
                                 sys.exc_info())  # fmt: skip


def gone() -> logging.LogRecord:
    return record(OperationalError("connection refused"), psycopg.OperationalError("connection refused"))


def test_the_first_error_of_an_outage_is_one_line_and_the_others_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    outages, first = Outages(quiet_seconds=0.2), gone()
    assert outages.filter(first)
    assert first.getMessage() == (
        "the database does not answer; further errors are counted, not logged: "
        "Exception in ASGI application: connection refused"
    )
    assert first.exc_info is None
    assert [outages.filter(gone()) for _ in range(3)] == [False] * 3
    over = "the database: no error for 0 s; 3 were not logged since the one that was"
    give_up_at = time.monotonic() + 30
    while over not in caplog.messages and time.monotonic() < give_up_at:  # spells of other tests may end meanwhile
        time.sleep(0.02)
    assert over in caplog.messages
    assert outages.filter(gone()), "the next outage is said again"


def test_each_server_has_its_own_spell() -> None:
    outages = Outages(quiet_seconds=0.1)
    assert outages.filter(gone())
    valkey = record(redis.ConnectionError("refused"))
    assert outages.filter(valkey)
    assert valkey.getMessage().startswith("Valkey does not answer")


@pytest.mark.parametrize(
    "error",
    [ValueError("ours"), psycopg.errors.DiskFull("x"), psycopg.errors.DeadlockDetected("x"), DatabaseError("x")],
)
def test_other_errors_keep_their_tracebacks_however_many(error: Exception) -> None:
    outages = Outages()
    for _ in range(3):
        made = record(error)
        assert outages.filter(made)
        assert made.exc_info is not None


def test_a_line_that_only_names_the_error_counts_too() -> None:
    outages = Outages(quiet_seconds=0.1)
    words = ("ingest cannot write: %s", (psycopg.errors.AdminShutdown("ended"),))
    lines = [logging.LogRecord("ingest.door.server", logging.WARNING, __file__, 1, *words, None) for _ in range(2)]
    assert [outages.filter(line) for line in lines] == [True, False]
