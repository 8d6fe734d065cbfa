"""How much of a body the gate in front of every process lets through, path by path, over a real socket."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn

from ingest.door.gate import PAGE_BYTES_MAX, Gate
from tests.rawhttp import ask, head


async def counts(scope: Any, receive: Any, send: Any) -> None:
    """An application that reads all of a body and says how much came."""
    n_bytes, goes_on = 0, True
    while goes_on:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        n_bytes, goes_on = n_bytes + len(message.get("body", b"")), message.get("more_body", False)
    said = str(n_bytes).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(said))]})
    await send({"type": "http.response.body", "body": said})


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    config = uvicorn.Config(counts, http=Gate, lifespan="off", log_level="error", port=0)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    give_up_at = time.monotonic() + 30
    while not server.started and time.monotonic() < give_up_at:
        time.sleep(0.02)
    yield int(server.servers[0].sockets[0].getsockname()[1])
    server.should_exit = True
    thread.join(30)


@pytest.mark.parametrize("path", ["/api/v1/bundles", "/ingest/batches", "/ingest/dumps"])
def test_what_may_be_large_comes_through_whole(port: int, path: str) -> None:
    n_bytes = 4 * PAGE_BYTES_MAX
    heard = ask(port, head("POST", path, Content_Length=n_bytes, Connection="close") + bytes(n_bytes))
    assert (heard.status, heard.body) == (200, str(n_bytes).encode())


@pytest.mark.parametrize("path", ["/api/v1/incidents", "/", "/api/v1/bundle"])
def test_of_a_page_no_more_than_a_page_needs(port: int, path: str) -> None:
    heard = ask(port, head("POST", path, Content_Length=PAGE_BYTES_MAX + 1) + bytes(PAGE_BYTES_MAX + 1))
    assert heard.status == 413
