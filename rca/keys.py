"""Joins of trace rows by several columns at once, without Python loops.

A 64-bit mix of the columns stands for the tuple: at a million rows the chance of any collision is below 10⁻⁷, and
sorting one integer column is some ten times faster than sorting structured rows.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from ingest.columns import Columns
from nccl_instrument.tables import FUNC_RECV, FUNC_SEND, OP_P2P, SEND

Rows = npt.NDArray[np.void]
Keys = npt.NDArray[np.uint64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Told = Rows | Columns

SORTED_MIN: Final = 2_000
_ODD = np.uint64(0x9E3779B97F4A7C15)
_SHIFT = np.uint64(29)


def mix(*columns: npt.NDArray[np.generic] | int) -> Keys:
    """(n,) one key per row for the tuple of its columns (integers of any width; scalars are broadcast)."""
    arrays = np.broadcast_arrays(*(np.atleast_1d(np.asarray(column)) for column in columns))
    key = np.full(arrays[0].shape, len(arrays), np.uint64)
    for column in arrays:
        word = column if column.dtype == np.uint64 else column.astype(np.int64).view(np.uint64)
        key = (key ^ word) * _ODD
        key ^= key >> _SHIFT
    return key


def latest(keys: Keys, tick: Ints) -> Ints:
    """Positions of the newest row of every distinct key, of equally new ones the last; ordered by key."""
    if not len(keys):
        return np.zeros(0, np.int64)
    order = np.argsort(keys)  # several times as fast as a stable sort, or one by two columns
    first = np.flatnonzero(_begins(keys[order]))
    ticks = np.asarray(tick)[order]
    newest = np.repeat(np.maximum.reduceat(ticks, first), np.diff(np.append(first, len(order))))
    found: Ints = np.maximum.reduceat(np.where(ticks == newest, order, -1), first)
    return found


def distinct(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Sorted, each once; np.unique puts integers into a hash table, which takes a hundred times as long."""
    ordered = np.sort(values, axis=None)
    return ordered[_begins(ordered)] if len(ordered) else ordered


def in_order(keys: npt.NDArray[Any]) -> Ints:
    """The positions that sort the keys, equal ones as they came: vectorised, where numpy's stable sort is not."""
    order = np.argsort(keys)
    ordered = keys[order]
    is_same = ordered[1:] == ordered[:-1]
    if is_same.any():
        tied = np.append(False, is_same) | np.append(is_same, False)
        run = np.cumsum(~np.append(False, is_same)[tied])
        order[tied] = np.sort(run * len(keys) + order[tied]) % len(keys)
    found: Ints = order
    return found


def grouped(keys: npt.NDArray[Any]) -> tuple[npt.NDArray[Any], Ints, Ints]:
    """What np.unique says: the distinct keys, sorted, where each comes first, and (n,) which of them each key is."""
    if not len(keys):
        return keys[:0], np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.argsort(keys)
    begins = _begins(keys[order])
    starts = np.flatnonzero(begins)
    of = np.empty(len(keys), np.int64)
    of[order] = np.cumsum(begins) - 1
    return keys[order[starts]], np.minimum.reduceat(order, starts), of


def firsts(keys: npt.NDArray[Any]) -> Ints:
    """Where each of the distinct keys, as they are sorted, comes first."""
    if not len(keys):
        return np.zeros(0, np.int64)
    order = np.argsort(keys)
    found: Ints = np.minimum.reduceat(order, np.flatnonzero(_begins(keys[order])))
    return found


def medians(group: Ints, values: Ints, n_groups: int) -> npt.NDArray[np.float64]:
    """(G,) the (lower) median of the values of each group; groups without any have that of what lies beside them."""
    if not len(values):
        return np.zeros(0)
    least, span = int(values.min()), int(values.max()) - int(values.min()) + 1
    if n_groups * span < 2**62:  # group and value in one number, which is sorted several times as fast
        ordered = np.sort(group * span + (values - least))
        bounds = np.searchsorted(ordered, np.arange(n_groups + 1) * span)
        middle = (bounds[:-1] + bounds[1:] - 1) // 2
        found: Ints = ordered[middle] % span + least
        return found.astype(np.float64)
    order = np.lexsort((values, group))
    bounds = np.searchsorted(group[order], np.arange(n_groups + 1))
    middle = (bounds[:-1] + bounds[1:] - 1) // 2
    found = np.asarray(values)[order][middle]
    return found.astype(np.float64)


def _begins(ordered: npt.NDArray[Any]) -> Mask:
    """(n,) which of some sorted values is another than the one before."""
    found = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=found[1:])
    return found


def places(of: Keys | Ints, keys: Keys | Ints, side: Literal["left", "right"] = "left") -> Ints:
    """(n,) where the keys stand in sorted ones: many are sorted first, as steps through memory cost more than sorting."""
    if len(keys) < SORTED_MIN or len(of) < SORTED_MIN:
        found: Ints = np.searchsorted(of, keys, side)
        return found
    order = np.argsort(keys)
    found = np.empty(len(keys), np.int64)
    found[order] = np.searchsorted(of, keys[order], side)
    return found


def among(keys: Keys, of: Keys) -> Mask:
    """(n,) which keys are in `of`; np.isin hashes keys one by one, which takes ten times as long."""
    return in_sorted(keys, np.sort(of))


def in_sorted(keys: Keys, of: Keys) -> Mask:
    """`among`, of keys that are sorted already."""
    if not len(of):
        return np.zeros(len(keys), bool)
    found: Mask = of[np.minimum(places(of, keys), len(of) - 1)] == keys
    return found


class Index:
    """Finds the row that has a key; of equal keys, any one."""

    def __init__(self, keys: Keys) -> None:
        self.order = in_order(keys)
        self.keys = keys[self.order]

    def find(self, keys: Keys) -> Ints:
        """(n,) row of each key, -1 where there is none."""
        if not len(self.keys):
            return np.full(len(keys), -1, np.int64)
        place = np.minimum(places(self.keys, keys), len(self.keys) - 1)
        return np.where(self.keys[place] == keys, self.order[place], -1)


class Groups:
    """Finds all rows that have a key."""

    def __init__(self, keys: Keys | Ints) -> None:
        self.order = in_order(keys)
        self.keys = keys[self.order]

    def find(self, keys: Keys | Ints) -> tuple[Ints, Ints]:
        """Every match, as the position of the key asked for and the row that has it."""
        first = places(self.keys, keys)
        count = places(self.keys, keys, "right") - first
        asked = np.repeat(np.arange(len(keys)), count)
        nth = np.arange(len(asked)) - np.repeat(np.cumsum(count) - count, count)
        return asked, self.order[first[asked] + nth]


def is_p2p(rows: Told) -> Mask:
    """(n,) which rows belong to a send or receive, not a collective."""
    found: Mask = ((rows["flags"] & OP_P2P) != 0) | (rows["func"] == FUNC_SEND) | (rows["func"] == FUNC_RECV)
    return found


def op_keys(rows: Rows, p2p: Mask | None = None) -> Keys:
    """(n,) key of the op each op or flow row belongs to; equal at all ranks that take part. p2p: what is_p2p says of them.

    Sends and receives are numbered per pair and direction, so the pair belongs to the key.
    """
    p2p = is_p2p(rows) if p2p is None else p2p
    key = collective_keys(rows["comm_id"], rows["op"])
    chosen = np.flatnonzero(p2p)
    key[chosen] = mix(rows["comm_id"][chosen], rows["op"][chosen], *_pair(rows, chosen))
    return key


def collective_keys(comm_id: Keys, op: Ints) -> Keys:
    """(n,) what `op_keys` says of the collectives with these numbers."""
    return mix(comm_id, op, 0, -1, -1)


def stream_keys(rows: Told) -> Keys:
    """(n,) key of the ops an op follows by number: its communicator's collectives, or those of its pair and direction."""
    key, chosen = mix(rows["comm_id"], 0, -1, -1), np.flatnonzero(is_p2p(rows))
    key[chosen] = mix(rows["comm_id"][chosen], *_pair(rows, chosen))
    return key


def _pair(rows: Told, chosen: Ints) -> tuple[int, Ints, Ints]:
    """That these are sends and receives, with the sender and the receiver of each."""
    mine, other = rows["comm_rank"][chosen].astype(np.int64), rows["peer"][chosen].astype(np.int64)
    is_flow = "direction" in (rows.dtype.names or ())
    sends = rows["direction"][chosen] == SEND if is_flow else rows["func"][chosen] == FUNC_SEND
    return 1, np.where(sends, mine, other), np.where(sends, other, mine)
