"""The fewest NICs that explain what is slow: drawn connections, each with its usual time and the time it takes now."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rca.findings import Component, FaultKind, Finding, Grade, Subject
from rca.rules.slow_nic import _sent_only
from rca.slow.edges import Edges
from rca.slow.ends import Ends, ends_of


def found(
    *connections: tuple[int, int, float], usual_ms: float | list[float] = 10.0, senders: frozenset[int] = frozenset()
) -> Ends:
    """Of connections (sender, receiver, ms now); receiver -1: nobody knows. senders: who may be slow in what it sends alone."""
    sender, receiver, now_ms = (np.array(column) for column in zip(*connections, strict=True))
    usual = np.broadcast_to(np.array(usual_ms) * 1e6, len(sender))
    edges = Edges(sender.astype(np.int64), receiver.astype(np.int64), usual, now_ms * 1e6, now_ms * 1e6)
    return ends_of(edges, np.arange(int(max(sender.max(), receiver.max())) + 1), senders=senders)


def ring(n: int, slow: set[int]) -> list[tuple[int, int, float]]:
    """Both ways round; what touches a slow one takes three times as long."""
    pairs = [(at, (at + 1) % n) for at in range(n)]
    return [(a, b, 30.0 if {a, b} & slow else 10.0) for pair in pairs for a, b in (pair, pair[::-1])]


def test_where_nothing_is_slow_nobody_is_chosen() -> None:
    ends = found(*ring(4, set()))
    assert not ends.chosen and not len(ends.unexplained) and not ends.is_everybody


def test_where_everything_is_slow_nobody_is_chosen() -> None:
    ends = found(*ring(6, {0, 1, 2, 3, 4, 5}))
    assert ends.is_everybody and not ends.chosen


def test_of_two_that_talk_only_to_each_other_either_may_be_slow() -> None:
    ends = found((0, 1, 30), (1, 0, 30), (2, 3, 10), (3, 2, 10))
    assert len(ends.chosen) == 1 and {*ends.chosen, *ends.rivals[0]} == {0, 1}


def test_many_that_cost_little_do_not_speak_against_the_one_that_costs_most() -> None:
    victims = [(at, at + 8, 3.2) for at in range(10, 18)]
    slow = [(0, 1, 25.0), (1, 0, 25.0), (0, 2, 20.0), (2, 0, 20.0), (1, 2, 10.0), (2, 1, 10.0)]
    spare = [(at + 8, at, 2.0) for at in range(10, 18)]
    ends = found(*slow, *victims, *spare, usual_ms=[10.0] * 6 + [2.0] * 16)
    assert ends.chosen == (0,) and not len(ends.unexplained)


def tree(grown: float) -> list[tuple[int, int, float]]:
    """0 is the root of 14, as deep as three; its own ways take three times as long, and of the others those away from it so many
    times, those towards it hardly longer."""
    ways = [(at // 2 - (at % 2 == 0), at) for at in range(1, 15)]
    down = [(up, at, 30.0 if not up else 10.0 * grown) for up, at in ways]
    return [*down, *((at, up, 30.0 if not up else 11.0) for up, at in ways)]


@pytest.mark.parametrize("grown", [2.2, 3.0])
def test_a_trees_root_is_not_to_blame_where_ways_that_it_does_not_touch_have_grown_alike(grown: float) -> None:
    assert found(*tree(1.0)).chosen == (0,)
    assert found(*tree(1.15)).chosen == (0,)
    everybody = found(*tree(grown))
    assert everybody.is_everybody and not everybody.chosen


@pytest.mark.parametrize("n_slow", [2, 4, 7])
def test_some_small_ways_elsewhere_that_have_grown_too_do_not_acquit_a_slow_nic(n_slow: int) -> None:
    star = [way for at in range(1, 9) for way in ((0, at, 30.0), (at, 0, 30.0))]
    others = [(9 + 2 * at, 10 + 2 * at, 6.2 if at < n_slow else 3.0) for at in range(16)]
    ends = found(*star, *others, usual_ms=[10.0] * 16 + [3.0] * 16)
    assert ends.chosen == (0,) and not ends.is_everybody


@settings(max_examples=50, deadline=None)
@given(st.permutations(range(30)))
def test_how_many_share_no_end_does_not_depend_on_how_ends_are_numbered(names: list[int]) -> None:
    path = [(8 + at, 9 + at, 20.0 + at) for at in range(7)]
    ways = [(0, 1, 60.0), (0, 2, 61.0), (0, 3, 62.0), *path, *((16 + 2 * at, 17 + 2 * at, 10.0) for at in range(6))]
    renamed = [(names[a], names[b], now) for a, b, now in ways]
    before, after = found(*ways), found(*renamed)
    assert (after.is_everybody, after.chosen) == (before.is_everybody, tuple(names[one] for one in before.chosen))


def test_a_slow_way_between_two_that_are_fast_elsewhere_is_nobodys() -> None:
    ends = found((0, 1, 30), (0, 2, 10), (0, 3, 10), (1, 2, 10), (1, 3, 10), (2, 3, 10))
    assert not ends.chosen and len(ends.unexplained) == 1


def test_one_slow_in_a_ring_is_chosen_and_not_the_neighbours_that_send_into_it() -> None:
    for slow in range(5):
        ends = found(*ring(5, {slow}))
        assert ends.chosen == (slow,) and ends.rivals == ((),)


def test_two_slow_neighbours_in_a_ring_are_both_chosen() -> None:
    ends = found(*ring(6, {2, 3}))
    assert set(ends.chosen) == {2, 3} and not any(ends.rivals)


def test_two_slow_ones_whose_connection_costs_most_are_both_chosen() -> None:
    heavy = [(0, 1, 900.0), (1, 0, 900.0)]
    light = [(0, 2, 30.0), (2, 0, 30.0), (1, 3, 30.0), (3, 1, 30.0), (2, 3, 10.0), (3, 2, 10.0)]
    ends = found(*heavy, *light, usual_ms=[300.0] * 2 + [10.0] * 6)
    assert set(ends.chosen) == {0, 1} and not any(ends.rivals)


def test_an_end_must_be_slow_towards_most_it_talks_to_beside_who_explains_the_rest() -> None:
    """What waits for receivers that come late has grown by the same everywhere: into 2, which is slow with 1, one way of two."""
    usual_ms = [90.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0, 3.0]
    waits = [(5, 2, 30), (6, 7, 30), (8, 9, 30), (4, 1, 32), (1, 4, 8)]
    ends = found((1, 2, 190), *waits, (2, 5, 3), (9, 8, 3), usual_ms=usual_ms)
    assert ends.chosen == (1,) and not ends.rivals[0] and not len(ends.unexplained)


def test_who_is_fast_with_the_slow_end_too_is_not_slow() -> None:
    pairs = {
        40: [(0, 3), (0, 4), (0, 5), (1, 2)],
        10: [(0, 1), (2, 6), (2, 7), (2, 9), (6, 7), (3, 8), (4, 9), (5, 10), (7, 8), (9, 10)],
    }
    ways = [(*way, ms) for ms, some in pairs.items() for pair in some for way in (pair, pair[::-1])]
    ends = found(*ways)
    assert ends.chosen == (0,) and len(ends.unexplained) == 2


def test_a_partner_into_which_one_more_way_is_slow_and_the_way_back_is_not_is_not_chosen_too() -> None:
    usual_ms = [94.0, 94.0, 4.4, 7.6, 4.4, 7.6, 94.0, 94.0]
    rest = ((0, 1, 436), (1, 0, 678), (2, 1, 47), (1, 2, 70), (3, 0, 37))
    ends = found(*rest, (0, 3, 7.8), (2, 3, 94), (3, 2, 94), usual_ms=usual_ms)
    assert ends.chosen == (1,) and not ends.rivals[0] and not len(ends.unexplained)
    both = found(*rest, (0, 3, 60), (2, 3, 94), (3, 2, 94), usual_ms=usual_ms)
    assert set(both.chosen) == {0, 1}


def test_of_two_partners_the_one_that_is_as_fast_as_ever_elsewhere_is_not_to_blame() -> None:
    ends = found((0, 1, 30), (1, 0, 30), (0, 2, 30), (2, 0, 30), (1, 3, 10), (3, 1, 10), (2, 3, 10), (3, 2, 10))
    assert ends.chosen == (0,) and ends.rivals == ((),)


def test_a_connection_to_nobody_known_may_go_to_the_slow_one() -> None:
    ends = found((0, 1, 30), (1, 0, 30), (0, 2, 30), (2, -1, 30), (1, 2, 10), (2, 1, 10))
    assert 0 in ends.chosen and not len(ends.unexplained)


@pytest.mark.parametrize("n", [4, 6, 8])
@pytest.mark.parametrize("first", [0, 1])
def test_where_every_second_of_a_ring_may_be_slow_nobody_is_chosen_and_it_is_said(n: int, first: int) -> None:
    ends = found(*ring(n, set(range(first, n, 2))))
    assert ends.is_everybody and ends.is_half and not ends.chosen


def test_where_all_send_to_all_everybody_is_all_there_is() -> None:
    ends = found(*((a, b, 30.0) for a in range(6) for b in range(6) if a != b))
    assert ends.is_everybody and not ends.is_half


def test_one_that_all_slow_connections_touch_is_chosen_though_all_are_slow() -> None:
    ends = found(*((0, leaf, 30.0) for leaf in range(1, 5)), *((leaf, 0, 30.0) for leaf in range(1, 5)))
    assert ends.chosen == (0,) and ends.rivals == ((),) and not ends.is_everybody


def test_every_second_of_one_ring_beside_another_is_undecided_and_nobody_is_chosen() -> None:
    beside = [(a + 4, b + 4, ms) for a, b, ms in ring(4, set())]
    ends = found(*ring(4, {0, 2}), *beside)
    assert ends.undecided == ((0, 1, 2, 3),) and not ends.chosen and not ends.is_everybody


def test_what_is_as_slow_counts_though_it_was_on_the_wire_for_longer_before() -> None:
    """Of a tree's inner rank one connection is mostly idle before: what it grew by is no measure for the others."""
    slow = [(0, 1, 230.0), (0, 2, 254.0), (2, 0, 265.0), (1, 0, 265.0), (3, 0, 272.0), (0, 3, 222.0)]
    usual = [61.0, 114.0, 154.0, 154.0, 167.0, 159.0]
    spare = [(1, 4, 150.0), (4, 1, 150.0), (2, 4, 150.0), (4, 2, 150.0), (3, 4, 150.0), (4, 3, 150.0)]
    ends = found(*slow, *spare, usual_ms=usual + [150.0] * 6)
    assert ends.chosen == (0,) and ends.rivals == ((),)


def waits_elsewhere(n: int, slow: set[int]) -> list[tuple[int, int, float]]:
    """A ring, and of each end two more connections that show nothing."""
    return [
        *ring(n, slow),
        *((at, (at + 2) % n, 10.0) for at in range(n)),
        *((at, (at + 3) % n, 10.0) for at in range(n)),
    ]


def test_two_slow_ones_of_many_are_not_everybody() -> None:
    ends = found(*waits_elsewhere(8, {1, 2}))
    assert not ends.is_everybody


def test_everybody_is_slow_where_all_are_touched_and_a_few_do_not_explain_it() -> None:
    ends = found(*waits_elsewhere(8, set(range(8))))
    assert ends.is_everybody and not ends.is_half and not ends.chosen


SENT_SLOWLY = [(a, b, 30.0 if a == 2 else 10.0) for a in range(4) for b in range(4) if a != b]


def test_one_that_sends_slowly_to_everybody_and_is_sent_as_fast_as_ever_is_chosen_where_it_may_be_so() -> None:
    ends = found(*SENT_SLOWLY, senders=frozenset(range(4)))
    assert ends.chosen == (2,) and ends.rivals == ((),) and not len(ends.unexplained)


def test_one_whose_proxy_may_be_late_is_not_judged_by_what_it_sends() -> None:
    ends = found(*SENT_SLOWLY, senders=frozenset({0, 1, 3}))
    assert not ends.chosen and len(ends.unexplained) == 3


def test_one_that_sends_slowly_to_two_may_have_two_slow_neighbours() -> None:
    two = [
        (2, 1, 30.0),
        (2, 3, 30.0),
        (1, 2, 10.0),
        (3, 2, 10.0),
        (0, 1, 10.0),
        (1, 0, 10.0),
        (0, 3, 10.0),
        (3, 0, 10.0),
    ]
    assert not found(*two, senders=frozenset(range(4))).chosen


def test_one_slow_both_ways_is_chosen_before_the_neighbours_that_send_to_it() -> None:
    for slow in range(5):
        ends = found(*ring(5, {slow}), senders=frozenset(range(5)))
        assert ends.chosen == (slow,) and ends.rivals == ((),)


def test_what_only_goes_out_slowly_is_said_so_and_is_moderate_at_most() -> None:
    both = Finding(
        rule="slow_nic", version=1, subject=Subject("nic", "rank 2", (2,)), component=Component.NIC,
        kind=FaultKind.COMMUNICATION_FAIL_SLOW, culprits=(2,), score=0.9, grade=Grade.STRONG,
        sentence="What rank 2 sends and is sent stays on the wire too long.", evidence=(),
    )  # fmt: skip
    assert _sent_only(found(*ring(5, {2})), (2,), both) is both
    one = _sent_only(found(*SENT_SLOWLY, senders=frozenset(range(4))), (2,), both)
    assert (one.culprits, one.grade) == ((2,), Grade.MODERATE) and one.score < both.score
    assert one.sentence.startswith("What rank 2 sends stays on the wire too long. Only what goes out is slow")
