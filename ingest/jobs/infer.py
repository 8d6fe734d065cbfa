"""Ranks and parallel coordinates that no launcher declared, read off the communicators.

A process without a declared rank takes its place in the largest communicator, if one communicator holds all
processes. Coordinates come from communicators that call themselves tp, pp, dp or ep, or from three families that tile
the job the way Megatron lays them out (tp varies fastest, then dp, then pp). Whatever is not unambiguous stays -1.
Pure numpy; what it says is marked as inferred by the caller.
"""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

AXES: Final = ("tp", "pp", "dp", "ep")
_WORDS: Final = {
    "tp": "tp", "tensor": "tp", "pp": "pp", "pipeline": "pp", "pipe": "pp",
    "dp": "dp", "data": "dp", "ddp": "dp", "fsdp": "dp", "ep": "ep", "expert": "ep", "moe": "ep",
}  # fmt: skip
_LAYOUT: Final = ("tp", "dp", "pp")

MEMBERSHIP: Final = np.dtype(
    [("comm_id", "<u8"), ("comm_rank", "<i4"), ("process", "<i4"), ("n_ranks", "<i4"), ("name", "U32")]
)
"""One row per member of a communicator; `process` counts the attempt's processes from 0. n_ranks is 0 while unknown."""

Ranks = npt.NDArray[np.int32]


def infer_ranks(members: npt.NDArray[np.void], n_processes: int) -> Ranks:
    """(n_processes,) global rank of each process from the largest communicator, -1 where it cannot be told."""
    ranks = np.full(n_processes, -1, np.int32)
    if len(members) == 0 or members["n_ranks"].max() <= 0:
        return ranks
    largest = members[members["n_ranks"] == members["n_ranks"].max()]
    first = largest[largest["comm_id"] == largest["comm_id"].min()]
    # Two communicators of the largest size that do not share their processes: neither is the whole job.
    if len(np.setdiff1d(members["process"], first["process"])) and _holds_all(first):
        return ranks
    if len(np.setdiff1d(largest["process"], first["process"])):
        return ranks
    unknown = members[members["n_ranks"] <= 0]
    if len(np.setdiff1d(unknown["process"], first["process"])):
        return ranks  # a communicator of unknown size reaches further: it may be the larger one
    ranks[first["process"]] = first["comm_rank"]
    return ranks


def infer_coordinates(members: npt.NDArray[np.void], ranks: Ranks) -> dict[str, npt.NDArray[np.int16]]:
    """Axis → (n_processes,) coordinate, -1 where unknown. `ranks` as of infer_ranks or declared."""
    found = {axis: np.full(len(ranks), -1, np.int16) for axis in AXES}
    names, which = np.unique(members["name"], return_inverse=True)  # few, of many members
    axes = np.array([axis_of(str(name)) or "" for name in names], "U2")[which]
    named = {axis: members[axes == axis] for axis in AXES}
    families = named if any(len(rows) for rows in named.values()) else _tiling(members, ranks)
    for axis, rows in families.items():
        if _is_partition(rows):
            found[axis][rows["process"]] = rows["comm_rank"]
    return found


def axis_of(name: str) -> str | None:
    """The axis a communicator's name speaks of, None when it names none or several."""
    axes = {_WORDS[word] for word in re.split(r"[^a-z]+", name.lower()) if word in _WORDS}
    return axes.pop() if len(axes) == 1 else None


def _holds_all(rows: npt.NDArray[np.void]) -> bool:
    return len(rows) == rows["n_ranks"][0]


def _is_partition(rows: npt.NDArray[np.void]) -> bool:
    """Every process at most once: two communicators of one axis that share a process say nothing certain."""
    return len(np.unique(rows["process"])) == len(rows)


def _tiling(members: npt.NDArray[np.void], ranks: Ranks) -> dict[str, npt.NDArray[np.void]]:
    """The three families tp, dp, pp when exactly three strides tile the whole job; else none."""
    known = members[ranks[members["process"]] >= 0]
    world = len(ranks)
    strides: dict[tuple[int, int], list[npt.NDArray[np.void]]] = {}
    known = known[np.lexsort((known["comm_rank"], known["comm_id"]))]
    for rows in np.split(known, np.flatnonzero(np.diff(known["comm_id"])) + 1) if len(known) else ():
        steps = np.diff(ranks[rows["process"]])
        if not _holds_all(rows) or len(rows) in (1, world):
            continue
        if len(np.unique(steps)) != 1 or steps[0] < 1:
            return {}
        strides.setdefault((int(steps[0]), len(rows)), []).append(rows)
    return _as_layout(strides, world)


def _as_layout(
    strides: dict[tuple[int, int], list[npt.NDArray[np.void]]], world: int
) -> dict[str, npt.NDArray[np.void]]:
    expected = 1
    for stride, size in sorted(strides):
        if stride != expected:
            return {}
        expected *= size
    families = {axis: np.concatenate(strides[key]) for axis, key in zip(_LAYOUT, sorted(strides), strict=False)}
    whole = len(strides) == len(_LAYOUT) and expected == world
    return families if whole and all(len(rows) == world for rows in families.values()) else {}
