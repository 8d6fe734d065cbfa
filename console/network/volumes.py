"""Whether ops moved what is expected of them (Pulse Appendix B, LL and LL128 flags): the check on the formulas, on the algorithm
and the protocol that the library reports, and with them on every cut that rests on a volume.

The plugin's ops are cut by their own chunks, so what they moved is known without any formula. Where both differ, ops of sources
that have nothing but the formula (the verbs shim, captures) may be cut wrongly, too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

import numpy as np

from ingest.window import Window
from nccl_instrument.flows.expected import OpShape, moved_to
from nccl_instrument.flows.segmentation import HEADERS_MAX
from nccl_instrument.tables import ALGOS, FUNC_SEND, FUNCS, PROTOS, TRAFFIC_FINISHED, TRAFFIC_P2P
from rca.flows.measured import usable_rows
from rca.keys import Index, Ints, Rows, mix

SHORT_MAX: Final = 0.05
ROUNDING_BYTES: Final = 4_096
"""Chunks are rounded to whole lines, and channels need not share an op evenly to the byte."""
ROWS_MAX: Final = 200_000
SHAPES_MAX: Final = 2_000
_SHAPE: Final = ("func", "bytes", "algo", "proto", "channels")


@dataclass(frozen=True, slots=True)
class Volumes:
    """n_compared: (op, peer) pairs of which both are known. n_other: with another volume than expected. n_unknown: of an
    algorithm that the library does not report. says: what differs most often, "" when nothing does.
    """

    n_compared: int
    n_other: int
    n_unknown: int
    says: str


def volumes_of(window: Window, comm_id: int) -> Volumes:
    """Of the finished ops of one communicator."""
    rows, moved, n_channels = _by_peer(window, comm_id)
    ops = window.rows("op")
    ops = ops[ops["comm_id"] == np.uint64(comm_id)]
    is_send = ops["func"] == FUNC_SEND
    keys = mix(ops["rank"], np.where(is_send, ops["peer"], -1), ops["op"])
    is_p2p = (rows["flags"] & TRAFFIC_P2P) != 0
    at = Index(keys).find(mix(rows["rank"], np.where(is_p2p, rows["peer"], -1), rows["op"]))
    known = at >= 0
    return _compared(window, comm_id, rows[known], ops[at[known]], moved[known], n_channels[known])


def _by_peer(window: Window, comm_id: int) -> tuple[Rows, Ints, Ints]:
    """A row of each op and peer, the bytes of all its channels, and how many these are."""
    rows = usable_rows(window)
    rows = rows[(rows["comm_id"] == comm_id) & ((rows["flags"] & TRAFFIC_FINISHED) != 0)][-ROWS_MAX:]
    if not len(rows):
        return rows, np.zeros(0, np.int64), np.zeros(0, np.int64)
    _, first, of = np.unique(
        mix(rows["rank"], rows["peer"], rows["op"], rows["flags"] & TRAFFIC_P2P), return_index=True, return_inverse=True
    )
    return rows[first], np.bincount(of, rows["n_bytes"]).astype(np.int64), np.bincount(of)


def _compared(window: Window, comm_id: int, rows: Rows, ops: Rows, moved: Ints, n_channels: Ints) -> Volumes:
    members = window.members[window.members["comm_id"] == np.uint64(comm_id)]
    n_ranks = int(members["n_ranks"].max(initial=0))
    shapes = np.stack(
        [*(ops[name].astype(np.int64) for name in _SHAPE), n_channels, rows["peer"] == ops["peer"],
         rows["comm_rank"] == ops["peer"]], axis=1,
    ) if len(ops) else np.zeros((0, 8), np.int64)  # fmt: skip
    kinds, of = np.unique(shapes, axis=0, return_inverse=True)
    expected = np.array([_expected(kind, n_ranks) for kind in kinds.tolist()[:SHAPES_MAX]], np.float64)
    wanted = np.append(expected, np.nan)[np.minimum(of.ravel(), len(expected))]
    told = np.isfinite(wanted)
    short = moved < wanted * (1 - SHORT_MAX) - ROUNDING_BYTES
    beyond = moved > wanted * (1 + HEADERS_MAX) + ROUNDING_BYTES
    other = told & (short | beyond)
    return Volumes(
        int(told.sum()), int(other.sum()), int((~told).sum()), _says(ops[other], moved[other], wanted[other])
    )


def _expected(kind: list[int], n_ranks: int) -> float:
    """Bytes to one peer; NaN where nothing can be expected. kind: as in `_compared`."""
    func, n_bytes, algo, proto, channels, n, is_to_root, is_root = kind
    if func == FUNC_SEND:
        shape = OpShape(FUNCS[func], n_bytes, n_ranks, "", PROTOS[proto], 1)
    else:
        root = 1 if is_to_root else 0 if is_root else 2
        shape = OpShape(FUNCS[func], n_bytes, n_ranks, ALGOS[algo], PROTOS[proto], -1, 0, root)
    return moved_to(shape, {1: n}, channels).get(1, float("nan"))


def _says(ops: Rows, moved: Ints, wanted: np.ndarray[tuple[int], np.dtype[np.float64]]) -> str:
    if not len(ops):
        return ""
    kinds = Counter(zip(ops["func"].tolist(), ops["algo"].tolist(), ops["proto"].tolist(), strict=True))
    (func, algo, proto), n = kinds.most_common(1)[0]
    at = int(np.flatnonzero((ops["func"] == func) & (ops["algo"] == algo) & (ops["proto"] == proto))[-1])
    words = " ".join(word for word in (FUNCS[func], ALGOS[algo], PROTOS[proto]) if word not in ("", "Unknown"))
    return (
        f"{len(ops):,} times an op moved another volume than expected of it, {n:,} times as {words}: of "
        f"{int(ops['bytes'][at]):,} bytes {float(wanted[at]) / 1e6:.4g} MB were to go to a peer, {int(moved[at]) / 1e6:.4g} MB "
        "went. Ops that are cut by volume alone may be cut wrongly."
    )
