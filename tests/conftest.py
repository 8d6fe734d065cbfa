"""Fixtures every test may use: the embedded servers and the browser's path.

Django is set up while this file loads, because conftests further down import models at their top. The servers start
when the first test asks for the database (or for `valkey`).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import django
import pytest
from django.db import connections

from rca import asked
from tests.servers import TestServers, point_django_at
from tests.timescale import engine

asked.fails_loudly = True
SERVERS = TestServers()
point_django_at(SERVERS)
try:
    django.setup()
except ImportError as missing:  # the console is being written: tests of pure modules run without it
    print(f"Django is not set up: {missing}")
    del os.environ["DJANGO_SETTINGS_MODULE"]

MARKERS = {
    "live": "runs a live job on the testbed (tens of seconds)",
    "browser": "drives headless Chromium; skipped, with a count, where there is none",
    "sanitizer": "builds C code with sanitizers and runs it",
}
SKIPPED = (
    ("BROWSER", ("no Chromium",), "install chromium to run them"),
    ("ROOT", ("not root", "needs root", "need root", "mount"), "run as root, where file systems may be mounted"),
)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


def pytest_configure(config: pytest.Config) -> None:
    for name, meaning in MARKERS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if CHROMIUM is None:
        for test in items:
            if test.get_closest_marker("browser"):
                test.add_marker(pytest.mark.skip(reason="no Chromium on this machine"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reasons = [str(report.longrepr) for report in terminalreporter.stats.get("skipped", [])]
    for what, words, cure in SKIPPED:
        n_skipped = sum(any(word in reason for word in words) for reason in reasons)
        if n_skipped:
            terminalreporter.write_line(f"{what} TESTS SKIPPED: {n_skipped} ({cure})", yellow=True)


def pytest_unconfigure() -> None:
    SERVERS.stop()


@pytest.fixture(scope="session")
def valkey() -> TestServers:
    """A running Valkey at REDIS_URL."""
    SERVERS.start_valkey()
    return SERVERS


@pytest.fixture(scope="session")
def postgres() -> TestServers:
    """A running PostgreSQL at DATABASE_URL (the database itself is pytest-django's `db` fixture's)."""
    SERVERS.start_postgres()
    return SERVERS


@pytest.fixture(scope="session")
def django_db_keepdb() -> bool:
    """The whole server is thrown away: dropping the database first would only stumble over open connections."""
    return True


@pytest.fixture(scope="session")
def django_db_modify_db_settings(postgres: TestServers, valkey: TestServers) -> Iterator[None]:
    """pytest-django asks for this before it creates the test database: the moment both servers are needed."""
    if engine.IS_WANTED:
        connections["default"].settings_dict["TEST"]["NAME"] = engine.DATABASE
        engine.empty_by_deleting()
    yield


@pytest.fixture(scope="session")
def chromium() -> str:
    """Path of the browser's binary."""
    assert CHROMIUM is not None, "mark the test with `browser`, then it is skipped where there is no Chromium"
    return CHROMIUM
