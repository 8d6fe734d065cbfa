"""How much of a request is read: little of most, and half a gigabyte of a bundle from who may send one.

Django writes a request's body to disk before any view or middleware sees it, so sizes are checked in front of it, on every path
and for every method: said lengths at once, others as the bytes come. Of bundles the sender's right to bring one and the number at
once are checked too, and one whose length is not said is not read at all. A body has to come within a time of its length, so that
nobody keeps the place of another by sending nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from contextlib import suppress
from typing import Any, Final

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import get_user
from django.contrib.sessions.backends.db import SessionStore
from django.core.exceptions import PermissionDenied, RequestAborted
from django.db import DatabaseError
from django.http import HttpRequest, parse_cookie

from console.accounts.access import TokenUser, caller_of
from console.accounts.authentication import secret_in
from console.accounts.secrets import find_api_token

PATH: Final = "/api/v1/bundles"
BUNDLE_BYTES_MAX: Final = 512 * 2**20
FORM_BYTES_MAX: Final = 64 * 1024
"""What a form has beside its file."""
AT_ONCE_MAX: Final = 2
BODY_BYTES_MAX: Final = 2**20
"""Of any other request; forms and JSON have a smaller limit of their own (DATA_UPLOAD_MAX_MEMORY_SIZE)."""
BODY_SECONDS: Final = 30.0
BODY_BYTES_PER_SECOND_MIN: Final = 2**20
"""A body has to be there after BODY_SECONDS and a second for so many bytes of its length, or of its limit, and may not pause for
longer than BODY_SECONDS."""
LENGTH_DIGITS_MAX: Final = 18

Scope = MutableMapping[str, Any]


class Uploads:
    """An ASGI application in front of another: bodies come through only as far as they may."""

    def __init__(self, inner: Any) -> None:
        self._inner, self._n_now = inner, 0

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self._inner(scope, receive, send)
        if scope["method"] != "POST" or scope["path"].rstrip("/") != PATH:
            return await _Capped(BODY_BYTES_MAX, receive, send).run(self._inner, scope)
        if self._n_now >= AT_ONCE_MAX:
            return await _answer(send, 503, "busy", "Other bundles are being received. Try again in a moment.")
        self._n_now += 1  # before anything is waited for: many may come at once
        try:
            refusal = await _refusal(scope)
            if refusal is not None:
                return await _answer(send, *refusal)
            await _Capped(BUNDLE_BYTES_MAX + FORM_BYTES_MAX, receive, send).run(self._inner, scope)
        finally:
            self._n_now -= 1


class _Capped:
    """One request whose body is read up to a number of bytes, whatever length it says, or none, and not for ever."""

    def __init__(self, most: int, receive: Any, send: Any) -> None:
        self._most, self._receive, self._send = most, receive, send
        self._n_bytes, self._is_answered, self._is_late = 0, False, False
        self._end_at: float | None = None
        """By the loop's clock; None when the body is complete."""

    async def run(self, inner: Any, scope: Scope) -> None:
        length = dict(scope["headers"]).get(b"content-length", b"0")
        if not length.isdigit() or len(length) > LENGTH_DIGITS_MAX or int(length) > self._most:
            return await self._refuse()
        length_bytes = int(length) or self._most  # of one that says none
        self._end_at = asyncio.get_running_loop().time() + BODY_SECONDS + length_bytes / BODY_BYTES_PER_SECOND_MIN
        with suppress(_TooLarge, _TooSlow):  # Django takes it for a sender who went away
            await inner(scope, self._take, self._answer)
        if self._n_bytes > self._most and not self._is_answered:
            await self._refuse()
        elif self._is_late and not self._is_answered:
            await _answer(self._send, 408, "too_slow", "The body did not come in time. Send it again.")

    async def _take(self) -> Any:
        silent_at = asyncio.get_running_loop().time() + BODY_SECONDS
        try:
            async with asyncio.timeout_at(None if self._end_at is None else min(self._end_at, silent_at)):
                message = await self._receive()
        except TimeoutError as error:
            self._is_late = True
            raise _TooSlow from error
        self._n_bytes += len(message.get("body", b""))
        if self._n_bytes > self._most:
            raise _TooLarge
        if not message.get("more_body", False):
            self._end_at = None  # what comes now is only whether the sender is still there
        return message

    async def _answer(self, message: Any) -> None:
        self._is_answered = True
        await self._send(message)

    async def _refuse(self) -> None:
        await _answer(self._send, 413, "too_large", f"A request has at most {self._most >> 10} KiB here.")


class _TooLarge(RequestAborted):
    """More of a body came than may."""


class _TooSlow(RequestAborted):
    """The body did not come in time."""


async def _refusal(scope: Scope) -> tuple[int, str, str] | None:
    """Why a bundle may not come in."""
    headers = {
        name: value for name, value in scope["headers"] if name in (b"content-length", b"authorization", b"cookie")
    }
    length = headers.get(b"content-length", b"").decode("latin-1")
    if not length.isdecimal() or len(length) > LENGTH_DIGITS_MAX:
        return 411, "length_required", "Say how large the body is (Content-Length)."
    if int(length) > BUNDLE_BYTES_MAX + FORM_BYTES_MAX:
        return (
            413,
            "too_large",
            f"A bundle has at most {BUNDLE_BYTES_MAX >> 20} MiB. `python -m rca bundle` reads larger ones.",
        )
    try:
        is_known = await database_sync_to_async(_is_known)(headers)
    except PermissionDenied:
        return 403, "forbidden", "Your role may not bring bundles."
    except DatabaseError:
        return 503, "database_away", "The database is away. Try again in a moment."
    return None if is_known else (401, "not_authenticated", "Sign in, or send an API token.")


def _is_known(headers: MutableMapping[bytes, bytes]) -> bool:
    """Whether a live session or token comes with it. Raises PermissionDenied where it may diagnose for no team."""
    secret = secret_in(headers.get(b"authorization", b""))
    if secret is not None:
        token = find_api_token(secret)
        user: Any = TokenUser(token) if token is not None else None
    else:
        cookies, request = parse_cookie(headers.get(b"cookie", b"").decode("latin-1")), HttpRequest()
        request.session = SessionStore(cookies.get(settings.SESSION_COOKIE_NAME))
        user = get_user(request)
    if user is None or not user.is_authenticated:
        return False
    if not caller_of(user).teams_where("diagnose"):
        raise PermissionDenied
    return True


async def _answer(send: Any, status: int, code: str, said: str) -> None:
    body = f'{{"error": "{said}", "code": "{code}"}}'.encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
