"""How scattered the batch numbers of a boot are: who leaves ever more gaps is told to wait.

A boot's row keeps the set of its numbers, and every commit for it costs in proportion to the gaps in it. An agent leaves
one per outage and fills most of them from its spool. So each process keeps the ranges it has seen of a boot; a number
that touches none of them is refused while there are RANGES_MAX, numbers that fill gaps are always taken. Ranges are
forgotten after FORGET_SECONDS: what was lost for good never comes, and keep_house closes old gaps by then.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

RANGES_MAX: Final = 500
BOOTS_MAX: Final = 50_000
FORGET_SECONDS: Final = 3600.0


class Scattered(Exception):
    """The numbers of this boot have too many gaps already."""

    def __init__(self) -> None:
        super().__init__(
            f"the numbers of this agent's batches have more than {RANGES_MAX} gaps: the missing ones first"
        )


@dataclass(slots=True)
class _Ranges:
    """Numbers seen since `since`: from starts[i] up to ends[i], without it; ascending."""

    since: float
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)

    def add(self, number: int) -> None:
        at = bisect_right(self.starts, number)
        if at and number < self.ends[at - 1]:
            return
        ends_there = at > 0 and self.ends[at - 1] == number
        starts_there = at < len(self.starts) and self.starts[at] == number + 1
        if ends_there and starts_there:
            del self.starts[at], self.ends[at - 1]
        elif ends_there:
            self.ends[at - 1] = number + 1
        elif starts_there:
            self.starts[at] = number
        elif len(self.starts) >= RANGES_MAX:
            raise Scattered
        else:
            self.starts.insert(at, number)
            self.ends.insert(at, number + 1)


class Numbers:
    """Of all boots this process hears of. The one heard of longest ago is forgotten first."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._boots: OrderedDict[int, _Ranges] = OrderedDict()

    def note(self, boot_pk: int, number: int) -> None:
        """A batch with this number has come. Raises Scattered when it should not be stored now."""
        known = self._boots.get(boot_pk)
        if known is None or self._now() - known.since > FORGET_SECONDS:
            known = self._boots[boot_pk] = _Ranges(self._now())
        self._boots.move_to_end(boot_pk)
        if len(self._boots) > BOOTS_MAX:
            self._boots.popitem(last=False)
        known.add(number)
