"""Which ranks a job is watched by: at most ten, at least one per data-parallel group while there are at most ten.

Trouble spreads to the whole job within a few hundred milliseconds, so any rank will do to notice it (Mycroft §4.3); one
per group keeps a job with independent groups covered. The choice depends on the layout only, so that it stays the same
from look to look.
"""

from __future__ import annotations

import numpy as np

from ingest.window import Window
from rca.keys import Ints, Keys, mix
from rca.settings import Settings

GROUPS_MAX = 64


def sampled_ranks(window: Window, settings: Settings) -> Ints:
    """Sorted global ranks to watch."""
    known, limit = window.ranks[window.ranks["rank"] >= 0], settings.sampled_ranks_max
    if len(known) <= limit:
        return np.sort(known["rank"].astype(np.int64))
    chosen = _covering(_groups(window), limit)
    return np.unique(np.array(_filled(chosen, window, limit), np.int64))


def _groups(window: Window) -> list[Ints]:
    """The ranks of data-parallel groups; of very many, GROUPS_MAX evenly spread.

    From declared coordinates, else all communicators that cross nodes without spanning the job: nobody says which of them
    are the data-parallel ones, so those of every size are groups.
    """
    places = window.ranks
    if len(places) and (places["dp"] >= 0).all():
        keys = mix(places["tp"], places["pp"], places["ep"])
        _, first = np.unique(keys, return_index=True)
        spread = _spread(keys[np.sort(first)])  # in the order of the ranks
        return [np.sort(places["rank"][keys == key]).astype(np.int64) for key in spread]
    members = window.members[(window.members["rank"] >= 0) & (window.members["n_nodes"] != 1)]
    members = members[(members["n_ranks"] > 1) & (members["n_ranks"] < max(len(places), 1))]
    groups = []
    for size in np.unique(members["n_ranks"])[::-1]:
        same = members[members["n_ranks"] == size]
        _, first = np.unique(same["comm_id"], return_index=True)
        lowest = same[first][np.argsort(same["rank"][first], kind="stable")]
        spread = _spread(lowest["comm_id"])
        groups += [np.sort(same["rank"][same["comm_id"] == comm_id]).astype(np.int64) for comm_id in spread]
    return groups


def _covering(groups: list[Ints], limit: int) -> list[int]:
    """Ranks so that as many groups as `limit` of them can have one: each in the most groups that have none yet."""
    chosen: list[int] = []
    left = groups
    while left and len(chosen) < limit:
        ranks, counts = np.unique(np.concatenate(left), return_counts=True)
        equals = ranks[counts == counts.max()]
        best = int(equals[len(equals) * len(chosen) // limit])  # evenly spread, should there be more groups than ranks
        chosen.append(best)
        left = [group for group in left if best not in group]
    return chosen


def _spread(keys: Keys) -> Keys:
    if len(keys) <= GROUPS_MAX:
        return keys
    spread: Keys = keys[np.linspace(0, len(keys) - 1, GROUPS_MAX).astype(int)]
    return spread


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
