"""Joins by keys say what plain loops say, however many rows there are and however often a key comes."""

from __future__ import annotations

import numpy as np
import pytest

from rca.keys import SORTED_MIN, Groups, Index, among, distinct, firsts, grouped, in_order, latest, medians, places

SIZES = (0, 1, 7, 3 * SORTED_MIN)


def keys_of(n: int, n_distinct: int, seed: int = 1) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    values = np.random.default_rng(seed).integers(0, 2**64, n_distinct, dtype=np.uint64)
    return values[np.random.default_rng(seed + 1).integers(0, n_distinct, n)]


@pytest.mark.parametrize("n", SIZES)
def test_the_newest_of_every_key_is_the_last_of_equally_new_ones_in_the_order_of_keys(n: int) -> None:
    keys, ticks = keys_of(n, n // 3 + 1), np.random.default_rng(3).integers(0, 5, n)
    expected: dict[int, int] = {}
    for at, (key, tick) in enumerate(zip(keys.tolist(), ticks.tolist(), strict=True)):
        if key not in expected or tick >= ticks[expected[key]]:
            expected[key] = at
    assert latest(keys, ticks).tolist() == [expected[key] for key in sorted(expected)]


@pytest.mark.parametrize("n", SIZES)
def test_distinct_is_sorted_and_holds_everything_once(n: int) -> None:
    keys = keys_of(n, n // 2 + 1)
    assert distinct(keys).tolist() == sorted(set(keys.tolist()))


@pytest.mark.parametrize("n", SIZES)
@pytest.mark.parametrize("side", ["left", "right"])
def test_many_keys_are_placed_as_a_plain_search_places_them(n: int, side: str) -> None:
    of, keys = np.sort(keys_of(n, n // 2 + 1)), keys_of(n, n + 1, seed=1)
    assert places(of, keys, side).tolist() == np.searchsorted(of, keys, side).tolist()  # type: ignore[arg-type,call-overload]


@pytest.mark.parametrize("n", SIZES)
def test_an_index_finds_the_first_of_equal_keys_and_nothing_else(n: int) -> None:
    keys, asked = keys_of(n, n // 2 + 1), keys_of(n, 2 * n + 1, seed=5)
    first = {key: at for at, key in reversed(list(enumerate(keys.tolist())))}
    both = np.concatenate([asked, keys])
    assert Index(keys).find(both).tolist() == [first.get(key, -1) for key in both.tolist()]
    assert among(both, keys).tolist() == [key in first for key in both.tolist()]


@pytest.mark.parametrize("n", SIZES)
def test_groups_find_every_row_of_a_key(n: int) -> None:
    keys = keys_of(n, n // 4 + 1)
    asked, found = Groups(keys).find(keys[: n // 2])
    assert (keys[: n // 2][asked] == keys[found]).all()
    counts = dict(zip(*np.unique(keys, return_counts=True), strict=True))
    assert len(found) == sum(counts[key] for key in keys[: n // 2])


@pytest.mark.parametrize("n", [0, 1, 50, 4000])
def test_keys_are_ordered_as_a_stable_sort_orders_them(n: int) -> None:
    keys = np.random.default_rng(n).integers(0, max(n // 3, 1), n)
    assert in_order(keys).tolist() == np.argsort(keys, kind="stable").tolist()


@pytest.mark.parametrize("n", [0, 1, 50, 4000])
def test_grouped_says_what_unique_says(n: int) -> None:
    keys = np.random.default_rng(n).integers(0, 40, n).astype(np.uint64)
    expected = np.unique(keys, return_index=True, return_inverse=True)
    for found, said in zip(grouped(keys), expected, strict=True):
        assert found.tolist() == said.tolist()


@pytest.mark.parametrize("most", [9, 2**62])  # small numbers are sorted in another way
def test_a_median_is_the_lower_of_the_middle_two(most: int) -> None:
    random = np.random.default_rng(3)
    group, values = random.integers(0, 5, 400), random.integers(-9, most, 400)
    said = [np.sort(values[group == one])[((group == one).sum() - 1) // 2] for one in range(5)]
    assert medians(group, values, 5).tolist() == [float(one) for one in said]


@pytest.mark.parametrize("n", SIZES)
def test_where_keys_come_first_is_said_in_their_order(n: int) -> None:
    keys = keys_of(n, n // 3 + 1)
    assert firsts(keys).tolist() == np.unique(keys, return_index=True)[1].tolist()
