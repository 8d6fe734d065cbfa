"""Tests that need TimescaleDB itself: collected by `make timescale` alone, which runs the engine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ingest.traces.database import connect
from ingest.traces.moving import move
from ingest.traces.stores import HYPERTABLES
from tests.ingest.conftest import ingest, no_traces  # noqa: F401
from tests.timescale import engine

collect_ignore_glob = [] if engine.IS_WANTED else ["test_*.py"]


@pytest.fixture
def hypertables_again(no_traces: None) -> Iterator[None]:  # noqa: F811
    """Whatever a test does to the store, the next finds hypertables."""
    yield
    with connect() as connection:
        move(connection, HYPERTABLES, lambda progress: None)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """This leg runs to say that the store works on TimescaleDB: a test that was skipped has not said it."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if engine.IS_WANTED and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
