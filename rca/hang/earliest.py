"""Of ranks that cannot be told apart, those who have come least far, by what all ranks of one program do alike.

    rank 24  sends to its stages' neighbours: 1024 of 1024 over    its host has entered op 64
    rank 26                                   1021 of 1024          63: it waits for its GPU

Where nothing moves any more, ranks that run one program and wait for a GPU stand no earlier in it than that GPU does: all
that comes before needs nothing of it. So who is further on is not the one. Two things tell, without a row of the ops in
question: what hosts have entered, as these run ahead of all GPUs alike, and how many sends and receives between the stages
of a pipeline are over. Of ranks that are different stages nothing is said: their programs differ.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rca.hang.progress import Progress
from rca.keys import Ints, mix

APART_MAX: Final = 0.25
"""Of what is over: more is not how far they have come, but what the network sees of them."""


def earliest_of(state: Progress, tied: Ints) -> Ints:
    """Those of these ranks (positions) that have come least far in all that tells; all of them where nothing does."""
    if len(tied) < 2 or state.is_cut[tied].any() or _are_stages(state, tied):
        return tied
    left = np.intersect1d(_fewest_entered(state, tied), _fewest_sent(state, tied))
    return left if len(left) else tied


def _fewest_entered(state: Progress, tied: Ints) -> Ints:
    """Those that have entered fewest ops of every communicator that all of them share."""
    members, left = state.members, tied
    mine = np.isin(members.rank_at, tied) & members.is_heard
    shared = np.bincount(members.comm[mine], minlength=len(members.comm_ids)) == len(tied)
    for comm in np.flatnonzero(shared):
        those = np.flatnonzero(mine & (members.comm == comm))
        entered = members.entered[those]
        left = np.intersect1d(left, members.rank_at[those][entered == entered.min()])
    return left


def _fewest_sent(state: Progress, tied: Ints) -> Ints:
    """Those of whose sends and receives fewest are over, in communicators in which each has the same place, and has enqueued as
    many as the others: pipelines, which they are the same stage of."""
    members, rows, at = state.members, state.known.progress, state.known.progress_at
    comm = members.comm_of(rows["comm_id"])
    those = np.isin(at, tied) & (rows["n_p2p_enqueued"] > 0) & (comm >= 0)
    rows, at, comm, left = rows[those], at[those], comm[those], tied
    role = mix(members.n_ranks[comm], members.n_nodes[comm], rows["comm_rank"], rows["n_p2p_enqueued"])
    for one in np.unique(role):
        mine = np.flatnonzero(role == one)
        done = rows["n_p2p_done"][mine].astype(np.int64)
        is_told = len(mine) == len(tied) == len(np.unique(at[mine])) and np.ptp(done) <= APART_MAX * done.min()
        left = np.intersect1d(left, at[mine][done == done.min()]) if is_told else left
    return left


def _are_stages(state: Progress, tied: Ints) -> bool:
    """Whether two of them are in a communicator whose members send to each other."""
    rows, members = state.known.progress, state.members
    comms = members.comm_of(np.unique(rows["comm_id"][rows["n_p2p_enqueued"] > 0]))
    there = np.isin(members.rank_at, tied) & np.isin(members.comm, comms)
    return bool((np.bincount(members.comm[there]) > 1).any())
