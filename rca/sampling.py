"""Which ranks a job is watched by: at most ten, at least one per data-parallel group while there are at most ten.

Trouble spreads to the whole job within a few hundred milliseconds, so any rank will do to notice it (Mycroft §4.3); one
per group keeps a job with independent groups covered. The choice depends on the layout only, so that it stays the same
from look to look.
"""

from __future__ import annotations

import numpy as np

from ingest.window import Window
from rca.keys import Ints
from rca.settings import Settings


def sampled_ranks(window: Window, settings: Settings) -> Ints:
    """Sorted global ranks to watch."""
    known = window.ranks[window.ranks["rank"] >= 0]
    if len(known) <= settings.sampled_ranks_max:
        return np.sort(known["rank"].astype(np.int64))
    groups = _groups(window)
    chosen = [int(group[0]) for group in _spread(groups, settings.sampled_ranks_max)]
    return np.unique(np.array(_filled(chosen, window, settings.sampled_ranks_max), np.int64))


def _groups(window: Window) -> list[Ints]:
    """Data-parallel groups from declared coordinates, else the communicators that cross nodes without spanning the job."""
    places = window.ranks
    if len(places) and (places["dp"] >= 0).all():
        keys = (
            places["tp"].astype(np.int64) << 32
            | places["pp"].astype(np.int64) << 16
            | places["ep"].astype(np.int64) & 0xFFFF
        )
        return [np.sort(places["rank"][keys == key]).astype(np.int64) for key in np.unique(keys)]
    members = window.members[(window.members["rank"] >= 0) & (window.members["n_nodes"] != 1)]
    sizes = members["n_ranks"]
    partial = members[sizes < max(len(places), 1)]
    if not len(partial):
        return []
    largest = partial[partial["n_ranks"] == partial["n_ranks"].max()]
    return [np.sort(largest["rank"][largest["comm_id"] == c]).astype(np.int64) for c in np.unique(largest["comm_id"])]


def _spread(groups: list[Ints], limit: int) -> list[Ints]:
    """At most `limit` of the groups, evenly spread."""
    if len(groups) <= limit:
        return groups
    return [groups[i] for i in np.linspace(0, len(groups) - 1, limit).astype(int)]


def _filled(chosen: list[int], window: Window, limit: int) -> list[int]:
    """`chosen` and further ranks of nodes not chosen from, evenly spread, up to `limit`."""
    places = window.ranks
    is_chosen = np.isin(places["rank"], chosen)
    rest = places[~np.isin(places["node"], places["node"][is_chosen])]
    _, first = np.unique(rest["node"], return_index=True)
    firsts = rest["rank"][first]
    if len(firsts) == 0:
        firsts = places["rank"][~is_chosen]
    wanted = max(0, limit - len(set(chosen)))
    extra = [int(firsts[i]) for i in np.unique(np.linspace(0, len(firsts) - 1, wanted).astype(int))] if wanted else []
    return [*chosen, *extra]
