"""Which rank of a ring that passes several of a node stands still, by what it took on its way in and sent on its way out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from rca.hang.in_ring import standing_in_ring
from rca.hang.pairs import FINISHED, SEEN

HERE, BUFFER, OWN = 1, 4, 2
OUTSIDE = 8  # a rank of another node
Flow = tuple[int, int, int, int]  # channel, way in, way out, chunks sent less chunks taken


def channel(number: int, first: int, last: int, more: int, taken: int = 40) -> list[dict[str, Any]]:
    """The flow into the node and the flow out of it, of one channel of one op."""
    into = {"sender": OUTSIDE, "receiver": first, "taken": (taken + BUFFER, taken, taken, taken)}
    sent = taken + more
    out = {"sender": last, "receiver": OUTSIDE, "sent": (sent + BUFFER, sent, sent, sent)}
    return [{"channel": number, **one} for one in (into, out)]


def told(n_mates: int, *flows: dict[str, Any], tied: tuple[int, ...] = (), node: tuple[int, ...] = ()) -> list[int]:
    """Who is left of the ranks 0 … n - 1 of one node, members of one communicator in that order."""
    n, count = len(flows), OUTSIDE + 1
    rows = [
        {"total": 90, "sent": (0,) * 4, "taken": (0,) * 4, "sender_end": SEEN, "receiver_end": SEEN, **one}
        for one in flows
    ]
    column = {name: np.array([one[name] for one in rows]) for name in rows[0]}
    pairs = SimpleNamespace(
        **column, p2p=np.zeros(n, bool), comm=np.zeros(n, np.int64), key=np.zeros(n, np.uint64), op=np.full(n, 7)
    )
    where = np.full(count, 0)
    where[: n_mates or 2] = node or HERE
    members = SimpleNamespace(of=lambda _: slice(0, None), rank_at=np.array([*range(n_mates), OUTSIDE]))
    state: Any = SimpleNamespace(pairs=pairs, members=members, ranks=SimpleNamespace(node=where))
    return standing_in_ring(state, np.array(tied or range(n_mates))).tolist()


def more(n: int, before: int) -> int:
    """Chunks that the way out has sent more than the way in has taken, of n ranks, with so many before the one that stands:
    each has sent its own share first, and each before it has filled a buffer."""
    return (n - 1) * OWN - before * BUFFER


@pytest.mark.parametrize("n", [2, 3, 4, 8])
def test_two_channels_in_opposite_directions_tell_which_rank_stands(n: int) -> None:
    for at in range(n):
        flows = [*channel(0, 0, n - 1, more(n, at)), *channel(1, n - 1, 0, more(n, n - 1 - at))]
        middle = n % 2 and at == n // 2  # as far from either: nothing differs
        assert told(n, *flows) == (list(range(n)) if middle else [at])


def test_what_all_share_cancels_out() -> None:
    assert told(4, *channel(0, 0, 3, 3 + more(4, 1)), *channel(1, 3, 0, 3 + more(4, 2), taken=70)) == [1]


@pytest.mark.parametrize(("sent_more", "expected"), [(OWN, [0]), (0, [1]), (OWN - BUFFER, [1])])
def test_of_two_ranks_one_channel_tells(sent_more: int, expected: list[int]) -> None:
    assert told(2, *channel(0, 0, 1, sent_more)) == expected
    assert told(2, *channel(0, 1, 0, sent_more)) == [1 - one for one in expected]


def test_of_more_than_two_one_channel_tells_nothing() -> None:
    assert told(4, *channel(0, 0, 3, more(4, 1))) == [0, 1, 2, 3]


def test_where_a_way_is_through_it_might_have_gone_on() -> None:
    """One lies before it at least: what more there might have been is not known."""
    into, out = channel(0, 0, 3, more(4, 1))
    flows = [{**into, "total": 40}, {**out, "total": 40}, *channel(1, 3, 0, more(4, 2))]
    assert told(4, *flows) == [0, 1]


def test_an_end_that_is_over_counts_as_all_there_was() -> None:
    out = {
        "channel": 0,
        "sender": 1,
        "receiver": OUTSIDE,
        "sent": (42, 42, 42, 42),
        "total": 42,
        "sender_end": FINISHED,
    }
    assert told(2, channel(0, 0, 1, 0)[0], out) == [0]


def test_ranks_between_whose_order_is_not_known_stay_tied() -> None:
    """The ring enters at rank 1 and leaves at rank 2: where 0 and 3 lie between them nobody says."""
    assert told(4, *channel(0, 1, 2, more(4, 1)), *channel(1, 2, 1, more(4, 2))) == [0, 3]
    assert told(4, *channel(0, 1, 2, more(4, 0)), *channel(1, 2, 1, more(4, 3))) == [1]


def test_nothing_is_told_where_nothing_is_seen_or_the_answer_is_none_of_them() -> None:
    assert told(2, channel(0, 0, 1, 4)[0]) == [0, 1]
    assert told(4, *channel(0, 0, 3, more(4, 2)), *channel(1, 3, 0, more(4, 1)), tied=(0, 3)) == [0, 3]


def test_a_node_that_a_channel_leaves_twice_is_no_part_of_a_ring() -> None:
    assert told(2, *channel(0, 0, 1, 4), channel(0, 0, 0, 4)[1]) == [0, 1]


def test_ranks_of_two_nodes_are_not_told_apart() -> None:
    assert told(2, *channel(0, 0, 1, 4), node=(1, 2)) == [0, 1]
