"""Which microbatch a stage of a pipeline computed when, in one iteration: F_i and B_i to mark on its curve (Pulse Figure 7).

As the panel tells it (rca/flows/panel.py): the i-th receive from the stage before begins F_i, the i-th send to the stage behind
ends it; for B_i the other way round. Where nothing is received a microbatch begins where the one before it ended.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from nccl_instrument.tables import FUNC_RECV, FUNC_SEND, OP_P2P
from rca.keys import Rows

MICROBATCHES_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Mark:
    """word: F3 or B3. Times of the server's clock."""

    word: str
    begins_ns: int
    ends_ns: int


def marks_of(ops: Rows, comm_id: int, rank: int, place: int, n_ranks: int, enqueued: tuple[int, int]) -> list[Mark]:
    """Of one stage. ops: rows of `op`; place: of the rank in the pipeline; enqueued: [from, until) of the iteration."""
    mine = ops[(ops["comm_id"] == comm_id) & (ops["rank"] == rank) & ((ops["flags"] & OP_P2P) != 0)]
    mine = mine[(mine["enqueued_ns"] >= enqueued[0]) & (mine["enqueued_ns"] < enqueued[1])]
    before, behind = place - 1, place + 1 if place + 1 < n_ranks else -1
    found = _marks("F", _ends(mine, FUNC_RECV, before), _ends(mine, FUNC_SEND, behind))
    return found + _marks("B", _ends(mine, FUNC_RECV, behind), _ends(mine, FUNC_SEND, before))


def _ends(ops: Rows, func: int, peer: int) -> list[int]:
    """When each was through that was received, or began to go that was sent; empty without a peer."""
    if peer < 0:
        return []
    mine = ops[(ops["func"] == func) & (ops["peer"] == peer)]
    mine = mine[mine["op"].argsort(kind="stable")][:MICROBATCHES_MAX]
    names = ("last_transfer_ns", "done_ns") if func == FUNC_RECV else ("first_ready_ns", "started_ns")
    return [int(row[names[0]]) or int(row[names[1]]) for row in mine]


def _marks(letter: str, came: list[int], went: list[int]) -> list[Mark]:
    came = came or [0, *went[:-1]]
    return [
        Mark(f"{letter}{at}", begin, end)
        for at, (begin, end) in enumerate(zip(came, went, strict=False))
        if 0 < begin < end
    ]
