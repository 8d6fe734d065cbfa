"""Kinds of waiting, and the edges of the wait-for graph as arrays.

Vertices are numbered: ranks first, then NICs whose port is down, then links (pairs of ranks between which data is
stuck), then ops with members that have not entered, and last one for all ranks nobody ever heard of. An edge reads
"waiter cannot go on before target does".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from rca.keys import Ints


class Why(IntEnum):
    """Reason of an edge."""

    NOT_ENTERED = 0
    NO_DATA = 1
    NO_CREDIT = 2
    NOT_TAKEN = 3
    LOST = 4
    IN_NODE = 5
    SAME_OP = 6
    UNHEARD = 7
    NEVER_HEARD = 8
    UNTOLD = 9


SENTENCES = {
    Why.NOT_ENTERED: "rank {target} has not entered the op",
    Why.NO_DATA: "rank {target} has sent nothing more",
    Why.NO_CREDIT: "rank {target} posts no buffer to send into",
    Why.NOT_TAKEN: "the proxy of rank {target} takes nothing that arrives",
    Why.LOST: "data between them does not arrive",
    Why.IN_NODE: "inside the node, not visible to the network",
    Why.SAME_OP: "in the same op, which rank {target} is blocked in",
    Why.UNHEARD: "rank {target} is in the same op, and its node is not heard",
    Why.UNTOLD: "rank {target} is in the same communicator, and nothing is told of it there",
    Why.NEVER_HEARD: "of ranks it may wait for nothing is heard",
}
"""Reasons as the path gives them; {target} is the rank that is waited for."""


@dataclass(frozen=True, slots=True)
class Edges:
    """Arrays of (E,). pair: position in the flow pairs, -1 when the edge does not come from a flow. comm, op: where."""

    waiter: Ints
    target: Ints
    why: Ints
    comm: Ints
    op: Ints

    def __len__(self) -> int:
        return len(self.waiter)

    def where(self, mask: np.ndarray[tuple[int], np.dtype[np.bool_]] | Ints) -> Edges:
        """The edges that `mask` selects."""
        return Edges(self.waiter[mask], self.target[mask], self.why[mask], self.comm[mask], self.op[mask])


def edges(waiter: Ints, target: Ints, why: Why, comm: Ints, op: Ints) -> Edges:
    """Edges of one kind; those from or to an unknown rank (-1) are left out."""
    keep = (waiter >= 0) & (target >= 0) & (waiter != target)
    return Edges(waiter[keep], target[keep], np.full(int(keep.sum()), int(why)), comm[keep], op[keep])


def joined(parts: list[Edges]) -> Edges:
    """All edges of `parts`."""
    if not parts:
        none = np.zeros(0, np.int64)
        return Edges(none, none, none, none, none)
    columns = [np.concatenate([getattr(part, name) for part in parts]) for name in Edges.__slots__]
    return Edges(*columns)
