"""Which algorithm the collectives of a communicator ran, by who sent to whom, beside what the library says (Pulse §5.1).

A ring is one circle, a tree joins all members both ways, two trees are neither; of a communicator whose members share nodes the
network shows only the hops between nodes, and each node counts as one. What disagrees is shown: then expected volumes, and with
them where ops were cut, are in doubt.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ingest.window import Window
from nccl_instrument.flows.algorithm import infer_algorithm
from nccl_instrument.flows.expected import Algorithm
from nccl_instrument.tables import ALGOS, TRAFFIC_P2P
from rca.flows.measured import usable_rows
from rca.keys import Index, Ints, Rows, mix

REPORTED = {
    "RING": frozenset({Algorithm.RING}),
    "TREE": frozenset({Algorithm.TREE, Algorithm.DOUBLE_TREE}),
}
"""What the library's words allow: it calls one tree and two the same."""
OPS_MAX = 200_000

Peers = dict[int, set[int]]
"""End → ends it sends to."""


@dataclass(frozen=True, slots=True)
class AlgorithmSeen:
    """Of the ops of one communicator and function that the library says ran alike. inferred: None where the pattern is
    neither, or not all members were measured. reported: "" where the library does not say. agrees: None where one of the two
    is not known, or two members make ring and tree the same.
    """

    comm_id: int
    func: int
    inferred: Algorithm | None
    reported: str
    n_ops: int
    agrees: bool | None

    @property
    def sentence(self) -> str:
        """What disagrees, "" when nothing does."""
        if self.agrees is not False:
            return ""
        return (
            f"{self.n_ops} ops are said to run {self.reported}, and their bytes go as in a {self.inferred}: volumes expected of "
            "them may be wrong."
        )


def algorithms_in(window: Window) -> tuple[AlgorithmSeen, ...]:
    """Of every communicator and function with measured collectives."""
    rows = usable_rows(window)
    rows = rows[(rows["flags"] & TRAFFIC_P2P) == 0][-OPS_MAX:]
    ops = window.rows("op")
    at = Index(mix(ops["rank"], ops["comm_id"], ops["op"])).find(mix(rows["rank"], rows["comm_id"], rows["op"]))
    rows, at = rows[at >= 0], at[at >= 0]
    if not len(rows):
        return ()
    func, algo = ops["func"][at].astype(np.int64), ops["algo"][at].astype(np.int64)
    _, first, of = np.unique(mix(rows["comm_id"], func, algo), return_index=True, return_inverse=True)
    return tuple(_seen(window, rows[of == one], int(func[i]), int(algo[i])) for one, i in enumerate(first))


def _seen(window: Window, rows: Rows, func: int, algo: int) -> AlgorithmSeen:
    comm_id = int(rows["comm_id"][0])
    reported = ALGOS[algo] if 0 < algo < len(ALGOS) else ""
    peers = [_peers(window, rows[rows["channel"] == channel]) for channel in np.unique(rows["channel"])]
    inferred = _of_channels(peers, _n_ends(window, comm_id))
    n_ops = len(np.unique(rows["op"]))
    allowed = REPORTED.get(reported)
    agrees = None if inferred is None or allowed is None else inferred in allowed
    if _n_ends(window, comm_id) <= 2:
        inferred, agrees = None, None
    return AlgorithmSeen(comm_id, func, inferred, reported, n_ops, agrees)


def _of_channels(peers: list[Peers], n_ends: int) -> Algorithm | None:
    """What all channels show; trees that take different ways are two."""
    patterns = {infer_algorithm(one, n_ends) for one in peers}
    if patterns == {Algorithm.TREE}:
        return Algorithm.TREE if all(one == peers[0] for one in peers) else Algorithm.DOUBLE_TREE
    if patterns and patterns <= {Algorithm.TREE, Algorithm.DOUBLE_TREE}:
        return Algorithm.DOUBLE_TREE
    return patterns.pop() if len(patterns) == 1 else None


def _peers(window: Window, rows: Rows) -> Peers:
    """Of one channel. Members of one node are one end: between them the network shows nothing."""
    end = _ends(window, int(rows["comm_id"][0]))
    peers: Peers = {}
    for mine, peer in np.unique(np.stack([rows["comm_rank"], rows["peer"]], axis=1), axis=0).tolist():
        if mine in end and peer in end and end[mine] != end[peer]:
            peers.setdefault(end[mine], set()).add(end[peer])
    return peers


def _ends(window: Window, comm_id: int) -> dict[int, int]:
    """Place in the communicator → its node; a member whose node is not known is an end of its own."""
    members = window.members[window.members["comm_id"] == np.uint64(comm_id)]
    at = Index(mix(window.ranks["rank"])).find(mix(members["rank"]))
    node: Ints = np.where(at >= 0, window.ranks["node"][at] if len(window.ranks) else -1, -1)
    places = members["comm_rank"].tolist()
    return {place: int(one) if one >= 0 else -1 - place for place, one in zip(places, node.tolist(), strict=True)}


def _n_ends(window: Window, comm_id: int) -> int:
    return len(set(_ends(window, comm_id).values()))
