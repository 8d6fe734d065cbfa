"""Table 4, condition by condition, for both transports, with the verdict that both ends' counters support."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from nccl_instrument.tables import IB, RECEIVE, SEND, SOCKET, TRANSPORTS
from rca.findings import State
from rca.hang.pairs import SEEN, UNHEARD, Pairs
from rca.hang.table4 import CAUSES, holds, verdicts

NOT_STARTED, NOT_TRANSMITTED = State.NOT_STARTED, State.NOT_TRANSMITTED
NOT_DELIVERED, GPU_NOT_READY = State.NOT_DELIVERED, State.GPU_NOT_READY


def pair(sent: tuple[int, ...], taken: tuple[int, ...], transport: int = IB) -> Pairs:
    """One flow of 16 chunks with both ends seen. sent: posted ready transmitted done; taken: posted received flushed consumed."""
    one = np.zeros(1, np.int64)
    return Pairs(
        comm=one, op=one + 1, key=one.astype(np.uint64), p2p=one.astype(bool), channel=one, transport=one + transport,
        sender=one, receiver=one + 1, sent=np.array([sent]), taken=np.array([taken]), total=one + 16,
        sender_end=one + SEEN, receiver_end=one + SEEN, still_ns=one + 10**10,
    )  # fmt: skip


def states(counters: tuple[int, ...]) -> set[State]:
    return {state for state, mask in holds(np.array([counters])).items() if mask[0]}


@pytest.mark.parametrize(
    ("counters", "expected"),
    [
        ((8, 0, 0, 0), {NOT_STARTED}),
        ((8, 5, 4, 4), {NOT_TRANSMITTED}),
        ((8, 6, 6, 4), {NOT_DELIVERED}),
        ((8, 6, 5, 4), {NOT_TRANSMITTED, NOT_DELIVERED}),
        ((8, 4, 4, 4), {GPU_NOT_READY}),
    ],
)
def test_each_condition_holds_on_its_counters_and_several_may(counters: tuple[int, ...], expected: set[State]) -> None:
    assert states(counters) == expected


@pytest.mark.parametrize(
    ("sent", "taken", "condition", "verdict"),
    [
        # §5.3: the sender's ①=②>③ against the receiver's ①=②=③ is the receiver's.
        ((8, 6, 6, 4), (8, 4, 4, 4), (SEND, NOT_DELIVERED), "remote"),
        # Everything has arrived, and only the sender does not know.
        ((8, 6, 6, 4), (8, 6, 6, 6), (SEND, NOT_DELIVERED), "local"),
        # The receiver has data it did not pass on: its own trouble explains nothing about the network.
        ((8, 6, 6, 4), (8, 5, 5, 2), (SEND, NOT_DELIVERED), "undecided"),
        ((8, 5, 4, 4), (4, 4, 4, 0), (SEND, NOT_TRANSMITTED), "remote"),
        ((8, 5, 4, 4), (8, 4, 4, 4), (SEND, NOT_TRANSMITTED), "local"),
        ((8, 4, 4, 4), (8, 4, 4, 4), (SEND, GPU_NOT_READY), "local"),
        ((0, 0, 0, 0), (4, 0, 0, 0), (SEND, NOT_STARTED), "local"),
        ((8, 4, 4, 4), (8, 4, 4, 4), (RECEIVE, GPU_NOT_READY), "remote"),
        ((8, 6, 6, 6), (8, 4, 4, 4), (RECEIVE, GPU_NOT_READY), "local"),
        ((8, 6, 6, 4), (8, 4, 4, 4), (RECEIVE, GPU_NOT_READY), "undecided"),
        ((8, 0, 0, 0), (4, 0, 0, 0), (RECEIVE, NOT_STARTED), "remote"),
        ((8, 4, 4, 4), (4, 4, 4, 0), (RECEIVE, NOT_DELIVERED), "local"),
        ((8, 4, 4, 4), (4, 4, 2, 2), (RECEIVE, NOT_TRANSMITTED), "local"),
    ],
)
def test_both_ends_decide_whether_the_cause_is_local_or_remote(
    sent: tuple[int, ...], taken: tuple[int, ...], condition: tuple[int, State], verdict: str
) -> None:
    direction, state = condition
    assert state in states(sent if direction == SEND else taken)
    assert verdicts(pair(sent, taken))[condition][0] == verdict


@pytest.mark.parametrize("direction", [SEND, RECEIVE])
@pytest.mark.parametrize("is_socket", [False, True])
@pytest.mark.parametrize("state", list(State))
def test_every_condition_has_its_causes_for_both_transports(direction: int, is_socket: bool, state: State) -> None:
    local, remote = CAUSES[direction, is_socket, state]
    assert local and remote


def test_a_late_receiver_is_the_remote_cause_of_another_condition_per_transport() -> None:
    assert "credit" in CAUSES[SEND, False, NOT_TRANSMITTED][1]
    assert CAUSES[SEND, True, NOT_TRANSMITTED][1] == "-"
    assert "not ready" in CAUSES[SEND, True, NOT_DELIVERED][1]
    assert IB != SOCKET


@pytest.mark.parametrize("transport", [0, TRANSPORTS.index("none")])
@pytest.mark.parametrize("state", [NOT_TRANSMITTED, NOT_DELIVERED])
@pytest.mark.parametrize("taken", [(4, 4, 4, 4), (8, 4, 4, 4), (8, 6, 6, 6)])
def test_nobody_is_at_fault_by_what_another_transport_would_reverse(
    transport: int, state: State, taken: tuple[int, ...]
) -> None:
    """A send that stays refused lacks credit over InfiniBand, and stands at its own proxy over a socket."""
    assert verdicts(pair((8, 8, 6, 4), taken, transport))[SEND, state][0] == "undecided"


@pytest.mark.parametrize(
    ("end", "sent", "taken", "condition"),
    [
        ("receiver_end", (8, 8, 6, 4), (0, 0, 0, 0), (SEND, NOT_TRANSMITTED)),
        ("receiver_end", (8, 6, 6, 4), (0, 0, 0, 0), (SEND, NOT_DELIVERED)),
        ("sender_end", (0, 0, 0, 0), (4, 0, 0, 0), (RECEIVE, NOT_STARTED)),
        ("sender_end", (0, 0, 0, 0), (8, 4, 4, 4), (RECEIVE, GPU_NOT_READY)),
    ],
)
def test_counters_of_an_end_of_which_nothing_was_read_are_not_zero(
    end: str, sent: tuple[int, ...], taken: tuple[int, ...], condition: tuple[int, State]
) -> None:
    read = pair(sent, taken)
    unread = dataclasses.replace(read, **{end: np.full(1, UNHEARD)})
    assert verdicts(read)[condition][0] == "remote"
    assert verdicts(unread)[condition][0] == "undecided"


def test_an_unknown_transport_takes_nothing_from_what_both_read_alike() -> None:
    for sent, taken, condition in (
        ((8, 4, 4, 4), (8, 4, 4, 4), (SEND, GPU_NOT_READY)),
        ((8, 6, 6, 6), (8, 4, 4, 4), (RECEIVE, GPU_NOT_READY)),
        ((8, 4, 4, 4), (4, 4, 2, 2), (RECEIVE, NOT_TRANSMITTED)),
    ):
        assert verdicts(pair(sent, taken, 0))[condition][0] == verdicts(pair(sent, taken))[condition][0] == "local"
