"""Ops of which members say different things: what one entered as its n-th is not what the others entered as theirs.

A rank that entered something else is often the only one still in it: its peers are through with their own n-th op, and wait
further on. So ops in progress anywhere are compared with what every member says of the same number, completed or not.
Between the two ends of such an op the counters count different things, and prove nothing about each other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nccl_instrument.tables import FUNCS
from rca.hang.known import Known
from rca.keys import Ints, Keys, Mask, Rows, among, is_p2p, latest, mix

_SHAPE = ("func", "dtype", "count", "peer")
_ROOTED = tuple(FUNCS.index(name) for name in ("Broadcast", "Reduce", "Gather", "Scatter"))


@dataclass(frozen=True, slots=True)
class Disputed:
    """Arrays of (D,): what each member says of every op they disagree on.

    at: rank position. shape: one key for what it entered; `says` has the columns. is_done: the member is through with it.
    """

    at: Ints
    key: Keys
    comm_id: Keys
    op: Ints
    shape: Keys
    says: Rows
    is_done: Mask


def disputed_ops(known: Known) -> Disputed:
    """The ops in progress at some member that another member has, or had, as another function, size, type or root."""
    is_live = _can_compare(known.live)
    live_key = known.live_key[is_live]
    done = np.flatnonzero(among(known.recent_key, live_key) & (known.op_at[known.recent] >= 0))
    done = done[_can_compare(known.window.rows("op")[known.recent[done]])]
    row, done_key = known.recent[done], known.recent_key[done]
    rows, done_at = known.window.rows("op")[row], known.op_at[row]
    chosen = latest(mix(done_at, done_key), rows["done_ns"])
    live_at = known.live_at[is_live]
    chosen = chosen[~among(mix(done_at[chosen], done_key[chosen]), mix(live_at, live_key))]
    at, key = np.concatenate([live_at, done_at[chosen]]), np.concatenate([live_key, done_key[chosen]])
    says = np.concatenate([_said(known.live[is_live]), _said(rows[chosen])])
    shape = mix(*(says[name] for name in _SHAPE))
    _, first, op = np.unique(key, return_index=True, return_inverse=True)
    differs = np.isin(op, np.unique(op[shape != shape[first][op]]))
    is_done = np.arange(len(key)) >= len(live_key)
    comm_id, number = says["comm_id"][differs], says["op"][differs].astype(np.int64)
    return Disputed(at[differs], key[differs], comm_id, number, shape[differs], says[differs], is_done[differs])


def _said(rows: Rows) -> Rows:
    """The columns that must agree. `peer` of a collective is its root, which only some functions have."""
    found = np.zeros(len(rows), [(name, rows.dtype[name]) for name in ("comm_id", "op", *_SHAPE)])
    for name in found.dtype.names or ():
        found[name] = rows[name]
    found["peer"][~np.isin(rows["func"], _ROOTED)] = -1
    return found


def _can_compare(rows: Rows) -> Mask:
    """Collectives whose function and type are known."""
    found: Mask = ~is_p2p(rows) & (rows["func"] > 0) & (rows["dtype"] > 0) & (rows["rank"] >= 0)
    return found
