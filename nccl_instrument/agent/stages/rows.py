"""Rows of the four stage tables out of what a stage recorder's file holds: only slots whose numbers can be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.agent.stages.declared import RANKS_MAX, Declaration
from nccl_instrument.stage_ring import COUNTS, SIDE_SLOT, SLOT_BYTES, STEP_SLOT
from nccl_instrument.stage_schema import SIDES_MAX, STAGES_MAX, Schema
from nccl_instrument.tables import GATHERED, NOT_READY, STAGES_A_ROW, empty_rows
from nccl_instrument.wire import Rows

RAW: Final = np.dtype(
    [
        ("number", "<u8"), ("ended_ns", "<i8"), ("schema", "<u8"), ("step", "<i8"), ("overlap_ns", "<u8"),
        ("durations_ns", "<i8", (STAGES_A_ROW,)), ("rank", "<i4"), ("repeats", "<u2"), ("kind", "u1"), ("part", "u1"),
        ("flags", "<u4"), ("check", "<u4"), ("rest", "V8"),
    ]
)  # fmt: skip
_COUNTED: Final = (
    "broken", "nested", "unknown", "outside", "out_of_order", "bad_waits", "dropped", "events_asked", "events_lost",
    "gathers", "gathers_failed",
)  # fmt: skip
DURATION_NS_MAX: Final = 2**53
"""A hundred days: what is longer is no duration, and sums of what is shorter are numbers."""
TIME_NS_MAX: Final = 2**62
NO_COUNTS: Final = (0,) * (1 + len(_COUNTED))
assert RAW.itemsize == SLOT_BYTES and COUNTS.size == 8 + 4 * len(_COUNTED)


def are_sensible(slots: npt.NDArray[np.void]) -> npt.NDArray[np.bool_]:
    """Which slots could be a step or a side channel's value."""
    kind, durations, part = slots["kind"], slots["durations_ns"], slots["part"]
    is_step, is_side = kind == STEP_SLOT, kind == SIDE_SLOT
    least = np.where(is_side, NOT_READY, 0)
    in_place = (is_step & (part < -(-STAGES_MAX // STAGES_A_ROW))) | (is_side & (part < SIDES_MAX))
    in_time = (slots["ended_ns"] >= 0) & (slots["ended_ns"] < TIME_NS_MAX) & (slots["overlap_ns"] <= DURATION_NS_MAX)
    is_counted = (slots["step"] >= -DURATION_NS_MAX) & (slots["step"] <= DURATION_NS_MAX)
    fits = (durations.min(axis=1) >= least) & (durations.max(axis=1) <= DURATION_NS_MAX)
    sensible: npt.NDArray[np.bool_] = in_place & in_time & is_counted & fits
    return sensible


def slot_rows(read: Sequence[tuple[npt.NDArray[np.void], int, int]]) -> tuple[Rows, Rows]:
    """Rows of `stage` and of `side`, by rank and step: neighbours are alike then."""
    n = {kind: sum(int((raw["kind"] == kind).sum()) for raw, _, _ in read) for kind in (STEP_SLOT, SIDE_SLOT)}
    stage, side = empty_rows("stage", n[STEP_SLOT]), empty_rows("side", n[SIDE_SLOT])
    at = {STEP_SLOT: 0, SIDE_SLOT: 0}
    for raw, pid, own in read:
        for kind, rows in ((STEP_SLOT, stage), (SIDE_SLOT, side)):
            mine = raw[raw["kind"] == kind]
            some = rows[at[kind] : at[kind] + len(mine)]
            at[kind] += len(mine)
            is_gathered = (mine["flags"] & GATHERED) != 0
            for name in ("ended_ns", "schema", "step"):
                some[name] = mine[name]
            some["pid"] = np.where(is_gathered & (mine["rank"] != own), -1, pid)
            some["global_rank"] = np.where(mine["rank"] >= 0, np.minimum(mine["rank"], RANKS_MAX - 1), own)
            if kind == STEP_SLOT:
                for name in ("part", "repeats", "overlap_ns", "durations_ns"):
                    some[name] = mine[name]
                some["flags"] = mine["flags"] & 255
            else:
                some["channel"], some["value_ns"] = mine["part"], mine["durations_ns"][:, 0]
    return stage[np.lexsort((stage["part"], stage["step"], stage["global_rank"]))], side


def recorder_rows(said: Declaration, counts: Sequence[int], n_lost: int, tick_ns: int) -> Rows:
    """The rows of `recorder`: its own, then those of the ranks it brings. counts: as in the file. n_lost: slots not read."""
    rows = empty_rows("recorder", 1)
    for name, value in (("tick_ns", tick_ns), ("pid", said.pid), ("global_rank", said.rank), ("schema", said.now)):
        rows[name] = value
    rows["world_size"], rows["road"], rows["flags"], rows["role"] = said.world_size, said.road, said.flags, said.role
    rows["event_permille"], rows["steps"] = said.event_permille, counts[0]
    for name, count in zip(_COUNTED, counts[1:], strict=True):
        rows[name] = count
    rows["dropped"] = min(int(rows["dropped"][0]) + n_lost, 2**32 - 1)
    return np.concatenate([rows, *(_member_rows(said, tick_ns, *run) for run in said.members)])


def _member_rows(said: Declaration, tick_ns: int, role: bytes, flags: int, first: int, last: int) -> Rows:
    """Of other ranks whose steps a gather brings: what part they play. What they counted themselves is not known."""
    rows = empty_rows("recorder", last - first + 1)
    rows["global_rank"] = np.arange(first, last + 1)
    rows["tick_ns"], rows["schema"], rows["world_size"], rows["road"] = tick_ns, said.now, said.world_size, said.road
    rows["role"], rows["flags"] = role, flags
    return rows


def schema_rows(schemas: dict[int, Schema], tick_ns: int) -> Rows:
    """Rows of `schema`, of each by its id."""
    declared = [(key, schema, one) for key, schema in sorted(schemas.items()) for one in schema.declared()]
    rows = empty_rows("schema", len(declared))
    for row, (key, schema, one) in zip(rows, declared, strict=True):
        row["tick_ns"], row["schema"], row["order_hash"] = tick_ns, key, schema.order_hash
        row["version"], row["n_stages"], row["micro_steps"] = schema.version, len(schema.stages), schema.micro_steps
        row["kind"], row["position"], row["micro"] = one.kind, one.position, one.micro
        row["name"], row["parent"] = one.name.encode(), one.parent.encode()
    return rows
