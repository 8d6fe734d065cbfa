"""The way in for bundles: who may send half a gigabyte is asked before any of it is read.

Django writes a request's body to disk before any view or middleware sees it, so size, sender and number at once are checked
in front of it: a body whose length is not said, or is too large, is not read at all.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from channels.db import database_sync_to_async
from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.sessions.backends.db import SessionStore
from django.db import DatabaseError
from django.http import parse_cookie

from console.accounts.authentication import SCHEME
from console.accounts.secrets import find_api_token

PATH: Final = "/api/v1/bundles"
BUNDLE_BYTES_MAX: Final = 512 * 2**20
FORM_BYTES_MAX: Final = 64 * 1024
"""What a form has beside its file."""
AT_ONCE_MAX: Final = 2

Scope = MutableMapping[str, Any]


class Uploads:
    """An ASGI application in front of another: uploads of bundles come through only if they may."""

    def __init__(self, inner: Any) -> None:
        self._inner, self._n_now = inner, 0

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"].rstrip("/") != PATH:
            return await self._inner(scope, receive, send)
        refusal = await self._refusal(scope)
        if refusal is not None:
            return await _answer(send, *refusal)
        self._n_now += 1
        try:
            await self._inner(scope, receive, send)
        finally:
            self._n_now -= 1

    async def _refusal(self, scope: Scope) -> tuple[int, str, str] | None:
        headers = {
            name: value for name, value in scope["headers"] if name in (b"content-length", b"authorization", b"cookie")
        }
        length = headers.get(b"content-length", b"").decode("latin-1")
        if not length.isdecimal() or len(length) > 18:
            return 411, "length_required", "Say how large the body is (Content-Length)."
        if int(length) > BUNDLE_BYTES_MAX + FORM_BYTES_MAX:
            return (
                413,
                "too_large",
                f"A bundle has at most {BUNDLE_BYTES_MAX >> 20} MiB. `python -m rca bundle` reads larger ones.",
            )
        if self._n_now >= AT_ONCE_MAX:
            return 503, "busy", "Other bundles are being received. Try again in a moment."
        try:
            is_known = await database_sync_to_async(_is_known)(headers)
        except DatabaseError:
            return 503, "database_away", "The database is away. Try again in a moment."
        return None if is_known else (401, "not_authenticated", "Sign in, or send an API token.")


def _is_known(headers: MutableMapping[bytes, bytes]) -> bool:
    """Whether a session or token comes with it; what it may do is decided by the view."""
    scheme, _, secret = headers.get(b"authorization", b"").decode("latin-1").partition(" ")
    if scheme == SCHEME:
        return find_api_token(secret.strip()) is not None
    cookies = parse_cookie(headers.get(b"cookie", b"").decode("latin-1"))
    session = SessionStore(cookies.get(settings.SESSION_COOKIE_NAME))
    return SESSION_KEY in session and HASH_SESSION_KEY in session


async def _answer(send: Any, status: int, code: str, said: str) -> None:
    body = f'{{"error": "{said}", "code": "{code}"}}'.encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
