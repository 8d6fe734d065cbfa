"""Words shared by findings: long lists say how much of them is left out."""

from __future__ import annotations

import pytest

from rca.words import listed, named


@pytest.mark.parametrize(
    ("names", "said"),
    [([], ""), (["n1"], "n1"), (["n1", "n2"], "n1, n2"), (["n1", "n2", "n3", "n4"], "n1, n2 and 2 more")],
)
def test_of_a_long_list_it_is_said_how_many_are_left_out(names: list[str], said: str) -> None:
    assert listed(names, 2) == said


@pytest.mark.parametrize(
    ("ranks", "said"),
    [
        ((), "no rank"), ((3,), "rank 3"), ((5, 3), "ranks 3 and 5"), ((4, 5), "ranks 4 and 5"), (range(8, 16), "ranks 8–15"),
        ((0, 2, 4, 5, 6), "ranks 0, 2 and 4–6"), (range(0, 18, 2), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 1 more"),
        ((*range(0, 16, 2), *range(20, 40)), "ranks 0, 2, 4, 6, 8, 10, 12, 14 and 20 more"),
        (range(10_000), "ranks 0–9999"),
    ],
)  # fmt: skip
def test_ranks_in_a_row_are_one_name_and_of_many_it_is_said_how_many_are_left_out(
    ranks: tuple[int, ...], said: str
) -> None:
    assert named(ranks) == said
