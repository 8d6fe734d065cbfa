"""The web process keeps connections, and goes on after the database ended all of them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.db import OperationalError
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.utils import ConnectionHandler

from console import settings

pytestmark = pytest.mark.django_db(transaction=True)
SESSION = "SELECT pg_backend_pid()"


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Iterator[ConnectionHandler]:
    """Connections as the web process makes them, at most two."""
    monkeypatch.setattr(settings, "NAME", "web")
    monkeypatch.setattr(settings, "POOL", {**settings.POOL, "max_size": 2, "timeout": 60.0})
    handler = ConnectionHandler({"default": settings._database(os.environ["DATABASE_URL"])})
    yield handler
    handler["default"].close_pool()  # type: ignore[attr-defined]


def request(kept: ConnectionHandler) -> int:
    """What a view does: ask, and hand the connection back. The session that answered."""
    connection: BaseDatabaseWrapper = kept["default"]
    connection.close_if_unusable_or_obsolete()  # as before each request
    with connection.cursor() as cursor:
        cursor.execute(SESSION)
        ((session,),) = cursor.fetchall()
    connection.close()
    return int(session)


def in_a_thread(kept: ConnectionHandler) -> int:
    with ThreadPoolExecutor(1) as threads:
        return threads.submit(request, kept).result()


def test_requests_of_all_threads_use_the_same_sessions(kept: ConnectionHandler) -> None:
    assert len({in_a_thread(kept) for _ in range(6)}) <= 2


def test_a_session_the_database_ended_is_not_handed_out(kept: ConnectionHandler) -> None:
    before = {request(kept) for _ in range(6)}
    with psycopg.connect(os.environ["DATABASE_URL"]) as other:
        other.execute("SELECT pg_terminate_backend(session, 10000) FROM unnest(%s) session", [list(before)])
    assert request(kept) not in before


def test_a_request_that_gets_no_connection_in_time_hears_that_the_database_is_away(kept: ConnectionHandler) -> None:
    request(kept)  # opens it
    pool = kept["default"].pool  # type: ignore[attr-defined]
    pool.timeout = 0.1
    held = [pool.getconn() for _ in range(2)]
    with pytest.raises(OperationalError):
        request(kept)
    for connection in held:
        pool.putconn(connection)
    pool.timeout = 60.0
    assert request(kept)


def test_other_processes_keep_none() -> None:
    assert "pool" not in settings._database(os.environ["DATABASE_URL"])["OPTIONS"]
