"""Ingest's own ASGI application: POST /ingest/batches, /ingest/dumps and GET /ingest/health, without Django's request path.

Run by itself (`uvicorn ingest.asgi:application`) or mounted by another application under /ingest/. A Django view
reaches a third of the rate this needs, so requests are read here and settings and tables are all that is shared.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")
django.setup(set_prefix=False)

from ingest.door.metrics import count_answer  # noqa: E402
from ingest.door.receive import Answer, answer_batch, answer_dumps, answer_health, answer_knock, answer_orders  # noqa: E402
from ingest.door.server import Server  # noqa: E402
from ingest.log_context import name_requests  # noqa: E402  (models need Django set up)
from ingest.needs import NEEDS  # noqa: E402
from ingest.operations import PATHS, Operations, serve  # noqa: E402

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


OPERATIONS = Operations(NEEDS)


class Application:
    """The ASGI callable. Holds one Server per event loop, started when first needed."""

    def __init__(self) -> None:
        self._server: Server | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._starting: asyncio.Lock | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http" and scope["path"] in PATHS:
            await serve(OPERATIONS, scope, send)
        elif scope["type"] == "http":
            await _send(send, await self._answer(scope, receive))
        else:  # a websocket, which uvicorn answers 403
            await send({"type": "websocket.close"})

    async def server(self) -> Server:
        """The running server of this event loop."""
        loop = asyncio.get_running_loop()
        if self._server is not None and self._loop is loop:
            return self._server
        if self._loop is not loop:
            self._server, self._loop, self._starting = None, loop, asyncio.Lock()
        assert self._starting is not None
        async with self._starting:
            if self._server is None:
                server = Server()
                await server.start()
                self._server = server
            return self._server

    async def stop(self) -> None:
        """Stop the server, if it runs; the next request starts another."""
        server, self._server = self._server, None
        if server is not None:
            await server.stop()

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        path, method = scope["path"], scope["method"]
        if path == "/ingest/health":
            if method != "GET":
                return Answer(405, {"error": "use GET"})
            return await answer_health(await self.server(), scope)
        if path == "/ingest/batches":
            if method == "OPTIONS":
                return await answer_knock(await self.server(), scope)
            if method != "POST":
                return Answer(405, {"error": "use POST"})
            began = time.perf_counter()
            answer = await answer_batch(await self.server(), scope, receive)
            count_answer(answer.status, time.perf_counter() - began)
            return answer
        if path == "/ingest/orders":
            if method != "GET":
                return Answer(405, {"error": "use GET"})
            return await answer_orders(await self.server(), scope)
        if path == "/ingest/dumps":
            if method != "POST":
                return Answer(405, {"error": "use POST"})
            return await answer_dumps(await self.server(), scope, receive)
        return Answer(404, {"error": "not found"})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.server()
                gc.freeze()  # what is loaded by now stays: looking through it again and again would stall batches
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return


async def _send(send: Send, answer: Answer) -> None:
    body = json.dumps(answer.body).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in answer.headers.items()]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


application = name_requests(Application())
