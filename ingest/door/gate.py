"""The HTTP protocol of web and ingest: uvicorn's own, with an end to everything a client could do without end.

    uvicorn ingest.asgi:application --http ingest.door.gate:Gate

uvicorn alone waits for ever for a request's head, takes heads and bodies of any size, queues any number of pipelined
requests and logs a line for each broken one. Here a head has HEAD_SECONDS and HEAD_BYTES_MAX, a body BODY_SECONDS and a
size by its path, an answer ANSWER_SECONDS to be made and taken. Who breaks a limit is told so, counted in crowd.py.
"""

from __future__ import annotations

import asyncio
import json
import os
from http import HTTPStatus
from typing import Any, Final, cast

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ingest.door.crowd import CROWD, neighbourhood
from nccl_instrument.dumps import BODY_BYTES_MAX
from nccl_instrument.wire import BATCH_BYTES_MAX

HEAD_SECONDS: Final = 10.0
BODY_SECONDS: Final = 20.0  # ingest answers 408 itself after 15
ANSWER_SECONDS: Final = 120.0
LINGER_SECONDS: Final = 2.0
HEAD_BYTES_MAX: Final = 16 * 1024
FIELDS_MAX: Final = 100
PAGE_BYTES_MAX: Final = 256 * 1024  # of what browsers and scripts send; trace batches may be larger
PIPELINED_MAX: Final = 8
BATCH_PATHS: Final = b"/ingest/"
DUMPS_PATH: Final = b"/ingest/dumps"
UPLOADS_PATH: Final = b"/api/v1/bundles"
UPLOAD_BYTES_MAX: Final = 513 * 2**20
"""Of bundles, of which the console says itself who may bring how much how slowly (console/dumps/uploads.py)."""
UPLOAD_SECONDS: Final = 600.0


def proxy_options() -> dict[str, Any]:
    """uvicorn's: whose X-Forwarded-For is believed. Nobody's by default, or whoever guesses could make up addresses."""
    proxies = os.environ.get("DIOGENES_TRUSTED_PROXIES", "")
    return {"proxy_headers": bool(proxies), "forwarded_allow_ips": proxies}


class _Refused(Exception):
    def __init__(self, status: int, reason: str, says: str) -> None:
        super().__init__(says)
        self.status, self.reason = status, reason


class _PatientTransport:
    """A transport whose close() lets the client finish its sentence.

    Closing while bytes of a request are on the way makes the kernel send a reset, which takes the answer with it.
    """

    def __init__(self, inner: asyncio.Transport, gate: Gate) -> None:
        self._inner, self._gate = inner, gate
        self.write, self.abort, self.get_extra_info = inner.write, inner.abort, inner.get_extra_info
        self.pause_reading, self.resume_reading = inner.pause_reading, inner.resume_reading

    def is_closing(self) -> bool:
        return self._gate.is_parting or self._inner.is_closing()

    def close(self) -> None:
        self._gate.part()


class Gate(HttpToolsProtocol):
    """One connection. deadline: when its present step must be over, by the crowd's clock.

    is_parting: it will be closed once the client has stopped sending.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.inner = cast(asyncio.Transport, transport)
        self.is_parting = self._is_deaf = self._has_ended = self._in_head = self._in_body = False
        self._head_bytes = self._body_bytes = self._body_bytes_max = self._n_unanswered = 0
        super().connection_made(cast(asyncio.Transport, _PatientTransport(self.inner, self)))
        self.address = neighbourhood(self.client[0] if self.client else "unix")
        self._give(HEAD_SECONDS)
        if not CROWD.enter(self):
            self._answer(503, "too many connections")
            self._close()

    def connection_lost(self, exc: Exception | None) -> None:
        CROWD.leave(self)
        self.is_parting = True
        super().connection_lost(exc)

    def data_received(self, received: bytes) -> None:
        self._unset_keepalive_if_required()
        whole = memoryview(received)
        try:
            for at in range(0, len(received), HEAD_BYTES_MAX):  # in pieces, so that a head is cut off soon
                if self.is_parting or self._is_deaf:
                    return
                self._feed(whole[at : at + HEAD_BYTES_MAX])
        except httptools.HttpParserUpgrade:
            self._upgrade()
        except httptools.HttpParserError as error:
            refused = error.__context__
            self._refuse(refused if isinstance(refused, _Refused) else _Refused(400, "bad_http", "not valid HTTP"))
        except _Refused as refused:
            self._refuse(refused)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """A client may end its side and still wait for the answer."""
        if self.is_parting:
            return False
        self._has_ended = self._is_deaf = True
        if self._in_head or self._in_body:
            self._refuse(_Refused(400, "cut_short", "the request ends too early"))
        if self.cycle is not None:
            self.cycle.keep_alive = False
        return not self.is_parting and self._n_unanswered > 0 and self.inner.can_write_eof()

    def _feed(self, piece: memoryview) -> None:
        if self._in_head:
            self._head_bytes += len(piece)
        self.parser.feed_data(piece)
        if self._in_head and self._head_bytes > HEAD_BYTES_MAX:
            raise _too_large_a_head()

    # ---- the parser's callbacks; what they raise ends up in data_received ---------------------------------------------

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._head_bytes, self._body_bytes = True, 0, 0
        if self._n_unanswered > PIPELINED_MAX:
            raise _Refused(429, "pipelined", f"more than {PIPELINED_MAX} requests wait on one connection")
        if not self._n_unanswered:
            self._give(HEAD_SECONDS)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_body:  # trailers, which nobody reads
            return self._count_body(len(name) + len(value))
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        n_bytes = len(self.url) + sum(len(name) + len(value) for name, value in self.headers)
        if n_bytes > HEAD_BYTES_MAX or len(self.headers) > FIELDS_MAX:
            raise _too_large_a_head()
        super().on_headers_complete()
        self._in_head = False
        if self.parser.should_upgrade() and self._should_upgrade():
            return
        self._in_body = True
        self._n_unanswered += 1
        self._body_bytes_max = _body_bytes_max(self.url)
        CROWD.is_served(self)
        self._give(_body_seconds(self.url))

    def on_body(self, body: bytes) -> None:
        self._count_body(len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._in_body = False
        self._give(ANSWER_SECONDS)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._n_unanswered -= 1
        if self._is_deaf or (self._in_body and not self._n_unanswered):
            self.part()  # the rest of a body would be read for nothing
        super().on_response_complete()
        if not self.is_parting and not self._n_unanswered:
            CROWD.waits(self)
            self._give(self.timeout_keep_alive + HEAD_SECONDS)

    # ---- the end of a connection --------------------------------------------------------------------------------------

    def overdue(self) -> None:
        """Called by the crowd when the deadline has passed."""
        if self.is_parting:
            self.inner.abort()
        elif self._in_body:
            self._refuse(_Refused(408, "slow_body", f"the body did not arrive within {_body_seconds(self.url):.0f} s"))
        elif self._n_unanswered:
            CROWD.refused["slow_answer"] += 1
            self.inner.abort()
        elif self._in_head:
            self._refuse(_Refused(408, "slow_head", f"the request did not arrive within {HEAD_SECONDS:.0f} s"))
        else:
            CROWD.refused["idle"] += 1
            self._close()

    def make_room(self) -> None:
        """Called by the crowd, which needs this place."""
        if self._in_head:
            self._answer(503, "too many connections")
        self._close()

    def part(self) -> None:
        """Close; while the client is still sending, only after it has stopped."""
        if self.is_parting:
            return
        if self._has_ended or not (self._in_head or self._in_body or self._is_deaf):
            return self._close()
        self.is_parting = True
        self._give(LINGER_SECONDS)
        self.inner.resume_reading()
        if self.inner.can_write_eof():
            self.inner.write_eof()

    def _close(self) -> None:
        self.is_parting = True
        self.inner.close()

    def _refuse(self, refused: _Refused) -> None:
        CROWD.refused[refused.reason] += 1
        if self._n_unanswered > self._in_body:  # the answers to earlier requests would be taken for this one's
            self._is_deaf = True
            self.pipeline.clear()
            return
        if self._in_body:
            if self.cycle.response_started:
                return self.inner.abort()
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self._answer(refused.status, str(refused))
        self._is_deaf = True
        self.part()

    def _answer(self, status: int, says: str) -> None:
        body = json.dumps({"error": says}).encode()
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: application/json\r\n"
        head += f"content-length: {len(body)}\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
        self.inner.write(head.encode() + body)

    def _upgrade(self) -> None:
        """The parser stops at a request that asks for another protocol."""
        if self._should_upgrade() and not self._n_unanswered:
            CROWD.leave(self)
            self.transport = self.inner
            return self.handle_websocket_upgrade()
        self._is_deaf = True
        if self.cycle is not None:
            self.cycle.keep_alive = False

    # ---- small things -------------------------------------------------------------------------------------------------

    def _give(self, seconds: float) -> None:
        self.deadline = CROWD.now() + seconds

    def _count_body(self, n_bytes: int) -> None:
        self._body_bytes += n_bytes
        if self._body_bytes > self._body_bytes_max:
            raise _Refused(413, "body_too_large", f"more than {self._body_bytes_max} bytes")


def _body_bytes_max(url: bytes) -> int:
    if url.startswith(UPLOADS_PATH):
        return UPLOAD_BYTES_MAX
    if url.startswith(DUMPS_PATH):
        return BODY_BYTES_MAX
    return BATCH_BYTES_MAX if url.startswith(BATCH_PATHS) else PAGE_BYTES_MAX


def _body_seconds(url: bytes) -> float:
    return UPLOAD_SECONDS if url.startswith(UPLOADS_PATH) else BODY_SECONDS


def _too_large_a_head() -> _Refused:
    return _Refused(431, "head_too_large", f"more than {HEAD_BYTES_MAX} bytes or {FIELDS_MAX} fields of request head")
