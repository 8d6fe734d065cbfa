"""The ops that some ranks told of, found without asking every row of a job each time: rules go from node to node."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

import numpy as np

from ingest.window import Window
from rca.keys import Ints, in_order

RADIX_MAX: Final = 2**16
_BY_RANK: Final[WeakKeyDictionary[Window, tuple[Ints, Ints]]] = WeakKeyDictionary()


def ops_of(window: Window, ranks: Ints) -> Ints:
    """(n,) positions in the `op` table of what these ranks told, ascending."""
    order, first = _by_rank(window)
    wanted = ranks[(ranks >= 0) & (ranks < len(first) - 1)]
    parts = [order[first[rank] : first[rank + 1]] for rank in sorted(set(wanted.tolist()))]
    found: Ints = np.sort(np.concatenate(parts)) if parts else np.zeros(0, np.int64)
    return found


def ranks_told(window: Window) -> Ints:
    """(n,) the ranks that told of ops, sorted."""
    found: Ints = np.flatnonzero(np.diff(_by_rank(window)[1]))
    return found


def _by_rank(window: Window) -> tuple[Ints, Ints]:
    """The positions rank by rank, those of unknown ranks first, and (R + 1,) where each rank's begin."""
    found = _BY_RANK.get(window)
    if found is None:
        after = window.rows("op")["rank"].astype(np.int64) + 1
        n_ranks = int(after.max(initial=0))
        small = n_ranks < RADIX_MAX
        order = np.argsort(after.astype(np.uint16), kind="stable") if small else in_order(after)
        counts = np.bincount(after, minlength=1)
        found = _BY_RANK[window] = order, np.cumsum(counts)
    return found
