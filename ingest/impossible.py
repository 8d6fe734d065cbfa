"""Rows that are well-formed but cannot be true: codes out of range, counters out of order, times that have not come.

They are dropped and counted, and the rest of their batch is kept: one torn row of shared memory must not cost a second
of a node. Pure numpy, a handful of comparisons per table.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.planes import PlaneTable
from nccl_instrument.tables import (
    ALGOS,
    DIRECTIONS,
    DTYPES,
    FUNCS,
    LOSSES,
    PORT_STATES,
    PROTOS,
    TIME_COLUMNS,
    TRANSPORTS,
)
from nccl_instrument.wire import Rows

FUTURE_NS_MAX: Final = 60_000_000_000
OP_BYTES_MAX: Final = 2**50
RANKS_MAX: Final = 2**20

_OP_CODES: Final = {
    "func": FUNCS, "dtype": DTYPES, "algo": ALGOS, "proto": PROTOS, "slowest_direction": DIRECTIONS,
}  # fmt: skip
_CODES: Final[dict[str, dict[str, tuple[str, ...]]]] = {
    "comm": {"transport": TRANSPORTS},
    "op": _OP_CODES,
    "live_op": _OP_CODES,
    "flow": {"func": FUNCS, "direction": DIRECTIONS, "transport": TRANSPORTS},
    "nic": {"port_state": PORT_STATES},
    "loss": {"kind": LOSSES},
}
_NOT_NEGATIVE: Final = {
    "comm": ("comm_rank",), "op": ("comm_rank",), "live_op": ("comm_rank",), "progress": ("comm_rank",),
    "flow": ("comm_rank", "stuck_ns"),
}  # fmt: skip


def impossible_rows(table: str, rows: Rows | PlaneTable, mono_ns: int) -> npt.NDArray[np.bool_]:
    """(n,) mask of rows that cannot be true in a batch cut at mono_ns. Columns may be narrower than their type."""
    bad = np.zeros(len(rows), np.bool_)
    for name, codes in _CODES.get(table, {}).items():
        bad |= rows[name] >= len(codes)
    for name in (*_NOT_NEGATIVE.get(table, ()), *TIME_COLUMNS[table]):
        if rows[name].dtype.kind == "i":
            bad |= rows[name] < 0
    for name in TIME_COLUMNS[table]:
        bad |= rows[name] > mono_ns + FUTURE_NS_MAX
    if table == "comm":
        known = rows["n_ranks"] > 0  # interface v3 does not tell the size
        bad |= (rows["n_ranks"] < -1) | (known & (rows["comm_rank"] >= rows["n_ranks"]))
        bad |= (rows["n_ranks"] > RANKS_MAX) | (rows["global_rank"] >= RANKS_MAX) | (rows["world_size"] > RANKS_MAX)
    if table == "flow":
        counters = rows["counters"]
        for before, after in ((0, 1), (1, 2), (2, 3)):
            bad |= counters[:, after] > counters[:, before]
        bad |= counters[:, 0] > rows["total_chunks"]
    if table in ("op", "live_op"):
        bad |= (rows["done_ns"] != 0) & (rows["done_ns"] < rows["enqueued_ns"])
        bad |= rows["bytes"] > OP_BYTES_MAX
    return bad
