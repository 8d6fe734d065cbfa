"""One dump as plain columns: what a process that reads dumps makes of it, and how it is sent to whoever asked.

No numpy: a process is started for every few dumps, and that import would take longer than reading them.
"""

from __future__ import annotations

import json
from array import array
from dataclasses import asdict, dataclass, field
from typing import Any, Final

SCHEDULED: Final = 0
STARTED: Final = 1
COMPLETED: Final = 2
NOWHERE: Final = -1
TYPES: Final = {
    "group": "i", "name": "i", "record_id": "q", "seq": "q", "is_p2p": "B", "state": "B", "is_finished": "B",
    "created_ns": "q", "completed_ns": "q", "shape": "i", "place": "i",
}  # fmt: skip
"""Column → type of its numbers, as the array module names it. What they mean: ENTRY in recording.py."""


@dataclass(frozen=True, slots=True)
class Group:
    """A process group as one dump names it. ranks: its members where the dump says so, else ()."""

    name: str
    what: str = ""
    ranks: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Words:
    """What the columns' numbers refer to. rank: None when the dump could not be read. ended: what ended the program."""

    rank: int | None = None
    groups: tuple[Group, ...] = ()
    names: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    places: tuple[str, ...] = ()
    versions: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    ended: str = ""


@dataclass(frozen=True, slots=True)
class Columns:
    """numbers: by the names of TYPES, all of them equally long, () for a dump that could not be read."""

    words: Words
    numbers: dict[str, array[int]]


def refusal(name: str, why: str) -> Columns:
    """The answer to a dump that cannot be read."""
    return Columns(Words(refused={name: why}), {column: array(kind) for column, kind in TYPES.items()})


def encode_columns(columns: Columns) -> tuple[bytes, bytes]:
    """(words as JSON, all columns one behind the other)."""
    return json.dumps(asdict(columns.words)).encode(), b"".join(columns.numbers[name].tobytes() for name in TYPES)


def decode_words(raw: bytes) -> Words:
    """Of what encode_columns wrote."""
    said: dict[str, Any] = json.loads(raw)
    groups = tuple(Group(one["name"], one["what"], tuple(one["ranks"])) for one in said["groups"])
    lists = {name: tuple(said[name]) for name in ("names", "shapes", "places", "versions")}
    return Words(**{**said, **lists, "groups": groups})
