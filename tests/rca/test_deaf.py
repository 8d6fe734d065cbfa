"""When a send that was never offered to the GPU proves that nobody looks: its connection must have been free for a while."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ingest.window import WINDOW_DTYPE
from nccl_instrument.tables import FUNC_RECV, FUNC_SEND, FUNCS, SEND
from rca.hang.deaf import offers_nothing
from rca.keys import Rows, is_p2p
from rca.settings import DEFAULT

TICK_NS = 10_000_000_000
STILL_NS = DEFAULT.still_ns
GATHER = FUNCS.index("AllGather")


def told(table: str, *rows: dict[str, Any]) -> Rows:
    found = np.zeros(len(rows), WINDOW_DTYPE[table])
    for at, row in enumerate(rows):
        for name, value in {"comm_id": 7, "comm_rank": 0, **row}.items():
            found[name][at] = value
    return found


def is_deaf(flow: Rows, *ops: dict[str, Any]) -> bool:
    """Whether rank 0 is, which has these flows and has finished these ops."""
    over = told("op", *ops)
    known: Any = SimpleNamespace(
        window=SimpleNamespace(rows=lambda _: over), flow=flow, flow_at=np.zeros(len(flow), np.int64),
        ranks=SimpleNamespace(rank=np.arange(2)), op_at=over["rank"].astype(np.int64), op_p2p=is_p2p(over),
    )  # fmt: skip
    return bool(offers_nothing(known, DEFAULT)[0])


def send(**named: Any) -> dict[str, Any]:
    """A send of op 5 to peer 1 that has stood still for long, of which nothing was offered."""
    return {
        "op": 5,
        "func": FUNC_SEND,
        "direction": SEND,
        "peer": 1,
        "tick_ns": TICK_NS,
        "stuck_ns": 2 * STILL_NS,
        **named,
    }


def before(done_ns: int, **named: Any) -> dict[str, Any]:
    """The send before it, on the same connection."""
    return {"op": 4, "func": FUNC_SEND, "peer": 1, "done_ns": done_ns, "rank": 0, **named}


FREE_NS = TICK_NS - STILL_NS


def test_a_send_on_a_free_connection_that_nobody_offers_to_the_gpu() -> None:
    assert is_deaf(told("flow", send()))
    assert is_deaf(told("flow", send()), before(FREE_NS))


@pytest.mark.parametrize(
    "done_ns", [FREE_NS + 1, TICK_NS, TICK_NS + STILL_NS], ids=["lately", "at the tick", "since the tick"]
)
def test_a_send_was_queued_behind_another_that_ended_lately_or_since_it_was_last_told_of(done_ns: int) -> None:
    assert not is_deaf(told("flow", send()), before(done_ns))


def test_an_op_of_the_same_communicator_queues_collectives() -> None:
    flow = told("flow", send(func=GATHER, peer=3))
    assert not is_deaf(flow, before(TICK_NS, func=GATHER, peer=0))
    assert is_deaf(flow, before(FREE_NS, func=GATHER, peer=0))


@pytest.mark.parametrize(
    "other",
    [{"peer": 2}, {"func": FUNC_RECV}, {"comm_id": 8}, {"rank": 1}, {"func": GATHER}],
    ids=["to another peer", "a receive", "of another communicator", "of another rank", "a collective"],
)
def test_what_ended_on_another_connection_excuses_nothing(other: dict[str, Any]) -> None:
    assert is_deaf(told("flow", send()), before(TICK_NS, **other))


@pytest.mark.parametrize(
    "other",
    [{"counters": (1, 0, 0, 0)}, {"direction": SEND + 1, "func": FUNC_RECV}, {"stuck_ns": STILL_NS - 1}],
    ids=["offered", "a receive", "not for long"],
)
def test_what_proves_nothing(other: dict[str, Any]) -> None:
    assert not is_deaf(told("flow", send(**other)))


def test_a_send_behind_one_that_is_still_in_progress_proves_nothing() -> None:
    assert not is_deaf(told("flow", send(op=4, counters=(2, 0, 0, 0)), send()))
