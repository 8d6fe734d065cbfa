"""Mycroft's Table 4: the state of a stalled flow, its local and its remote cause, and which of the two both ends support.

①②③ are GPU_ready, RDMA_transmitted and RDMA_done of a sender; of a receiver they are received, flushed and consumed,
the same three stages seen from the other side. Several conditions can hold at once. What a condition means depends on
the transport: with IB a send is refused until the receiver's credit is there, so a late receiver shows as ①>②; with
sockets a send is accepted at once, so the same receiver shows as ②>③ (§5.3; docs/rules/table4.md).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from nccl_instrument.tables import DIRECTIONS, IB, RECEIVE, SEND, SOCKET
from rca.findings import Condition, State
from rca.hang.pairs import SEEN, UNHEARD, Counters, Pairs
from rca.keys import Mask
from rca.ranks import Ranks

LOCAL: Final = "local"
REMOTE: Final = "remote"
UNDECIDED: Final = "undecided"

CAUSES: Final[dict[tuple[int, bool, State], tuple[str, str]]] = {
    (SEND, False, State.NOT_STARTED): (
        "the kernel has not started or its proxy is not running",
        "blocked: what it must send has to come from another rank first",
    ),
    (SEND, False, State.NOT_TRANSMITTED): (
        "RDMA issue: the NIC takes no send",
        "receiver not ready: it gives no credit",
    ),
    (SEND, False, State.NOT_DELIVERED): ("RDMA issue: the NIC or link loses it", "receiver failed"),
    (SEND, False, State.GPU_NOT_READY): ("GPU issue: it produces no data", "-"),
    (SEND, True, State.NOT_STARTED): (
        "the kernel has not started or its proxy is not running",
        "blocked: what it must send has to come from another rank first",
    ),
    (SEND, True, State.NOT_TRANSMITTED): ("the proxy does not hand data to the socket", "-"),
    (SEND, True, State.NOT_DELIVERED): ("network issue: the NIC or link loses it", "receiver not ready or failed"),
    (SEND, True, State.GPU_NOT_READY): ("GPU issue: it produces no data", "-"),
}
"""(direction, is socket, state) → (local cause, remote cause) of senders; receivers differ by direction only."""

_RECEIVE_CAUSES: Final[dict[State, tuple[str, str]]] = {
    State.NOT_STARTED: ("its proxy does not take what arrived", "blocked: the sender has sent nothing"),
    State.NOT_TRANSMITTED: ("PCIe issue: data is not flushed to the GPU", "-"),
    State.NOT_DELIVERED: ("GPU issue: it does not take the data", "-"),
    State.GPU_NOT_READY: ("its proxy does not take what arrived", "the sender or the network sends nothing more"),
}
CAUSES.update({(RECEIVE, is_socket, s): c for is_socket in (False, True) for s, c in _RECEIVE_CAUSES.items()})


BY_TRANSPORT: Final = frozenset({(SEND, State.NOT_TRANSMITTED), (SEND, State.NOT_DELIVERED)})
"""What means another thing over sockets than over InfiniBand."""


def holds(counters: Counters) -> dict[State, Mask]:
    """(F, 4) counters of flows, either direction → which conditions of Table 4 hold; (F,) each."""
    one, two, three = counters[:, 1], counters[:, 2], counters[:, 3]
    return {
        State.NOT_STARTED: (one == 0) & (two == 0) & (three == 0),
        State.NOT_TRANSMITTED: one > two,
        State.NOT_DELIVERED: two > three,
        State.GPU_NOT_READY: (one == two) & (two == three) & (three > 0),
    }


def verdicts(pairs: Pairs) -> dict[tuple[int, State], np.ndarray[tuple[int], np.dtype[np.str_]]]:
    """(direction, state) → (P,) "local", "remote" or "undecided", as the counters of both ends support it.

    Nobody is said to be at fault by a reading that the other transport would reverse, where it is not known which one it is.
    """
    posted, ready, transmitted, done = pairs.sent.T
    credit, received, flushed, consumed = pairs.taken.T
    both = (pairs.sender_end == SEEN) & (pairs.receiver_end == SEEN)
    # A socket accepts what the receiver has no credit for: there the hand-over itself is what stands.
    is_socket = pairs.transport == SOCKET
    receiver_lacks_credit = (credit <= transmitted) & ~is_socket
    arrived, all_taken = received >= transmitted, (received == flushed) & (flushed == consumed)
    came = transmitted > received
    found = {
        (SEND, State.NOT_STARTED): _choose(both & (posted == 0), np.zeros_like(both)),
        (SEND, State.NOT_TRANSMITTED): _choose(both & ~receiver_lacks_credit, receiver_lacks_credit),
        # §5.3: ①=②>③ here and ①=②=③ there: the receiver. Arrived but not acknowledged here: this side.
        (SEND, State.NOT_DELIVERED): _choose(
            both & arrived, (ready == transmitted) & ~arrived & (all_taken | (pairs.receiver_end != SEEN))
        ),
        (SEND, State.GPU_NOT_READY): _choose(posted > done, np.zeros_like(both)),
        (RECEIVE, State.NOT_STARTED): _choose(both & came & (done > received), ~came),
        (RECEIVE, State.NOT_TRANSMITTED): _choose(np.ones_like(both), np.zeros_like(both)),
        (RECEIVE, State.NOT_DELIVERED): _choose(np.ones_like(both), np.zeros_like(both)),
        (RECEIVE, State.GPU_NOT_READY): _choose(both & came & (done > received), ~came),
    }
    is_named = np.isin(pairs.transport, (IB, SOCKET))
    for of in BY_TRANSPORT:
        found[of] = np.where(is_named, found[of], UNDECIDED)
    # Counters of an end of which no row was read are 0, which says nothing of it: only what this side shows alone stands.
    is_read = (pairs.sender_end != UNHEARD) & (pairs.receiver_end != UNHEARD)
    return {of: np.where(is_read | (verdict == LOCAL), verdict, UNDECIDED) for of, verdict in found.items()}


def _choose(is_local: Mask, is_remote: Mask) -> np.ndarray[tuple[int], np.dtype[np.str_]]:
    return np.select([is_local & ~is_remote, is_remote & ~is_local], [LOCAL, REMOTE], UNDECIDED)


def conditions(pairs: Pairs, ranks: Ranks, limit: int) -> tuple[Condition, ...]:
    """The conditions that hold at each reported, unfinished end of the ops that block, oldest first; at most `limit`."""
    pairs = pairs.where(pairs.oldest(np.ones(len(pairs), bool)))
    verdict = verdicts(pairs)
    found: list[Condition] = []
    for direction, counters, end in ((SEND, pairs.sent, pairs.sender_end), (RECEIVE, pairs.taken, pairs.receiver_end)):
        is_open = (end == SEEN) & (counters[:, 3] < pairs.total)
        for state, mask in holds(counters).items():
            for i in np.flatnonzero(mask & is_open)[:limit]:
                found.append(_condition(pairs, ranks, int(i), direction, state, str(verdict[direction, state][i])))
    return tuple(found[:limit])


def _causes(direction: int, transport: int, state: State) -> tuple[str, str]:
    """Local and remote cause; both readings of each where the transport is not known."""
    by_ib, by_socket = CAUSES[direction, False, state], CAUSES[direction, True, state]
    if transport in (IB, SOCKET) or by_ib == by_socket:
        return by_socket if transport == SOCKET else by_ib
    local, remote = (f"IB: {a}; sockets: {b}" for a, b in zip(by_ib, by_socket, strict=True))
    return local, remote


def _condition(pairs: Pairs, ranks: Ranks, i: int, direction: int, state: State, verdict: str) -> Condition:
    at, peer_at = (pairs.sender, pairs.receiver) if direction == SEND else (pairs.receiver, pairs.sender)
    counters = pairs.sent if direction == SEND else pairs.taken
    local, remote = _causes(direction, int(pairs.transport[i]), state)
    a, b, c, d = (int(count) for count in counters[i])
    return Condition(
        state=state,
        rank=int(ranks.rank[at[i]]),
        peer_rank=int(ranks.rank[peer_at[i]]) if peer_at[i] >= 0 else -1,
        channel=int(pairs.channel[i]),
        direction=DIRECTIONS[direction],
        counters=(a, b, c, d),
        total_chunks=int(pairs.total[i]),
        local_cause=local,
        remote_cause=remote,
        verdict=verdict,
    )
