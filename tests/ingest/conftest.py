"""A running ingest application on a real database, called the way a server calls it, without a socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections

from ingest.asgi import Application
from ingest.door.marks import take_heard
from ingest.door.server import _every
from ingest.door.tokens import make_agent_token
from ingest.models import Team
from nccl_instrument.wire import TraceBatch, encode_batch
from tests.builders import WALL_NS

METRICS_TOKEN = "s3cret"


@dataclass
class Reply:
    status: int
    body: dict[str, Any]
    headers: dict[str, str]


@dataclass
class Ingest:
    """An application and a token of one team; `clock_ns` is what ingest believes the time to be."""

    application: Application
    token: str
    team: Team
    clock_ns: int = WALL_NS

    async def send(self, batch: TraceBatch, *, at_ns: int | None = None, **request: Any) -> Reply:
        """Send a batch; it arrives `at_ns`, by default 10 ms after it says it was cut."""
        self.clock_ns = batch.wall_ns + 10_000_000 if at_ns is None else at_ns
        return await self.post(encode_batch(batch), **request)

    async def post(
        self,
        body: bytes,
        *,
        token: str | None = None,
        length: int | str | None = -1,
        headers: dict[str, str] | None = None,
        parts: list[bytes] | None = None,
        client: str = "10.0.0.1",
    ) -> Reply:
        sent = {"authorization": f"Bearer {self.token if token is None else token}", **(headers or {})}
        if length is not None:
            sent["content-length"] = str(len(body) if length == -1 else length)
        return await self.request("POST", "/ingest/batches", sent, parts or [body], client)

    async def request(
        self, method: str, path: str, headers: dict[str, str], parts: list[bytes], client: str = "10.0.0.1"
    ) -> Reply:
        raw = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": method, "path": path, "headers": raw, "client": (client, 1)}
        waiting = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
        waiting[-1]["more_body"] = False
        answer: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return waiting.pop(0) if waiting else await asyncio.Event().wait()  # type: ignore[return-value]

        async def send(message: Any) -> None:
            answer.append(message)

        await self.application(scope, receive, send)
        names = {name.decode(): value.decode() for name, value in answer[0]["headers"]}
        return Reply(answer[0]["status"], json.loads(answer[1]["body"]), names)

    async def health(self) -> dict[str, Any]:
        """With the counts, which the metrics token opens."""
        headers = {"authorization": f"Bearer {METRICS_TOKEN}"}
        return (await self.request("GET", "/ingest/health", headers, [b""])).body

    async def write_ledger(self) -> None:
        """What happens once a second."""
        server = await self.application.server()
        await server.write_ledger()
        await server.infer_rosters()


@pytest.fixture
async def ingest(
    transactional_db: None, no_traces: None, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Ingest]:
    """The application with one team's token. Its clock is set by what is sent."""
    application = Application()
    running = await make_ingest(application, "research")
    monkeypatch.setattr("ingest.door.receive.time.time_ns", lambda: running.clock_ns)
    settings.METRICS_TOKEN = METRICS_TOKEN
    yield running
    await application.stop()
    await sync_to_async(connections.close_all)()


async def make_ingest(application: Application, team_name: str) -> Ingest:
    team = await sync_to_async(Team.objects.create)(name=team_name)
    return Ingest(application, await sync_to_async(make_agent_token)(team, "cluster"), team)


@pytest.fixture
def no_traces(transactional_db: None) -> Iterator[None]:
    """Trace tables have no model, so emptying them is ours to do."""
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE ingest_trace_batch, ingest_pinned_batch")
    take_heard()
    yield


def every_but_sums(seconds: float, work: Callable[[], Awaitable[None]]) -> Coroutine[Any, Any, None]:
    return asyncio.sleep(0) if work.__name__ in ("write_ledger", "sum_left_behind") else _every(seconds, work)


@pytest.fixture
def no_writers(no_traces: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No life of an ingest process is remembered, and an application in this process sums when it is told to.

    Not at its start either: there a busy machine comes late, and a writer that a test called dead said that it lives.
    """
    monkeypatch.setattr("ingest.door.server._every", every_but_sums)
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE ingest_writer")
    connection.close()  # a test may end every connection there is
    yield
    connections.close_all()
