"""Which way is up, in a tree AllReduce that stands still before everybody has sent.

    leaves ──▶ inner rank ──▶ root       a rank sends up what its children sent, and only then can anything come down to it

Nobody says who is whose parent. Who has sent and got nothing back is a child; a rank with both its children known has its
parent in the third peer; and that makes it a child there, and so on towards the root. Of a flow from a parent to a rank
that has sent nothing up, the rank waits for nothing: the parent waits for it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rca.hang.fronts import Fronts
from rca.hang.pairs import Pairs
from rca.keys import Index, Ints, Mask, mix

CHILDREN_MAX: Final = 2
DEPTH_MAX: Final = 64


def comes_down(fronts: Fronts, pairs: Pairs) -> Mask:
    """(P,) flows from a parent to a child that has sent less up than would let anything more come down."""
    found = np.zeros(len(pairs), bool)
    both = (pairs.sender >= 0) & (pairs.receiver >= 0) & ~pairs.p2p
    flow = np.flatnonzero(both & fronts.is_tree(pairs.receiver, pairs.key) & fronts.is_tree(pairs.sender, pairs.key))
    if not len(flow):
        return found
    key, channel = pairs.key[flow], pairs.channel[flow]
    back = Index(mix(pairs.sender[flow], pairs.receiver[flow], key, channel)).find(
        mix(pairs.receiver[flow], pairs.sender[flow], key, channel)
    )
    flow, back = flow[back >= 0], flow[back[back >= 0]]  # one of its own kind leads back
    sent = pairs.sent[:, 2]
    up = _upward(pairs, flow, back, (sent[flow] > 0) & (sent[back] == 0))
    is_down = up[np.searchsorted(flow, back)]
    found[flow[is_down & (sent[back] <= pairs.taken[flow, 1])]] = True
    return found


def _upward(pairs: Pairs, flow: Ints, back: Ints, up: Mask) -> Mask:
    """(n,) flows from a child to its parent; `up`: those known by what has been sent."""
    _, place = np.unique(mix(pairs.receiver[flow], pairs.key[flow], pairs.channel[flow]), return_inverse=True)
    reverse = np.searchsorted(flow, back)
    for _ in range(DEPTH_MAX):
        down = up[reverse]
        n_children = np.bincount(place[up], minlength=len(flow))
        n_unknown = np.bincount(place[~up & ~down], minlength=len(flow))
        from_parent = ~up & ~down & (n_children[place] == CHILDREN_MAX) & (n_unknown[place] == 1)
        if not from_parent.any():
            break
        up = up.copy()
        up[reverse[from_parent]] = True
    return up
