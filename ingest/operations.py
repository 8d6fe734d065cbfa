"""/healthz, /readyz and /metrics: one answer to each, whoever asks and through whichever door.

/healthz says that the process lives, without touching anything. /readyz says whether what it needs answers: 503 when
something it cannot do without is missing. What either found, and all of /metrics, is for those who have the metrics
token; without one, for who reaches the process on its own loopback door (console/operations/listener.py).
"""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from django.conf import settings
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, generate_latest

from ingest import process
from ingest.needs import Need

PATHS: Final = ("/healthz", "/readyz", "/metrics")
JSON: Final = "application/json"
FRESH_SECONDS: Final = 2.0
"""So long an answer of /readyz stands: whoever asks often must not cost a connection each time."""
STUCK_SECONDS: Final = 15.0


Scope = MutableMapping[str, Any]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Said:
    """Status, content type, body."""

    status: int
    kind: str
    body: bytes


@dataclass
class Operations:
    """The answers of one process. ticks: its main loop is expected to come round every second. pages: path → JSON, for
    those who may see details.
    """

    needs: Sequence[Need]
    ticks: bool = True
    pages: Mapping[str, Callable[[], Any]] = field(default_factory=dict)
    now: Callable[[], float] = time.monotonic
    _asked_at: float = field(default=float("-inf"), init=False)
    _found: dict[str, Any] = field(default_factory=dict, init=False)
    _asking: threading.Lock = field(default_factory=threading.Lock, init=False)

    def answer(self, path: str, authorization: str, is_private: bool) -> Said:
        """The answer to GET `path`. is_private: it came in by the loopback door."""
        is_let_see = may_see(authorization, is_private)
        if path == "/healthz":
            return self._health()
        if path == "/readyz":
            return self._readiness(is_let_see)
        if not is_let_see:
            return _json(401, {"error": "This needs the metrics token: Authorization: Bearer …", "code": "no_token"})
        if path in self.pages:
            return _json(200, self.pages[path]())
        return Said(200, CONTENT_TYPE_LATEST, generate_latest(REGISTRY))

    def _health(self) -> Said:
        age = process.tick_age()
        if self.ticks and age > STUCK_SECONDS:
            return _json(503, {"status": "stuck", "process": process.NAME})
        return _json(200, {"status": "ok", "process": process.NAME, "version": settings.VERSION})

    def _readiness(self, is_let_see: bool) -> Said:
        with self._asking:  # one asks, the others wait for what it finds
            if self.now() - self._asked_at > FRESH_SECONDS:
                self._found = ask_all(self.needs)
                self._asked_at = self.now()
        status = 200 if self._found["status"] != "not ready" else 503
        shown = self._found if is_let_see else {"status": self._found["status"]}
        return _json(status, {**shown, "process": process.NAME})


async def serve(operations: Operations, scope: Scope, send: Send) -> None:
    """Answer a request on the process' own port: an open door, so details need the token."""
    path, authorization = scope["path"], dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
    if scope["method"] not in ("GET", "HEAD"):
        said = _json(405, {"error": "use GET", "code": "method"})
    elif path == "/healthz":
        said = operations.answer(path, authorization, False)
    else:
        said = await asyncio.to_thread(operations.answer, path, authorization, False)
    headers = [(b"content-type", said.kind.encode()), (b"content-length", str(len(said.body)).encode())]
    headers.append((b"cache-control", b"no-store"))
    await send({"type": "http.response.start", "status": said.status, "headers": headers})
    await send({"type": "http.response.body", "body": said.body if scope["method"] != "HEAD" else b""})


def ask_all(needs: Sequence[Need]) -> dict[str, Any]:
    """status: ready, degraded (something helpful is missing), not ready; and what each need was found to be."""
    checks = {need.name: _ask(need) for need in needs}
    failing = {name for name, check in checks.items() if not check["ok"]}
    if any(need.is_must and need.name in failing for need in needs):
        return {"status": "not ready", "checks": checks}
    return {"status": "degraded" if failing else "ready", "checks": checks}


def _ask(need: Need) -> dict[str, Any]:
    try:
        return {"ok": True, "needed": need.is_must, "found": need.ask()}
    except Exception as error:  # whatever it is: the answer is that it does not answer
        found = str(error).strip().splitlines() or [type(error).__name__]
        return {"ok": False, "needed": need.is_must, "found": found[0][:300]}


def may_see(authorization: str, is_private: bool) -> bool:
    """Whether details and counts are for this asker. is_private: it came in by the loopback door."""
    token = settings.METRICS_TOKEN
    if not token:
        return is_private
    given = authorization[7:].strip() if authorization[:7].lower() == "bearer " else ""
    return hmac.compare_digest(given.encode(), token.encode())


def _json(status: int, body: Any) -> Said:
    return Said(status, JSON, json.dumps(body).encode())
