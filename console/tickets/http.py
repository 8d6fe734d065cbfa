"""One HTTP request to a checked place: bounded in time and size, TLS verified, redirects not followed."""

from __future__ import annotations

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import Final

from console.tickets.guard import Place, place_of
from console.tickets.message import Again, Answer, Post, Refused

SECONDS_MAX: Final = 15.0
DELIVERY_SECONDS_MAX: Final = 25.0
ANSWER_BYTES_MAX: Final = 256 * 1024
AGENT: Final = "diogenes-tickets/1"


def poster(allowed: Collection[str], seconds_max: float = SECONDS_MAX) -> Post:
    """The door to the network for places that are public or in `allowed` (`name` or `name:port`).

    Made anew for every try: one request, looking its name up included, takes `seconds_max` at most, and all of them
    together DELIVERY_SECONDS_MAX.
    """
    last = time.monotonic() + DELIVERY_SECONDS_MAX

    def post(method: str, url: str, body: bytes, headers: Mapping[str, str]) -> Answer:
        end = min(last, time.monotonic() + seconds_max)
        place = place_of(url, allowed, max(end - time.monotonic(), 0.0))
        left_s = end - time.monotonic()
        if left_s <= 0:
            raise Again(f"{place.name}: no time was left to ask it")
        return _ask(place, method, body, headers, left_s)

    return post


class _Pinned(http.client.HTTPConnection):
    """Connects to the address that was checked, whatever the name means now."""

    def __init__(self, place: Place, seconds_max: float) -> None:
        super().__init__(place.name, place.port, timeout=seconds_max)
        self._place = place

    def connect(self) -> None:
        place = self._place
        self.sock = socket.create_connection((place.address, place.port), self.timeout)
        if place.scheme == "https":
            wrapped = _tls().wrap_socket(self.sock, server_hostname=place.name, do_handshake_on_connect=False)
            self.sock = wrapped  # known before the handshake, so that the deadline can cut it
            wrapped.do_handshake()


@lru_cache(maxsize=1)
def _tls() -> ssl.SSLContext:
    return ssl.create_default_context()


def _ask(place: Place, method: str, body: bytes, headers: Mapping[str, str], seconds_max: float) -> Answer:
    connection = _Pinned(place, seconds_max)
    given = {"User-Agent": AGENT, "Host": place.host_header, "Connection": "close", **headers}
    end = time.monotonic() + seconds_max
    deadline = threading.Timer(seconds_max, _cut, [connection])  # for servers that drip a byte a second
    deadline.daemon = True
    deadline.start()
    try:
        connection.request(method, place.path, body or None, given)
        answer = connection.getresponse()
        read = answer.read(ANSWER_BYTES_MAX + 1)
        return Answer(
            answer.status, {name.lower(): value for name, value in answer.getheaders()}, read[:ANSWER_BYTES_MAX]
        )
    except ssl.SSLCertVerificationError as error:
        raise Again(f"{place.name}: its certificate is not trusted: {error.verify_message}") from error
    except TimeoutError as error:
        raise Again(f"{place.name}: no answer within {seconds_max:.2g} s") from error
    except (OSError, http.client.HTTPException) as error:
        late = f" within {seconds_max:.2g} s" if time.monotonic() >= end else ""
        raise Again(f"{place.name}: no answer{late} ({type(error).__name__})") from error
    except ValueError as error:
        raise Refused(f"{place.name}: this cannot be sent: {error}") from error
    finally:
        deadline.cancel()
        connection.close()


def _cut(connection: http.client.HTTPConnection) -> None:
    try:
        if connection.sock is not None:
            connection.sock.shutdown(socket.SHUT_RDWR)
    except OSError:
        return  # it was over already
