"""What is left out where a job at rest has more to tell than anybody reads: the first few are told, the others counted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeVar
from weakref import WeakKeyDictionary

from rca.hang.progress import Progress

T = TypeVar("T")
_CUT: Final[WeakKeyDictionary[Progress, dict[str, int]]] = WeakKeyDictionary()


def first_of(state: Progress, found: Sequence[T], most: int, what: str) -> Sequence[T]:
    """At most so many of them. what: they are counted once under it, however often they are asked for."""
    _CUT.setdefault(state, {})[what] = max(len(found) - most, 0)
    return found[:most]


def n_cut(state: Progress) -> int:
    """How many were left out so far."""
    return sum(_CUT.get(state, {}).values())
