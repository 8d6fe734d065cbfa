"""The smallest subject that covers an excess: what is slow at every place a rank, NIC or node has, and not elsewhere.

A slow NIC slows every send through it, in every communicator, while its peers are slow only towards it; a GPU whose copies
are slow is slow in all its ops. So a part is blamed when nearly all of its places show the excess, and not when some do.
When most parts of the job show it, or all ranks that run the same program on their share of the data, no part is to
blame: a broken part does not strike every replica, the job's work or what all nodes share does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from rca.keys import Ints, Mask
from rca.slow.iterations import Iterations
from rca.slow.streams import Floats

COVERED_MIN = 0.7
SHARE_MIN = 0.2
BESIDE_MIN = 0.4
EVERYBODY = 0.6
EVERYBODY_MIN = 4
MOST_NODES = 0.75  # of those of which anything is known
NODES_TOLD_MIN = 0.5  # of all nodes, as below
TOLD_MIN = 0.25  # of all ranks: of fewer what is known says nothing of the others


@dataclass(frozen=True, slots=True)
class Covered:
    """Per rank of the iterations (R,). excess_ns: per iteration. n, of: places that show an excess, places there are.

    is_blamed: those whose excess is theirs. is_everybody: too many show it for any of them to be blamed.
    """

    excess_ns: Floats
    n: Ints
    of: Ints
    is_blamed: Mask
    is_everybody: bool


def covered(iterations: Iterations, node: Ints, excess: Floats, counts: Mask, lost_ns: float) -> Covered:
    """Which ranks the excess (P,) of the places in `counts` (P,) is to be blamed on. node: (R,) of the ranks, -1 unknown."""
    rank_at, n_ranks = iterations.rank_at, len(iterations.ranks)
    total: Floats = np.bincount(rank_at[counts], weights=excess[counts], minlength=n_ranks).astype(np.float64)
    n = np.bincount(rank_at[counts], weights=excess[counts] > 0, minlength=n_ranks).astype(np.int64)
    of = np.bincount(rank_at[counts], minlength=n_ranks).astype(np.int64)
    is_covered = (of > 0) & (n >= COVERED_MIN * of) & (total >= SHARE_MIN * lost_ns) & (total > 0)
    return Covered(total, n, of, *_blamed(iterations, node, is_covered, total, np.ones(n_ranks, bool)))


def blamed_of(iterations: Iterations, node: Ints, total: Floats, lost_ns: float, told: Mask) -> tuple[Mask, bool]:
    """(R,) which ranks an own excess is to be blamed on, and whether it is everybody's. told: (R,) of whom it is known."""
    is_blamed, is_everybody = _blamed(iterations, node, (total >= SHARE_MIN * lost_ns) & (total > 0), total, told)
    return is_blamed, is_everybody or _is_on_most_nodes(node, is_blamed, told)


def _is_on_most_nodes(node: Ints, those: Mask, told: Mask) -> bool:
    """Whether these ranks sit on most of the nodes of which anything is known. Of ranks that keep each other waiting on a node
    some show it, where a ring leaves it say, and the others are explained by them."""
    n, struck, known = (len(np.unique(node[one & (node >= 0)])) for one in (node >= 0, those, told))
    return struck >= max(EVERYBODY_MIN, MOST_NODES * max(known, NODES_TOLD_MIN * n))


def _blamed(iterations: Iterations, node: Ints, is_candidate: Mask, total: Floats, told: Mask) -> tuple[Mask, bool]:
    most = float(total[is_candidate].max(initial=0.0))
    is_blamed = is_candidate & (total >= BESIDE_MIN * most)
    if is_blamed.sum() < EVERYBODY_MIN or not is_beyond_a_node(node, is_blamed):
        return is_blamed, False
    programs, sizes = np.unique(iterations.programs(), return_inverse=True, return_counts=True)[1:]
    n_blamed = np.bincount(programs[is_blamed], minlength=len(sizes))
    struck = n_blamed > 0
    is_every_replica = bool((n_blamed[struck] == sizes[struck]).all() and (sizes[struck] >= EVERYBODY_MIN).all())
    # Of two stages of a pipeline one may lose much more by what strikes both.
    is_most = is_candidate.sum() >= EVERYBODY * max(told.sum(), TOLD_MIN * len(total))
    return is_blamed, bool(is_most) or is_every_replica


def is_beyond_a_node(node: Ints, those: Mask) -> bool:
    """Whether these ranks (R,) are more than some of one node: that all replicas of a program sit there is chance."""
    theirs = np.unique(node[those])
    return len(theirs) > 1 or len(np.unique(node)) == 1 or bool((theirs < 0).any())
