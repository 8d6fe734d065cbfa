"""Bytes of which no op could be told (op −1): of queue pairs whose collectives follow no pattern, after a loss,
or without an op source at all. Rates, peers and gaps stand; verdicts rest on none of them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import NO_OP, SEND

RANKS_MAX: Final = 64


def unowned_of(window: Window, comm_id: int) -> dict[str, Any]:
    """Of a communicator: how much of its bytes that is, and rank by rank; n_ranks 0 without any."""
    rows = window.rows("traffic")
    rows = rows[(rows["comm_id"] == comm_id) & (rows["direction"] == SEND)]
    mine = rows[(rows["op"] == NO_OP) & (rows["rank"] >= 0)]
    total = float(rows["n_bytes"].sum())
    ranks = np.unique(mine["rank"])
    return {
        "share": round(float(mine["n_bytes"].sum()) / total, 4) if total else 0.0, "n_ranks": len(ranks),
        "ranks": [_rank(mine[mine["rank"] == rank]) for rank in ranks[:RANKS_MAX]],
    }  # fmt: skip


def _rank(rows: Any) -> dict[str, Any]:
    """Connections may move bytes at once, so the rate is that of each while it does, not of the rank."""
    active = rows["actual_ns"] > 0
    rates = rows["n_bytes"][active] / rows["actual_ns"][active]
    return {
        "rank": int(rows["rank"][0]), "mb": round(float(rows["n_bytes"].sum()) / 1e6, 3),
        "connections": len(np.unique(np.stack([rows["channel"], rows["peer"]], axis=1), axis=0)),
        "gb_per_s": round(float(np.median(rates)), 4) if len(rates) else None,
    }  # fmt: skip
