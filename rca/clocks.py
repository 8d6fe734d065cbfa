"""By how much the clocks of nodes differ, read off the ends of collectives.

    node0  ──op 17──┤           all members of a collective leave it within about one step of its ring, so what
    node1  ──op 17────┤         stays between their ends, op after op, is the clocks' difference
             offset ◀▶

Shown to people who compare times of different nodes; never used to blame anybody: every rule reads one node's clock at
a time. Only the communicators that are needed to connect the nodes are read, the widest first, since one step of theirs
is shortest.
"""

from __future__ import annotations

import numpy as np

from ingest.columns import picked, rows_at, taken
from ingest.window import Window
from nccl_instrument.tables import ALGOS, OP_NO_NETWORK
from rca.findings import NodeClock
from rca.keys import Ints, Rows, is_p2p, mix
from rca.slow.streams import Floats

ENDS_MIN = 3  # ends of shared ops; fewer say nothing about a node's clock
ROWS_MAX = 200_000
SAMPLE_MAX = 200_000
CLOCKS_MAX = 256
ROUNDS_MAX = 20
SETTLED_NS = 1_000.0
TREE = ALGOS.index("TREE")
NORMAL_MAD = 1.4826


def node_clocks(window: Window) -> tuple[NodeClock, ...]:
    """Offsets of the nodes that share ops, the largest first, at most CLOCKS_MAX; () when there are too few ends."""
    rows = _ends(window)
    if not len(rows):
        return ()
    nodes, node = np.unique(rows["node"], return_inverse=True)
    ops, op = np.unique(mix(rows["comm_id"], rows["op"]), return_inverse=True)
    since = int(rows["done_ns"].min())
    end = (rows["done_ns"] - since).astype(np.float64)
    offset, left, moved = _settled(end, node, op, len(nodes), len(ops))
    n = np.bincount(node, minlength=len(nodes))
    noise = NORMAL_MAD * _medians(node, np.abs(left), len(nodes)) / np.sqrt(np.maximum(n, 1))
    error = 2 * noise + _step_ns(rows, op, node, window, len(ops), len(nodes)) + moved
    offset -= np.median(offset)
    names = window.nodes["name"][nodes]
    order = np.argsort(-np.abs(offset), kind="stable")
    return tuple(
        NodeClock(str(names[i]), round(float(offset[i])), round(float(error[i])))
        for i in order[:CLOCKS_MAX]
        if n[i] >= ENDS_MIN
    )


def _ends(window: Window) -> Rows:
    """The newest ends of collectives that several nodes took part in, of communicators that connect most nodes."""
    ops = window.rows("op")
    chosen = _connecting(window, ops)
    if not len(chosen):
        return rows_at(ops, np.zeros(0, np.int64))
    at = np.flatnonzero(np.isin(ops["comm_id"], chosen))
    some = picked(ops, at, ("done_ns", "node", "flags", "func"))
    at = at[(some["done_ns"] > 0) & (some["node"] >= 0) & ((some["flags"] & OP_NO_NETWORK) == 0) & ~is_p2p(some)]
    if len(at) > ROWS_MAX:
        done_ns = taken(ops, "done_ns", at)
        at = at[done_ns >= np.partition(done_ns, -ROWS_MAX)[-ROWS_MAX]]
    key, node = mix(taken(ops, "comm_id", at), taken(ops, "op", at)), taken(ops, "node", at)
    order = np.lexsort((node, key))
    at, key, node = at[order], key[order], node[order]
    _, first, op = np.unique(key, return_index=True, return_inverse=True)
    is_other = np.ones(len(at), bool)
    is_other[1:] = (key[1:] != key[:-1]) | (node[1:] != node[:-1])
    n_nodes = np.bincount(op, weights=is_other, minlength=len(first))
    return rows_at(ops, at[n_nodes[op] > 1])


def _connecting(window: Window, ops: Rows) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """Communicators with ops in the window, widest first, until no further one connects nodes that were apart.

    Of nodes that stay apart only the largest part is kept: between parts nothing tells the time.
    """
    used = np.unique(ops["comm_id"][:: max(1, len(ops) // SAMPLE_MAX)])
    node_of = np.full(int(window.ranks["rank"].max(initial=-1)) + 2, -1, np.int64)
    node_of[window.ranks["rank"]] = window.ranks["node"]
    rows = window.members[(window.members["rank"] >= 0) & np.isin(window.members["comm_id"], used)]
    node = node_of[np.minimum(rows["rank"], len(node_of) - 1)]
    pairs = np.unique(np.stack([rows["comm_id"].view(np.int64), node], axis=1)[node >= 0], axis=0)
    comms, first, n = np.unique(pairs[:, 0], return_index=True, return_counts=True)
    part = np.arange(len(window.nodes))
    kept: dict[int, int] = {}
    for i in np.argsort(-n, kind="stable"):
        parts = np.unique(part[pairs[first[i] : first[i] + n[i], 1]])
        if len(parts) > 1:
            part[np.isin(part, parts)] = parts[0]
            kept[int(comms[i])] = int(pairs[first[i], 1])
    largest = np.bincount(part).argmax() if len(part) else -1
    return np.array([comm for comm, at in kept.items() if part[at] == largest], np.int64).view(np.uint64)


def _settled(end: Floats, node: Ints, op: Ints, n_nodes: int, n_ops: int) -> tuple[Floats, Floats, float]:
    """(N,) offsets, (n,) what they leave unexplained, and by how much the last round still moved them.

    Medians of ops and of nodes in turn: a few late ends do not pull a median.
    """
    offset, moved = np.zeros(n_nodes), np.inf
    left, step = end, offset
    for _ in range(ROUNDS_MAX):
        left = end - offset[node]
        left = left - _medians(op, left, n_ops)[op]
        step = _medians(node, left, n_nodes)
        offset, moved = offset + step, float(np.abs(step).max())
        if moved < SETTLED_NS:
            break
    return offset, left - step[node], moved


def _medians(group: Ints, values: Floats, n_groups: int) -> Floats:
    """(G,) the median of the values of each group; of even numbers the mean of the middle two."""
    sorted_ = np.lexsort((values, group))
    bounds = np.searchsorted(group[sorted_], np.arange(n_groups + 1))
    low, high = (bounds[:-1] + bounds[1:] - 1) // 2, (bounds[:-1] + bounds[1:]) // 2
    found: Floats = (values[sorted_][low] + values[sorted_][high]) / 2
    return found


def _step_ns(rows: Rows, op: Ints, node: Ints, window: Window, n_ops: int, n_nodes: int) -> Floats:
    """(N,) how far apart ends may lie with equal clocks: one step of the ring; in a tree, half the op."""
    began = np.maximum(np.maximum(rows["started_ns"], rows["first_ready_ns"]), rows["first_transfer_ns"])
    took = np.where(began > 0, rows["done_ns"] - began, np.iinfo(np.int64).max)
    shortest = np.full(n_ops, np.iinfo(np.int64).max)
    np.minimum.at(shortest, op, took)  # the last to come waits for nobody
    comms, place = np.unique(rows["comm_id"], return_inverse=True)
    sizes = np.array([int(window.members["n_ranks"][window.members["comm_id"] == comm][0]) for comm in comms])
    steps = np.where(rows["algo"] == TREE, 2, np.maximum(sizes[place] - 1, 1))
    known = shortest[op] < np.iinfo(np.int64).max
    each = np.where(known, np.maximum(shortest[op], 0) / steps, 0.0)
    return _medians(node, each, n_nodes)
