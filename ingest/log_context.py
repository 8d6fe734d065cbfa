"""What a log line is about: fields that go with everything logged below a point, in threads and tasks as well.

A request carries an id: the caller's own when it is sane, else one made here. It is answered in X-Request-Id and stands
in every line of that request, so that what a user reports can be found in the logs of all processes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Final

HEADER: Final = b"x-request-id"
_SANE: Final = re.compile(rb"[A-Za-z0-9._:-]{8,64}")
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
_fields: ContextVar[Mapping[str, Any]] = ContextVar("log_fields", default=_NOTHING)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]


@contextmanager
def log_fields(**fields: Any) -> Iterator[None]:
    """Lines logged inside carry these fields too."""
    token = _fields.set({**_fields.get(), **fields})
    try:
        yield
    finally:
        _fields.reset(token)


def set_log_fields(fields: Mapping[str, Any]) -> None:
    """The same where the begin and the end are told apart, as by Celery's signals; an empty mapping ends it."""
    _fields.set(fields)


def current_fields() -> Mapping[str, Any]:
    return _fields.get()


def name_requests(application: Application) -> Application:
    """The ASGI application, each of its requests and sockets with an id."""

    async def named(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or "request_id" in _fields.get():
            return await application(scope, receive, send)
        request_id = _request_id(scope.get("headers", ()))

        async def send_named(message: MutableMapping[str, Any]) -> None:
            if message["type"] in ("http.response.start", "websocket.accept"):
                message["headers"] = [*message.get("headers", ()), (HEADER, request_id.encode())]
            await send(message)

        token = _fields.set({**_fields.get(), "request_id": request_id})  # not log_fields: this is ingest's hot path
        try:
            await application(scope, receive, send_named)
        finally:
            _fields.reset(token)

    return named


def _request_id(headers: Iterable[tuple[bytes, bytes]]) -> str:
    for name, value in headers:
        if name == HEADER and _SANE.fullmatch(value):
            return value.decode()
    return os.urandom(8).hex()
