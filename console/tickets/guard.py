"""Which addresses a destination may have: nothing inside our own network, unless the operator named the place.

Who may add a destination could otherwise make the console read metadata services and databases that only it can reach.
A name is resolved once, every address it has is checked, and the connection is made to one that was checked: a name that
answers differently a second later (DNS rebinding) changes nothing.
"""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
from collections.abc import Collection
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from console.tickets.message import Again, Refused

ADDRESS_CHARS_MAX: Final = 1000
RESOLVE_SECONDS_MAX: Final = 10.0
NAT64: Final = ipaddress.ip_network("64:ff9b::/96")
GLOBAL_UNICAST: Final = ipaddress.ip_network("2000::/3")
"""All of IPv6 that anybody can have been given: site-local addresses and segment identifiers lie outside."""
RESERVED: Final = tuple(map(ipaddress.ip_network, ("192.88.99.0/24", "3fff::/20", "2001:db8::/32")))
"""6to4 relays and documentation, which the standard library takes as global, at least in some versions."""
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


@dataclass(frozen=True, slots=True)
class Place:
    """Where to connect: `address` was checked; `name` is for TLS and the Host header."""

    scheme: str
    name: str
    port: int
    path: str
    address: str

    @property
    def host_header(self) -> str:
        shown = f"[{self.name}]" if ":" in self.name else self.name
        usual = 443 if self.scheme == "https" else 80
        return shown if self.port == usual else f"{shown}:{self.port}"


def place_of(url: str, allowed: Collection[str], seconds_max: float = RESOLVE_SECONDS_MAX) -> Place:
    """The checked place that `url` means. Refused when it is not allowed, Again when its name does not resolve in time."""
    scheme, name, port, path = split(url)
    is_named = _is_named(name, port, allowed)
    if scheme != "https" and not is_named:
        raise Refused(_only_https(name, port))
    addresses = _resolve(name, port, min(seconds_max, RESOLVE_SECONDS_MAX))
    for address in addresses:
        if not is_named and not is_public(ipaddress.ip_address(address)):
            raise Refused(_not_public(name, port, address))
    return Place(scheme, name, port, path, addresses[0])


def objection_to(url: str, allowed: Collection[str]) -> str:
    """Why nothing would be sent there, as far as that shows without looking its name up; empty when it does not show."""
    try:
        scheme, name, port, _ = split(url)
    except Refused as error:
        return str(error)
    if _is_named(name, port, allowed):
        return ""
    if scheme != "https":
        return _only_https(name, port)
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return ""
    return "" if is_public(address) else _not_public(name, port, name)


def _is_named(name: str, port: int, allowed: Collection[str]) -> bool:
    return name in allowed or f"{name}:{port}" in allowed


def _only_https(name: str, port: int) -> str:
    return f"{name}: only https is spoken to places that the operator has not named: {_name_it(name, port)}"


def _not_public(name: str, port: int, address: str) -> str:
    what = f"{name} is" if name == address else f"{name} is {address},"
    return f"{what} no public address, and the operator has not named it: {_name_it(name, port)}"


def _name_it(name: str, port: int) -> str:
    return f"put {name}:{port} into DIOGENES_TICKETS_HOSTS and start web and urgent again"


def split(url: str) -> tuple[str, str, int, str]:
    """Scheme, host, port, path and query. Raises Refused for what is no plain http address."""
    if len(url) > ADDRESS_CHARS_MAX or any(ord(letter) <= 32 or ord(letter) > 126 for letter in url):
        raise Refused("the address has blanks, or letters that no address has, or is too long")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise Refused("this is no address") from error
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Refused("an address begins with https:// and a name")
    if parts.username is not None or parts.password is not None:
        raise Refused("secrets do not belong into an address")
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80), path


def is_public(address: Address) -> bool:
    """Whether anybody on the internet could be there; addresses that carry another are judged by that one too."""
    if isinstance(address, ipaddress.IPv6Address):
        inner = address.ipv4_mapped or address.sixtofour or (address.teredo or (None, None))[1]
        if inner is None and address in NAT64:
            inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        if inner is not None:
            return is_public(inner)
        if address not in GLOBAL_UNICAST:
            return False
    if any(address in network for network in RESERVED):
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def _resolve(name: str, port: int, seconds_max: float) -> list[str]:
    """All addresses of a name. In a thread, since the system's resolver cannot be told when to stop."""
    found: queue.SimpleQueue[list[str]] = queue.SimpleQueue()
    threading.Thread(target=_look_up, args=(name, port, found), daemon=True).start()
    try:
        addresses = found.get(timeout=seconds_max)
    except queue.Empty as error:
        raise Again(f"{name} does not resolve within {seconds_max:.2g} s") from error
    if not addresses:
        raise Again(f"{name} does not resolve")
    return addresses


def _look_up(name: str, port: int, found: queue.SimpleQueue[list[str]]) -> None:
    try:
        rows = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        rows = []
    found.put(list(dict.fromkeys(str(one[4][0]).partition("%")[0] for one in rows)))
