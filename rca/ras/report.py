"""What NCCL's RAS says of the communicators of a job at one moment: who is missing, and how many ops each rank launched.

RAS counts collectives only, and says nothing of what is in progress: equal counts are no information, never health.
"""

from __future__ import annotations

from dataclasses import dataclass

Where = tuple[str, int, int]
"""Host, process id and GPU of a member: the same in every communicator, unlike its rank."""


@dataclass(frozen=True, slots=True)
class RasMember:
    """rank: in its communicator. counts: op → launched so far; in a text report only those of the op that differs."""

    rank: int
    where: Where
    counts: dict[str, int]


@dataclass(frozen=True, slots=True)
class RasMissing:
    """A member RAS could not ask. is_dead: RAS has given it up."""

    rank: int
    where: Where
    is_dead: bool = False


@dataclass(frozen=True, slots=True)
class RasCommunicator:
    """size: 0 when the report does not say. others: op → (ranks, count) of members the report does not list one by one."""

    name: str
    size: int
    members: tuple[RasMember, ...]
    missing: tuple[RasMissing, ...]
    others: dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class RasReport:
    version: str
    communicators: tuple[RasCommunicator, ...]
