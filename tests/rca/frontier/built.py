"""Windows with stage rows, communicators and ops, as ingest would cut them, out of a matrix of durations."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ingest.window import MEMBER, NODE, RANK, WINDOW_DTYPE, Rows, Window
from nccl_instrument.stage_schema import DEFAULT, Schema
from nccl_instrument.tables import FUNCS, empty_rows
from rca.frontier.accounting import Seconds
from tests.stages import stage_tables

SECOND = 10**9
END_NS = 1_790_000_000 * SECOND
WORLD = 0xAA


def joined(table: str, rows: Rows, ranks: Sequence[int] | None = None) -> Rows:
    """Rows as a window holds them: with rank and node."""
    found = np.zeros(len(rows), WINDOW_DTYPE[table])
    for name in rows.dtype.names or ():
        found[name] = rows[name]
    if "global_rank" in (rows.dtype.names or ()):
        found["rank"] = rows["global_rank"]
    if ranks is not None:
        found["rank"] = ranks
    return found


def stage_window(
    durations_s: Seconds, *, schema: Schema = DEFAULT, groups: Sequence[Sequence[int]] | None = None,
    pp: Sequence[int] | None = None, first_step: int = 0, flags: int = 0, known: int = 0, end_ns: int = END_NS,
    ranks: tuple[int, ...] = (),
) -> Window:  # fmt: skip
    """Ranks of one job; groups: communicators, by default one of everybody. known: ranks of the job, also silent ones."""
    n_ranks = durations_s.shape[1]
    ranks = ranks or tuple(range(n_ranks))
    made = stage_tables(
        durations_s * 1e3, schema=schema, first_step=first_step, flags=flags, end_ns=end_ns, ranks=ranks
    )
    tables = {name: joined(name, rows) for name, rows in made.items()}
    roster = np.zeros(max(n_ranks, known), RANK)
    roster["rank"] = np.arange(len(roster))
    for axis in ("tp", "pp", "dp", "ep"):
        roster[axis] = -1
    if pp is not None:
        roster["pp"] = pp
    nodes = np.zeros(1, NODE)
    nodes["name"], nodes["watermark_ns"], nodes["n_ranks"] = "node-0", end_ns, len(roster)
    start_ns = end_ns - int(durations_s.sum(axis=2).max(axis=1).sum() * 1.5e9) - SECOND
    held = [tuple(range(n_ranks))] if groups is None else groups
    return Window(
        "job", 1, start_ns, end_ns + 1, end_ns + 1, len(roster), nodes, roster, members_of(held), tables, 0, {}
    )  # fmt: skip


def members_of(groups: Sequence[Sequence[int]]) -> Rows:
    """Members of communicators WORLD, WORLD + 1, …"""
    found = []
    for number, ranks in enumerate(groups):
        rows = np.zeros(len(ranks), MEMBER)
        rows["comm_id"], rows["comm_rank"], rows["rank"] = WORLD + number, np.arange(len(ranks)), ranks
        rows["n_ranks"], rows["n_nodes"] = len(ranks), 1
        found.append(rows)
    return np.concatenate(found) if found else np.zeros(0, MEMBER)


def op_rows(launched_ns: np.ndarray, ready_ns: np.ndarray, ranks: Sequence[int], comm_id: int = WORLD) -> Rows:
    """(T, R, K) ops of all-reduce, of one communicator, numbered in order."""
    n_steps, n_ranks, n_ops = launched_ns.shape
    rows = empty_rows("op", launched_ns.size)
    rows["comm_id"], rows["func"] = comm_id, FUNCS.index("AllReduce")
    rows["enqueued_ns"], rows["first_ready_ns"] = launched_ns.ravel(), ready_ns.ravel()
    rows["comm_rank"] = np.broadcast_to(np.arange(n_ranks)[None, :, None], launched_ns.shape).ravel()
    rows["op"] = (
        np.arange(n_steps)[:, None, None] * n_ops + np.arange(n_ops) + np.zeros((1, n_ranks, 1), int)
    ).ravel() + 1
    whose = np.broadcast_to(np.array(ranks)[None, :, None], launched_ns.shape).ravel()
    return joined("op", rows, whose.tolist())
