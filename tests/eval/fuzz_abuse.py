"""Abuse that takes patience rather than odd bytes: slow senders, floods, bombs, a thousand connections, guessing.

Each abuse is a function that raises AssertionError when the server did not keep its side; meanwhile and afterwards a
good agent must get in. Names say what is done to the server.
"""

from __future__ import annotations

import asyncio
import random
import struct
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from typing import Final

from ingest.door.gate import BODY_SECONDS, HEAD_SECONDS
from nccl_instrument.wire import BATCH_BYTES_MAX, encode_batch
from tests.builders import FakeJob, make_batch
from tests.eval.fuzz_bytes import BOMB, ENTRY, HEAD, SECTION, with_checksum
from tests.rawhttp import ask, batch_request, connected, head, hear

BODY: Final = encode_batch(make_batch("abused"))
N_SLOW: Final = 200
N_MANY: Final = 1000
ALL_IN_S: Final = 240.0  # each has to be looked up first; twenty a second on two cores that do nothing else


def good_gets_in(port: int, token: str) -> None:
    heard = ask(port, batch_request(token, BODY))
    assert heard.status in (200, 429), f"a good batch is answered {heard.status}"


def slow_heads(port: int, token: str) -> None:
    """Slow-loris: a field every second, never the end."""
    with ExitStack() as open_links:
        links = [open_links.enter_context(connected(port)) for _ in range(N_SLOW)]
        for link in links:
            link.sendall(b"POST /ingest/batches HTTP/1.1\r\nHost: x\r\n")
        began = time.monotonic()
        while time.monotonic() < began + HEAD_SECONDS - 3:
            for link in links:
                link.sendall(b"X-A: b\r\n")
            good_gets_in(port, token)
            time.sleep(1.0)
        assert Counter(hear(link).status for link in links) == {408: N_SLOW}


def slow_bodies(port: int, token: str) -> None:
    """The head at once, which announces as much as may be; then a byte of the body a second."""
    start = head(Authorization=f"Bearer {token}", Content_Length=BATCH_BYTES_MAX)
    with ExitStack() as open_links:
        links = [open_links.enter_context(connected(port)) for _ in range(N_SLOW)]
        for link in links:
            link.sendall(start)
        began = time.monotonic()
        while time.monotonic() < began + BODY_SECONDS / 2:
            for link in links:
                link.sendall(b"D")
            assert ask(port, batch_request(token, BODY)).status == 200, "a good batch has to wait for slow ones"
            time.sleep(1.0)
        assert Counter(hear(link).status for link in links) == {408: N_SLOW}


def idle_connections(port: int, token: str) -> None:
    with ExitStack() as open_links:
        for _ in range(N_MANY):
            open_links.enter_context(connected(port))
        for _ in range(20):
            good_gets_in(port, token)


def active_connections(port: int, token: str) -> None:
    """A thousand new agents send at the same moment: each is stored or told to wait, and by waiting all get in."""
    job = FakeJob("crowd", ranks=2 * N_MANY, nodes=N_MANY)
    requests = [batch_request(token, encode_batch(job.batch(node))) for node in range(N_MANY)]

    said: Counter[int] = Counter()

    async def one(request: bytes) -> None:
        give_up_at, tries = time.monotonic() + ALL_IN_S, 0
        while time.monotonic() < give_up_at:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                writer.write(request)
                line = await asyncio.wait_for(reader.readline(), 60)
            finally:
                writer.close()
            said[status := int(line.split()[1]) if line else 0] += 1
            if status == 200:
                return
            tries += 1
            await asyncio.sleep(random.uniform(0.5, 1) * min(2.0**tries, 15.0))

    async def everyone() -> None:
        await asyncio.gather(*map(one, requests))

    asyncio.run(everyone())
    assert set(said) == {200, 429} or set(said) == {200}, f"answers to {N_MANY} agents at once: {dict(said)}"
    assert said[200] == N_MANY, f"answers to {N_MANY} agents at once: {dict(said)}"


def endless_chunks(port: int, token: str) -> None:
    start = head(Authorization=f"Bearer {token}", Transfer_Encoding="chunked")
    assert ask(port, start, *[b"10000\r\n" + bytes(65536) + b"\r\n"] * 400).status == 411


def endless_head(port: int, token: str) -> None:
    assert ask(port, b"GET / HTTP/1.1\r\nX: ", *[b"a" * 65536] * 400).status == 431


def pipelined_flood(port: int, token: str) -> None:
    with connected(port) as link:
        link.sendall(batch_request(token, BODY) * 500)
        assert hear(link).status in (200, 429)
    good_gets_in(port, token)


def bombs(port: int, token: str) -> None:
    """Bodies that promise little and inflate to much, or promise all that may be and keep it."""
    for row_bytes, n_rows, body in (
        (8, 1, BOMB),
        (8, 125_000, BOMB),
        (128, 500_000, zlib.compress(bytes(64 * 10**6), 9)),
    ):
        status = ask(port, batch_request(token, _sealed(row_bytes, n_rows, body))).status
        assert status in (200, 400, 429), f"{n_rows} rows of {row_bytes} bytes: {status}"


def _sealed(row_bytes: int, n_rows: int, body: bytes) -> bytes:
    entry = ENTRY.pack(b"later", row_bytes, n_rows) + b"\xff" * ((row_bytes + 7) // 8)
    section = SECTION.pack(b"ops", len(body), 1) + entry + body
    fields = (b"DGTB", 2, 0, 1, row_bytes * n_rows, 0, bytes(16), 0, time.time_ns(), 10**12, 4, 4)
    return with_checksum(HEAD.pack(*fields) + b"bomb" + b"node" + section)


def oversize(port: int, token: str) -> None:
    assert ask(port, batch_request(token, bytes(BATCH_BYTES_MAX + 1))).status == 413
    assert ask(port, head(Authorization=f"Bearer {token}", Content_Length=2**60)).status in (411, 413)


def wrong_lengths(port: int, token: str) -> None:
    for length in (len(BODY) - 5, len(BODY) + 5, 0, 1):
        heard = ask(port, head(Authorization=f"Bearer {token}", Content_Length=length) + BODY, ends=True)
        assert heard.status == 400, f"length {length} of {len(BODY)}: {heard.status}"


def websocket(port: int, token: str) -> None:
    fields = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Version": 13, "Sec_WebSocket_Key": "eA=="}
    assert ask(port, head("GET", "/ingest/batches", **fields)).status in (400, 403)


def guessing(port: int, token: str) -> None:
    """Tokens by the hundred from one address, where a good agent sends too."""
    said: Counter[int] = Counter()
    for number in range(300):
        said[ask(port, batch_request(f"dga_{number:043}", b"x")).status] += 1
        if number % 50 == 0:
            good_gets_in(port, token)
    assert set(said) == {401, 429}, dict(said)
    assert said[401] <= 40, f"{said[401]} guesses were looked at"


def garbage_flood(port: int, token: str) -> None:
    for number in range(500):
        assert ask(port, struct.pack("<I", number * 2654435761 % 2**32) * 10).status == 400
    good_gets_in(port, token)


ABUSES: Final[tuple[Callable[[int, str], None], ...]] = (
    slow_heads, slow_bodies, idle_connections, active_connections, endless_chunks, endless_head, pipelined_flood, bombs,
    oversize, wrong_lengths, websocket, garbage_flood, guessing,
)  # fmt: skip


def run_abuses(port: int, token: str) -> dict[str, str]:
    """Name of each abuse → "ok", or how the server failed."""
    found = {}
    for abuse in ABUSES:
        try:
            abuse(port, token)
            good_gets_in(port, token)
            found[abuse.__name__] = "ok"
        except (AssertionError, OSError, TimeoutError) as error:
            found[abuse.__name__] = f"{type(error).__name__}: {error}"[:300]
        print(f"  {abuse.__name__}: {found[abuse.__name__]}", flush=True)
    return found
