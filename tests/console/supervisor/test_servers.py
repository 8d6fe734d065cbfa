"""The embedded servers: data survives a kill, and nothing of them survives us."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import redis

from console.supervisor import servers
from console.supervisor.children import Child, start
from console.supervisor.folder import start_time


@pytest.fixture
def sockets() -> Iterator[Path]:
    """A folder with a short path: pytest's own would be too long for a socket."""
    folder = Path(tempfile.mkdtemp(prefix="dgs-"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def start_postgres(sockets: Path) -> Child:
    account = servers.postgres_account()
    servers.prepare_postgres(sockets / "pg", account)
    child = start(servers.postgres_recipe(sockets / "pg", sockets, account), sockets / "pg.log")
    servers.wait_for_postgres(child, sockets)
    servers.ensure_database(sockets)
    return child


def start_valkey(sockets: Path) -> Child:
    child = start(servers.valkey_recipe(sockets / "valkey", sockets), sockets / "valkey.log")
    servers.wait_for_valkey(child, sockets)
    return child


def test_committed_rows_survive_a_killed_postgres(sockets: Path) -> None:
    child = start_postgres(sockets)
    with psycopg.connect(servers.database_url(sockets), autocommit=True) as connection:
        connection.execute("CREATE TABLE kept AS SELECT 7 AS n")
        backend = connection.info.backend_pid
    child.process.kill()
    child.process.wait()
    while start_time(backend) is not None:
        time.sleep(0.02)
    again = start_postgres(sockets)
    with psycopg.connect(servers.database_url(sockets)) as connection:
        assert connection.execute("SELECT n FROM kept").fetchone() == (7,)
    again.stop()


def test_postgres_stops_at_once_although_somebody_is_connected(sockets: Path) -> None:
    child = start_postgres(sockets)
    with psycopg.connect(servers.database_url(sockets)):
        asked_at = time.monotonic()
        child.stop()
    assert child.process.returncode == 0
    assert time.monotonic() - asked_at < child.recipe.stop_seconds
    assert not (sockets / "pg" / "postmaster.pid").exists()


def test_valkey_keeps_what_it_was_given_a_second_ago(sockets: Path) -> None:
    child = start_valkey(sockets)
    with redis.Redis.from_url(servers.redis_url(sockets)) as client:
        client.set("kept", "7")
    child.stop()
    again = start_valkey(sockets)
    with redis.Redis.from_url(servers.redis_url(sockets)) as client:
        assert client.get("kept") == b"7"
    again.stop()


def test_an_interrupted_first_start_is_begun_anew(sockets: Path) -> None:
    (sockets / "pg.unfinished").mkdir()
    (sockets / "pg.unfinished" / "PG_VERSION").write_text("18")
    start_postgres(sockets).stop()
    assert not (sockets / "pg.unfinished").exists()


def test_a_server_that_cannot_start_says_why(sockets: Path) -> None:
    (sockets / "pg").mkdir(mode=0o700)
    (sockets / "pg" / "mine.txt").write_text("not a database")
    with pytest.raises(servers.ServerFailed, match=r"postgres stopped while starting: .*No such file"):
        start_postgres(sockets)


def test_a_socket_path_that_is_too_long_is_refused_before_anything_starts(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 120)
    with pytest.raises(servers.ServerFailed, match="longer than 107 bytes"):
        servers.valkey_recipe(deep / "valkey", deep)


def test_postgres_takes_its_fast_shutdown_as_its_last_signal(sockets: Path) -> None:
    recipe = servers.postgres_recipe(sockets / "pg", sockets, servers.Account())
    assert recipe.stop_signal == recipe.death_signal == signal.SIGINT
