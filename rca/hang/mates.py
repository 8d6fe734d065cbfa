"""Members of a communicator that are on one node, where it spans several: what they exchange, the network does not see.

Found for thousands of ranks at once: a diagnosis asks for the mates of every rank that stands still.
"""

from __future__ import annotations

import numpy as np

from rca.hang.known import Known
from rca.hang.members import Members
from rca.keys import Groups, Ints, mix


class Mates:
    """The members on every node, of communicators that have several somewhere and span several nodes."""

    def __init__(self, known: Known, members: Members) -> None:
        self.node = known.ranks.node
        node = self.node[members.rank_at]
        spans = members.n_nodes[members.comm] < members.n_ranks[members.comm]
        self.chosen = np.flatnonzero((node >= 0) & spans)
        self.by_place = Groups(mix(members.comm[self.chosen], node[self.chosen]))

    def find(self, comm: Ints, at: Ints) -> tuple[Ints, Ints]:
        """Of each communicator and rank position: its position in the question and each member on that rank's node, that
        rank included."""
        asked, place = self.by_place.find(mix(comm, self.node[at]))
        return asked, self.chosen[place]
