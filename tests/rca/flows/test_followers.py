"""Who only follows in a ring whose pauses epochs hide: nobody where nothing else tells, else who is slow elsewhere, too."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rca.flows.followers import followers, without_followers
from rca.slow.edges import Edges
from rca.slow.ends import Ends, ends_of

RING = [(0, 1), (1, 2), (2, 3), (3, 0)]
MATES = {0: 4, 1: 5, 2: 6, 3: 7}
"""Of each rank of the ring one of another ring, with which it exchanges little."""
NEARLY_AS_FAST = 0.8


def ends(elsewhere: tuple[int, ...], kept: float = NEARLY_AS_FAST, slow: tuple[int, ...] = (0, 1, 2, 3)) -> Ends:
    """Two rings. Ways of `slow` in the first, and of `elsewhere` to the second, keep a share of their rate."""
    around = RING + [pair[::-1] for pair in RING]
    ring = [(one, other, 38.0, slow) for one, other in around] + [(MATES[a], MATES[b], 38.0, ()) for a, b in around]
    near = [(one, mate, 2.5, elsewhere) for one, mate in MATES.items()]
    rows = [*ring, *near, *((mate, one, ms, who) for one, mate, ms, who in near)]
    usual = np.array([ms for *_, ms, _ in rows]) * 1e6
    is_slow = np.array([one in who or other in who for one, other, _, who in rows])
    sender, receiver = (np.array([row[at] for row in rows]) for at in (0, 1))
    now = np.where(is_slow, usual / kept, usual)
    return ends_of(Edges(sender, receiver, usual, now, now), np.arange(8), 0.1)


CALM = ends(elsewhere=(), slow=())
"""Nobody is waited for."""


def test_where_nobody_is_slow_elsewhere_all_of_the_ring_are_tied_and_nobody_is_chosen() -> None:
    before = ends(elsewhere=())
    assert len(before.chosen) == 2, "any two that face each other would explain it"
    found = without_followers(before, 0.5, CALM)
    assert not found.chosen and found.undecided == ((0, 1, 2, 3),)


def test_who_is_slow_elsewhere_too_is_slow_by_itself() -> None:
    assert without_followers(ends(elsewhere=(2,)), 0.5, CALM).chosen == (2,)
    found = without_followers(ends(elsewhere=(1, 2)), 0.5, CALM)
    assert set(found.chosen) == {1, 2} and not found.undecided


def test_of_a_ring_that_is_alike_who_is_waited_for_elsewhere_is_slow_by_itself() -> None:
    one = ends(elsewhere=())
    assert without_followers(one, 0.5, ends(elsewhere=(2,))).chosen == (2,)
    assert set(without_followers(ends(elsewhere=(1,)), 0.5, ends(elsewhere=(1, 2))).chosen) == {1, 2}, "waits go first"
    assert not without_followers(one, 0.5, ends(elsewhere=(0, 1, 2, 3))).chosen, "all of them would be"


def test_two_neighbours_without_an_elsewhere_stay_both() -> None:
    one = ends(elsewhere=(), kept=0.7, slow=(2, 3))
    assert set(without_followers(one, 0.5, CALM).chosen) == {2, 3} == set(one.chosen)


def test_a_neighbour_that_loses_far_less_beside_the_slow_one_only_follows() -> None:
    one = ends(elsewhere=(), kept=0.7, slow=(2, 3))
    beyond = (one.sender == 3) & (one.receiver == 0) | (one.sender == 0) & (one.receiver == 3)
    partly = replace(one, now_ns=np.where(beyond, one.usual_ns * 1.18, one.now_ns))
    assert without_followers(partly, 0.5, CALM).chosen == (2,)


def test_in_a_long_ring_who_loses_most_is_slow_and_the_others_lose_less_the_further_away() -> None:
    pairs = [(at, (at + 1) % 8) for at in range(8)]
    rows = np.array(pairs + [pair[::-1] for pair in pairs])
    away = np.minimum(rows, 8 - rows).min(axis=1)
    usual = np.full(len(rows), 42.8e6)
    now = usual * np.array([1.24, 1.15, 1.13, 1.09])[away]
    one = ends_of(Edges(rows[:, 0], rows[:, 1], usual, now, now), np.arange(8), 0.1)
    assert len(one.chosen) > 1, "the fewest that touch all"
    assert without_followers(one, 0.5, CALM).chosen == (0,)


def test_pauses_that_are_seen_leave_the_fewest_ends() -> None:
    before = ends(elsewhere=(), kept=0.3)
    assert without_followers(before, 0.5, CALM) is before


def test_one_end_that_explains_all_is_left_alone() -> None:
    before = ends(elsewhere=(2,), slow=(2,))
    assert before.chosen == (2,)
    assert without_followers(before, 0.5, CALM) is before


def test_followers_are_joined_to_the_slow_and_lose_no_more() -> None:
    one = ends(elsewhere=(1, 2))
    assert followers(one, 0.5, (1, 2))[one.is_slow].all()
    assert not followers(one, 0.5, (5,))[(one.sender == 2) & (one.receiver == 3)].any(), (
        "a mate's loses less than the ring"
    )
    assert not followers(one, 0.9, (1, 2)).any(), "nothing is hidden"
    assert not followers(ends(elsewhere=(), slow=(0,)), 0.5, (7,)).any(), "it is not joined to what is slow"
