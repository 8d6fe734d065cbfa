"""Which ranks a job is watched by: at most ten, at least one per data-parallel group while there are at most ten.

Trouble spreads to the whole job within a few hundred milliseconds, so any rank will do to notice it (Mycroft §4.3); one
per group keeps a job with independent groups covered. Nodes are stored and read whole, so what a look costs goes by their
number: the ranks lie on a few nodes, unless more are needed to cover the groups. The choice depends on the layout only,
so that it stays the same from look to look.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from ingest.window import Window
from rca.keys import Ints, Keys, Rows, mix
from rca.settings import Settings

GROUPS_MAX = 20  # of one kind; with more than there are ranks to watch, some are evenly left out
NODES = 5  # as many may fall silent or late and leave somebody to watch by
KEPT_MAX: Final = 32


@dataclass(frozen=True, slots=True)
class _Kept:
    """Whom a job with this layout is watched by: looks at it have the same arrays until the layout changes, which nobody
    can write to, and each look asks twice. It does not keep them: they are 96 MB at 100,000 ranks."""

    ranks: weakref.ref[Rows]
    members: weakref.ref[Rows]
    found: Ints

    def is_of(self, window: Window) -> bool:
        return self.ranks() is window.ranks and self.members() is window.members


_KEPT: Final[dict[tuple[int, int, int], _Kept]] = {}


def sampled_ranks(window: Window, settings: Settings) -> Ints:
    """Sorted global ranks to watch."""
    if window.ranks.flags.writeable or window.members.flags.writeable:
        return _sampled(window, settings)
    key = id(window.ranks), id(window.members), settings.sampled_ranks_max
    kept = _KEPT.get(key)
    if kept is None or not kept.is_of(window):
        kept = _Kept(weakref.ref(window.ranks), weakref.ref(window.members), _sampled(window, settings))
        while len(_KEPT) >= KEPT_MAX:
            _KEPT.pop(next(iter(_KEPT)), None)
        _KEPT[key] = kept
    return kept.found.copy()


def _sampled(window: Window, settings: Settings) -> Ints:
    rank, limit = window.ranks["rank"].astype(np.int64), settings.sampled_ranks_max
    if (rank >= 0).sum() <= limit:
        return np.sort(rank[rank >= 0])
    chosen = _covering(_groups(window), limit, dict(zip(rank.tolist(), window.ranks["node"].tolist(), strict=True)))
    return np.unique(np.array(_filled(chosen, window, limit), np.int64))


def _groups(window: Window) -> list[Ints]:
    """The ranks of data-parallel groups.

    From declared coordinates, else all communicators that cross nodes without spanning the job: nobody says which of them
    are the data-parallel ones, so those of every size are groups.
    """
    places = window.ranks
    if len(places) and (places["dp"] >= 0).all():
        return _some(mix(places["tp"], places["pp"], places["ep"]), places["rank"])
    members = window.members
    n_ranks = np.where((members["rank"] >= 0) & (members["n_nodes"] != 1), members["n_ranks"], 0)
    groups = []
    for size in np.unique(n_ranks[(n_ranks > 1) & (n_ranks < len(places))])[::-1]:
        same = np.flatnonzero(n_ranks == size)
        groups += _some(members["comm_id"][same], members["rank"][same])
    return groups


def _some(keys: Keys, rank: Ints) -> list[Ints]:
    """The ranks with equal keys, in the order of their lowest; of many such groups GROUPS_MAX, evenly spread."""
    order = np.lexsort((rank, keys))
    starts = np.flatnonzero(np.append(True, keys[order][1:] != keys[order][:-1]))
    ends = np.append(starts[1:], len(order))
    by_rank = np.argsort(rank[order][starts], kind="stable")
    if len(by_rank) > GROUPS_MAX:
        by_rank = by_rank[np.linspace(0, len(by_rank) - 1, GROUPS_MAX).astype(int)]
    return [rank[order[starts[at] : ends[at]]].astype(np.int64) for at in by_rank]


def _covering(groups: list[Ints], limit: int, node_of: Mapping[int, int]) -> list[int]:
    """Ranks so that as many groups as `limit` of them can have one: each in the most groups that have none yet."""
    chosen: list[int] = []
    left = groups
    while left and len(chosen) < limit:
        ranks, counts = np.unique(np.concatenate(left), return_counts=True)
        equals = ranks[counts == counts.max()]
        nodes = {node_of.get(one) for one in chosen}
        near = [one for one in equals.tolist() if node_of.get(one) in nodes] if len(nodes) >= NODES else []
        n, nth = (limit, len(chosen)) if near else (min(NODES, limit), len(chosen) % NODES)
        among = near or equals.tolist()
        best = among[len(among) * nth // n]  # evenly spread, should there be more groups than ranks
        chosen.append(best)
        left = [group for group in left if best not in group]
    return chosen


def _filled(chosen: list[int], window: Window, limit: int) -> list[int]:
    """`chosen` and ranks of further nodes, evenly spread, until there are NODES of them; then others of all these nodes."""
    rank, node = window.ranks["rank"], window.ranks["node"]
    n_nodes = len(np.unique(node[np.isin(rank, chosen)]))
    rest = np.flatnonzero(~np.isin(node, node[np.isin(rank, chosen)]) & (rank >= 0))
    firsts = rest[np.unique(node[rest], return_index=True)[1]]
    taken = [*chosen, *_spread(rank[firsts], min(limit - len(chosen), NODES - n_nodes))]
    mates = rank[np.isin(node, node[np.isin(rank, taken)]) & ~np.isin(rank, taken) & (rank >= 0)]
    return [*taken, *_spread(mates, limit - len(taken))]


def _spread(ranks: Ints, n: int) -> list[int]:
    """At most n of them, evenly spread."""
    if n <= 0 or not len(ranks):
        return []
    return [int(ranks[at]) for at in np.unique(np.linspace(0, len(ranks) - 1, n).astype(int))]
