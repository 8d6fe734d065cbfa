"""One POST of one trace batch, or of dumps, over a kept-alive connection, and what the answer means.

Knows HTTP and nothing of queues: `Door.post` returns an Answer or raises OSError when the server cannot be
reached. Redirects are not followed (the token would travel with them) and an answer is read up to a limit.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import ssl
import struct
import time
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from nccl_instrument.agent.sending.watchdog import Watchdog
from nccl_instrument.dumps import ALL_KINDS, LOOKS_MAX, NUMBER_MAX

PATH: Final = "/ingest/batches"
CONTENT_TYPE: Final = "application/vnd.diogenes.batch"
DUMPS_PATH: Final = "/ingest/dumps"
DUMPS_TYPE: Final = "application/vnd.diogenes.dumps"
ORDERS_PATH: Final = "/ingest/orders"
ORDERS_MAX: Final = 8
ORDERED_RANKS_MAX: Final = 20_000
APART_S_MAX: Final = 10.0
AGE_HEADER: Final = "Diogenes-Batch-Age-Ns"
TIMEOUT_S: Final = 20.0  # the server may wait for its database before it answers
EXCHANGE_TIMEOUTS: Final = 3  # so many timeouts may a request and its answer take together
ANSWER_BYTES_MAX: Final = 64 * 1024
RETRY_AFTER_S_MAX: Final = 300.0
_CLOCKS: Final = struct.Struct("<qq")  # the clock anchors of a batch
_CLOCKS_AT: Final = 40
_CLOCKS_AGREE_NS: Final = 10**9
_FINAL: Final = frozenset({400, 410, 413})
_STALE: Final = (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError, http.client.CannotSendRequest)


@dataclass(frozen=True, slots=True)
class Order:
    """Dumps the server asks for. kinds: of dumps.ALL_KINDS. ranks: None for all. looks: taken apart_s seconds from each other."""

    request: int
    kinds: tuple[str, ...]
    ranks: frozenset[int] | None
    looks: int
    apart_s: float


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said: HTTP status, its reason in words, seconds it asks us to wait, tables it wants again.

    is_ours: the answer is worded as ingest words one; a proxy or a server of others on the way says it otherwise.
    """

    status: int
    reason: str
    retry_after_s: float | None
    resend: tuple[str, ...]
    requests: tuple[str, ...]
    is_ours: bool = False
    dumps: tuple[Order, ...] = ()

    @property
    def is_accepted(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_refused(self) -> bool:
        """This batch will never be taken: asking again would change nothing. Only ingest itself can say that."""
        return self.status in _FINAL and self.is_ours


class Door:
    """The way to one server. Raises ValueError for an address or a CA file that cannot work."""

    def __init__(
        self,
        server: str,
        token_file: Path,
        ca_file: Path | None = None,
        timeout_s: float = TIMEOUT_S,
        path: str = PATH,
    ) -> None:
        url = urlsplit(server)
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ValueError(f"the server must be an http:// or https:// address, not {server!r}")
        self.host, self.port = url.hostname, url.port or (443 if url.scheme == "https" else 80)
        self.is_plain = url.scheme == "http"
        self._path = url.path.rstrip("/") + path
        self._kind = {PATH: CONTENT_TYPE, DUMPS_PATH: DUMPS_TYPE, ORDERS_PATH: "text/plain"}[path]
        self._token_file, self._timeout_s = token_file, timeout_s
        self._tls = None if self.is_plain else _trust(ca_file)
        self._connection: http.client.HTTPConnection | None = None
        self._watchdog = Watchdog(timeout_s * EXCHANGE_TIMEOUTS, timeout_s, self.interrupt)

    def post(self, encoded: bytes) -> Answer:
        """Send a body. An idle connection the server has closed meanwhile is opened again, once: no body is kept twice."""
        headers = {"Authorization": f"Bearer {self._token()}", "Content-Type": self._kind}
        headers |= _age(encoded) if self._kind == CONTENT_TYPE else {}
        was_open = self._connection is not None
        try:
            return self._exchange(encoded, headers)
        except _STALE:
            self.close()
            if not was_open:
                raise
        except BaseException:
            self.close()
            raise
        return self._exchange(encoded, headers)

    def ask(self, query: str) -> Answer:
        """What the server wants of us, by GET; for who sends batches by another road."""
        try:
            return self._exchange(None, {"Authorization": f"Bearer {self._token()}"}, query)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def interrupt(self) -> None:
        """Make a `post` that waits in another thread fail now."""
        connection = self._connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    def _token(self) -> str:
        """Read every time: a rotated token works without a restart."""
        token = self._token_file.read_bytes().strip()
        if not token or not all(33 <= byte <= 126 for byte in token):
            raise OSError(f"no usable token in {self._token_file}")
        return token.decode()

    def _exchange(self, encoded: bytes | None, headers: dict[str, str], query: str = "") -> Answer:
        """The timeout is between two bytes; a server that drips its answer is cut off by the watchdog."""
        with self._watchdog.guarding():
            return self._ask(encoded, headers, query)

    def _ask(self, encoded: bytes | None, headers: dict[str, str], query: str) -> Answer:
        try:
            if self._connection is None:
                self._connection = self._connect()
            method, path = ("GET", f"{self._path}?{query}") if encoded is None else ("POST", self._path)
            self._connection.request(method, path, encoded, headers)
            response = self._connection.getresponse()
            body = response.read(ANSWER_BYTES_MAX)
            if response.will_close or not response.isclosed():
                self.close()
            return _answer(response, body)
        except http.client.HTTPException as error:
            self.close()
            if isinstance(error, _STALE):
                raise
            raise OSError(f"not an HTTP answer: {error!r}") from error
        except ValueError as error:  # what http.client lets through of an answer it cannot parse
            raise OSError(f"not an HTTP answer: {error!r}") from error

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self.host, self.port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(self.host, self.port, timeout=self._timeout_s, context=self._tls)


def _age(encoded: bytes) -> dict[str, str]:
    age_ns = age_of(encoded)
    return {} if age_ns is None else {AGE_HEADER: str(age_ns)}


def age_of(encoded: bytes) -> int | None:
    """How long ago the batch was cut: the server then need not trust our wall clock to tell late from wrong.

    None when the two clocks disagree about it: then the machine has booted since, or its clock was set.
    """
    if len(encoded) < _CLOCKS_AT + _CLOCKS.size:
        return None
    wall_ns, mono_ns = _CLOCKS.unpack_from(encoded, _CLOCKS_AT)
    age_ns = time.monotonic_ns() - int(mono_ns)
    is_sure = age_ns >= 0 and abs(time.time_ns() - wall_ns - age_ns) < _CLOCKS_AGREE_NS
    return age_ns if is_sure else None


def _trust(ca_file: Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except OSError as error:
        raise ValueError(f"the CA file {ca_file} cannot be used: {error}") from error


def _answer(response: http.client.HTTPResponse, body: bytes) -> Answer:
    said = _json(body)
    reason = said.get("error") or said.get("detail") or response.reason
    after = _retry_after(response.getheader("Retry-After"))
    is_ours = isinstance(said.get("error"), str)
    wanted = _names(said, "resend"), _names(said, "requests"), is_ours, _orders(said.get("dumps"))
    return Answer(response.status, str(reason)[:300], after, *wanted)


def _json(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _names(said: dict[str, Any], key: str) -> tuple[str, ...]:
    value = said.get(key)
    return tuple(str(name)[:100] for name in value[:16]) if isinstance(value, list) else ()


def _orders(said: Any) -> tuple[Order, ...]:
    """The orders we can make sense of: what a server asks for in another way than ours is not for us."""
    found = [_order(one) for one in said[:ORDERS_MAX]] if isinstance(said, list) else []
    return tuple(one for one in found if one is not None)


def _order(said: Any) -> Order | None:
    if not isinstance(said, dict):
        return None
    request, ranks, looks, apart_s = (said.get(name) for name in ("request", "ranks", "looks", "apart_s"))
    named = said.get("kinds")
    kinds = tuple(kind for kind in ALL_KINDS if isinstance(named, list) and kind in named)
    if type(request) is not int or not 0 < request < NUMBER_MAX or not kinds:
        return None
    if ranks is not None and not (isinstance(ranks, list) and len(ranks) <= ORDERED_RANKS_MAX):
        return None
    wanted = None if ranks is None else frozenset(rank for rank in ranks if type(rank) is int)
    looks = min(max(looks, 1), LOOKS_MAX) if type(looks) is int else 1
    pause_s = float(apart_s) if isinstance(apart_s, int | float) and 0 <= apart_s <= APART_S_MAX else APART_S_MAX
    return Order(request, kinds, wanted, looks, pause_s)


def _retry_after(header: str | None) -> float | None:
    """Seconds asked for, as a number or as a date; None when the header is absent or unreadable."""
    if header is None:
        return None
    try:
        seconds = float(header) if header.strip().isdigit() else parsedate_to_datetime(header).timestamp() - time.time()
    except (ValueError, TypeError, OverflowError):
        return None
    return min(max(seconds, 0.0), RETRY_AFTER_S_MAX)
