"""The database dies under ingest, and ingest dies under its agents: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections

from console.supervisor.folder import start_time
from console.supervisor.servers import database_url
from ingest.door.tokens import make_agent_token
from ingest.models import Node, Team
from nccl_instrument.wire import encode_batch
from tests.builders import FakeJob
from tests.ingest.conftest import Ingest
from tests.servers import TestServers


@pytest.fixture
def mortal(transactional_db: None, postgres: TestServers) -> Iterator[TestServers]:
    """Servers whose Postgres a test may kill; it runs again before anybody else needs it."""
    yield postgres
    postgres.start_postgres()
    connections.close_all()


def kill(servers: TestServers) -> None:
    """Returns when its backends are gone too: for a moment they still answer, each in a session of its own."""
    child = servers.running.pop("postgres")
    backends = Path(f"/proc/{child.pid}/task/{child.pid}/children").read_text().split()
    child.kill()
    child.process.wait()
    while any(start_time(int(pid)) for pid in backends):
        time.sleep(0.01)


async def test_while_the_database_is_away_it_is_503_and_works_again_after(mortal: TestServers, ingest: Ingest) -> None:
    job = FakeJob()
    assert (await ingest.send(job.batch())).status == 200
    kill(mortal)
    away = [await ingest.send(job.batch(0, number)) for number in (1, 2)]
    assert [reply.status for reply in away] == [503, 503]
    assert away[0].headers["retry-after"] == "2"
    health = await ingest.request("GET", "/ingest/health", {}, [b""])
    assert (health.status, health.body["status"]) == (503, "the database is away")
    unknown = await ingest.send(job.batch(), token="dga_unknown")
    assert unknown.status == 503  # nobody can say whether it is good
    mortal.start_postgres()
    await ingest_again(ingest, job)
    await sync_to_async(connections.close_all)()
    assert (await Node.objects.aget()).batches == 4


async def ingest_again(ingest: Ingest, job: FakeJob) -> None:
    """Resend like an agent, until all four batches are answered 200."""
    for number in range(4):
        for _ in range(100):
            if (await ingest.send(job.batch(0, number))).status == 200:
                break
            await asyncio.sleep(0.1)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start_process(servers: TestServers, port: int) -> subprocess.Popen[bytes]:
    url = database_url(servers.folder, connection.settings_dict["NAME"])
    argv = [sys.executable, "-m", "uvicorn", "ingest.asgi:application", "--port", str(port), "--log-level", "warning"]
    process = subprocess.Popen(argv, env={**os.environ, "DATABASE_URL": url})
    for _ in range(1200):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return process
        time.sleep(0.05)
    process.kill()
    raise AssertionError("uvicorn did not start")


def post(port: int, token: str, body: bytes) -> tuple[int, dict[str, object]]:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        link.request("POST", "/ingest/batches", body, {"Authorization": f"Bearer {token}"})
        answer = link.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        link.close()


@pytest.fixture
def token(no_traces: None) -> str:
    return make_agent_token(Team.objects.create(name="research"), "cluster")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_what_was_acknowledged_outlives_the_process(token: str, postgres: TestServers, how: signal.Signals) -> None:
    port = free_port()
    process = start_process(postgres, port)
    try:
        sent = [post(port, token, encode_batch(FakeJob().batch(0, number))) for number in range(5)]
        process.send_signal(how)
        process.wait(20)
        process = start_process(postgres, port)
        again = [post(port, token, encode_batch(FakeJob().batch(0, number))) for number in range(6)]
    finally:
        process.terminate()
        process.wait(20)
    assert [status for status, _ in (*sent, *again)] == [200] * 11
    assert [body["duplicate"] for _, body in (*sent, *again)] == [False] * 5 + [True] * 5 + [False]
    assert Node.objects.get().batches == 6


def test_a_client_that_sends_half_a_body_and_leaves_stores_nothing(token: str, postgres: TestServers) -> None:
    port = free_port()
    process = start_process(postgres, port)
    body = encode_batch(FakeJob().batch())
    head = f"POST /ingest/batches HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    try:
        with socket.create_connection(("127.0.0.1", port)) as link:
            link.sendall(head.encode() + body[: len(body) // 2])
        assert post(port, token, body) == (200, {"duplicate": False})
    finally:
        process.terminate()
        process.wait(20)
    assert Node.objects.get().batches == 1
