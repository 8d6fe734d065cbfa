"""Everybody who is connected to one process: how many may be, who must go when there are too many, whose time is up.

Nobody is turned away because others came first: when there is no room, the connection that has waited longest for a
request makes it, of the same address first. A good agent sends its request at once, so it is never that one.
What was refused is counted by reason and shown in the health answer. Knows nothing of HTTP; gate.py does.
"""

from __future__ import annotations

import asyncio
import functools
import ipaddress
import resource
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

CONNECTIONS_MAX: Final = 4096
PER_ADDRESS_SHARE: Final = 0.5  # a load balancer, or a data centre behind one address, needs many
FILES_BESIDE: Final = 256  # the database, logs, libraries
SWEEP_SECONDS: Final = 0.5


class Connection(Protocol):
    """What a crowd asks of a connection. deadline: when its time is up, by the crowd's clock."""

    address: str
    deadline: float

    def overdue(self) -> None:
        """Its time is up: answer what can be answered, and close."""

    def make_room(self) -> None:
        """Close: it has no request in progress, and another needs the place."""


Waiting = OrderedDict[Connection, None]


@dataclass(slots=True)
class _Address:
    n_connections: int = 0
    waiting: Waiting = field(default_factory=OrderedDict)


class Crowd:
    """The connections of one process. A connection is waiting while none of its requests is being answered."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self.now = now
        self.refused: Counter[str] = Counter()
        self._all: set[Connection] = set()
        self._waiting: Waiting = OrderedDict()
        self._addresses: dict[str, _Address] = {}
        self._sweeper: asyncio.TimerHandle | None = None

    def enter(self, newcomer: Connection) -> bool:
        """Let a new connection in, which waits from now on; False when there is no room and nobody to make it."""
        mates = self._addresses.get(newcomer.address, _Address())
        room = connections_max()
        if mates.n_connections >= room * PER_ADDRESS_SHARE and not self._make_room(mates.waiting, "address_crowded"):
            return False
        if len(self._all) >= room and not self._make_room(self._waiting, "crowded"):
            return False
        self._all.add(newcomer)
        self._addresses.setdefault(newcomer.address, _Address()).n_connections += 1
        self.waits(newcomer)
        if self._sweeper is None:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)
        return True

    def leave(self, connection: Connection) -> None:
        """Forget a connection; twice does no harm."""
        if connection in self._all:
            self.is_served(connection)
            self._all.discard(connection)
            address = self._addresses[connection.address]
            address.n_connections -= 1
            if not address.n_connections:
                del self._addresses[connection.address]

    def is_served(self, connection: Connection) -> None:
        """A request of it is being answered: it may stay."""
        if connection in self._all:
            self._waiting.pop(connection, None)
            self._addresses[connection.address].waiting.pop(connection, None)

    def waits(self, connection: Connection) -> None:
        """It has no request in progress, from now on."""
        if connection in self._all:
            for waiting in (self._waiting, self._addresses[connection.address].waiting):
                waiting[connection] = None
                waiting.move_to_end(connection)

    def counts(self) -> dict[str, Any]:
        """What the health answer shows."""
        return {"connections": len(self._all), "connections_refused": dict(sorted(self.refused.items()))}

    def _make_room(self, waiting: Waiting, reason: str) -> bool:
        self.refused[reason] += 1
        oldest = next(iter(waiting), None)
        if oldest is None:
            return False
        self.leave(oldest)
        oldest.make_room()
        return True

    def _sweep(self) -> None:
        """End whose time is up: looked at twice a second, which costs less than a timer for every request."""
        self._sweeper = None
        now = self.now()
        for connection in [one for one in self._all if one.deadline < now]:
            connection.overdue()
        if self._all:
            self._sweeper = asyncio.get_running_loop().call_later(SWEEP_SECONDS, self._sweep)


CROWD: Final = Crowd()
"""Everybody connected to this process."""


@functools.cache
def connections_max() -> int:
    """How many may be connected: CONNECTIONS_MAX, or as many as this process may open files for."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = CONNECTIONS_MAX + FILES_BESIDE
    if soft < wanted:
        soft = min(wanted, hard) if hard != resource.RLIM_INFINITY else wanted
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(min(CONNECTIONS_MAX, soft - FILES_BESIDE), 16)


def neighbourhood(address: str) -> str:
    """What limits per client are counted by: an IPv4 address, the /64 network of an IPv6 one, any other name as it is."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(found, ipaddress.IPv4Address):
        return address
    if found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(ipaddress.ip_network((found, 64), strict=False))
