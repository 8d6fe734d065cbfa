"""The same job told otherwise: other names, other clocks, another pace, other losses, another order of arrival."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from ingest.window import Rows, Window
from nccl_instrument.tables import LOSSES, TIME_COLUMNS

Mask = npt.NDArray[np.bool_]
SECOND = 10**9
WAITS = [f"{end}{what}_wait_ns" for end in ("", "receive_") for what in ("gpu", "peer", "net")]


def renamed(window: Window, names: npt.NDArray[np.int64]) -> Window:
    """The same job with its ranks under other numbers: names[old] is the new one."""

    def under(rows: Rows) -> Rows:
        rows = rows.copy()
        rows["rank"] = np.where(rows["rank"] >= 0, names[rows["rank"]], -1)
        return rows

    ranks = under(window.ranks)
    return replace(
        window, ranks=ranks[np.argsort(ranks["rank"])], members=under(window.members),
        tables={name: under(rows) for name, rows in window.tables.items()},
    )  # fmt: skip


def with_clocks(window: Window, ahead_ns: npt.NDArray[np.int64]) -> Window:
    """The same job, the clock of node i ahead by ahead_ns[i]."""
    tables = {}
    for name, rows in window.tables.items():
        rows = rows.copy()
        for column in TIME_COLUMNS[name]:
            rows[column] += np.where(rows[column] != 0, ahead_ns[rows["node"]], 0)
        tables[name] = rows
    return replace(window, tables=tables)


def shuffled(window: Window, seed: int) -> Window:
    """The rows of every table in another order, as if their batches had arrived so."""
    shuffle = np.random.default_rng(seed).permutation
    return replace(window, tables={name: rows[shuffle(len(rows))] for name, rows in window.tables.items()})


def at_pace(window: Window, factor: float) -> Window:
    """The same job with all it does `factor` times as long, up to now; it is sampled as often as before."""
    tables = {}
    for name, rows in window.tables.items():
        rows, end = rows.copy(), window.end_ns
        for column in TIME_COLUMNS[name]:
            if column != "tick_ns":
                scaled = end - ((end - rows[column]) * factor).astype(np.int64)
                rows[column] = np.where(rows[column] != 0, scaled, 0)
        for column in (*WAITS, "stuck_ns"):
            if column in (rows.dtype.names or ()):
                rows[column] = (rows[column] * factor).astype(rows.dtype[column])
        tables[name] = rows
    return replace(window, tables=tables)


def all_slower(window: Window, factor: float) -> Window:
    """The same job with everything, its samples too, `factor` times as long since the window began."""
    tables = {}
    for name, rows in window.tables.items():
        rows, start = rows.copy(), window.start_ns
        for column in TIME_COLUMNS[name]:
            scaled = start + ((rows[column] - start) * factor).astype(np.int64)
            rows[column] = np.where(rows[column] != 0, scaled, 0)
        for column in (*WAITS, "stuck_ns"):
            if column in (rows.dtype.names or ()):
                rows[column] = (rows[column] * factor).astype(rows.dtype[column])
        tables[name] = rows
    end_ns = window.start_ns + int((window.end_ns - window.start_ns) * factor)
    return replace(window, tables=tables, end_ns=end_ns, now_ns=end_ns)


def without_batches(window: Window, lost: Collection[tuple[int, int]], *, is_counted: bool = False) -> Window:
    """Without what these (node, second of the window) batches held. is_counted: the agent knows of it and says so."""
    tables, keys = {}, np.array(sorted(node << 32 | second for node, second in lost), np.int64)
    for name, rows in window.tables.items():
        at = rows["done_ns"] if name == "op" else rows["tick_ns"] if "tick_ns" in (rows.dtype.names or ()) else None
        if at is not None:
            second = np.clip((at - window.start_ns) // SECOND, 0, 2**31)
            rows = rows[~np.isin(rows["node"].astype(np.int64) << 32 | second, keys)]
        tables[name] = rows
    if is_counted:
        told = np.zeros(len({node for node, _ in lost}), window.rows("loss").dtype)
        told["kind"], told["rank"], told["count"] = LOSSES.index("spool_batches"), -1, 1
        told["node"] = sorted({node for node, _ in lost})
        tables["loss"] = np.concatenate([window.rows("loss"), told])
    return replace(window, tables=tables)


def seconds_of(window: Window) -> int:
    """How many seconds it covers."""
    return int((window.end_ns - window.start_ns) // SECOND) + 1
