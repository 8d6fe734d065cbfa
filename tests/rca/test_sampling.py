"""Which ranks are watched: few, stable, at least one per data-parallel group, spread over nodes."""

from __future__ import annotations

import dataclasses
import gc
import weakref

import numpy as np
import pytest

from rca.settings import DEFAULT
from rca.triggers.sampling import NODES, _sampled, sampled_ranks
from tests.windows import make_window


def test_a_small_job_is_watched_whole() -> None:
    assert sampled_ranks(make_window(), DEFAULT).tolist() == list(range(8))


@pytest.mark.parametrize("coordinates", [True, False], ids=["declared", "from communicators"])
def test_every_data_parallel_group_is_watched_and_never_more_than_ten_ranks(coordinates: bool) -> None:
    window = make_window(16, tp=2, pp=2, coordinates=coordinates, at_ms=50)
    chosen = sampled_ranks(window, DEFAULT).tolist()
    groups = [set(range(t + 8 * p, 8 * p + 8, 2)) for t in range(2) for p in range(2)]
    assert len(chosen) <= 10
    assert all(group & set(chosen) for group in groups)


@pytest.mark.parametrize(("ranks", "tp", "pp"), [(16, 2, 4), (32, 2, 4), (32, 4, 2), (32, 1, 4)])
def test_pipelines_longer_than_data_parallel_groups_are_not_taken_for_them(ranks: int, tp: int, pp: int) -> None:
    declared = make_window(ranks, tp=tp, pp=pp, at_ms=50)
    places = declared.ranks
    groups = {
        (t, p): set(places["rank"][(places["tp"] == t) & (places["pp"] == p)].tolist())
        for t in range(tp)
        for p in range(pp)
    }
    for coordinates in (True, False):
        window = make_window(ranks, tp=tp, pp=pp, at_ms=50, coordinates=coordinates)
        chosen = set(sampled_ranks(window, DEFAULT).tolist())
        assert len(chosen) <= 10
        assert all(group & chosen for group in groups.values())


def test_of_more_groups_than_may_be_watched_ten_are_evenly_spread() -> None:
    window = make_window(64, tp=8, pp=4, ranks_per_node=8, at_ms=20)
    chosen = sampled_ranks(window, DEFAULT)
    assert len(chosen) == 10
    places = window.ranks[np.isin(window.ranks["rank"], chosen)]
    assert len(set(places["pp"].tolist())) == 4


def test_ranks_lie_on_few_nodes_as_what_is_read_goes_by_nodes() -> None:
    window = make_window(64, tp=8, pp=1, ranks_per_node=8, at_ms=20)
    chosen = sampled_ranks(window, DEFAULT)
    assert len(chosen) == 10
    assert {int(rank) % 8 for rank in chosen} == set(range(8)), "one of each group"
    assert len({int(rank) // 8 for rank in chosen}) == NODES


def test_a_job_of_one_group_is_watched_from_several_nodes_too() -> None:
    window = make_window(64, tp=1, pp=1, ranks_per_node=8, at_ms=20)
    chosen = sampled_ranks(window, DEFAULT)
    assert len(chosen) == 10
    assert len({int(rank) // 8 for rank in chosen}) == NODES


def test_more_nodes_are_taken_where_no_fewer_cover_the_groups() -> None:
    window = make_window(16, tp=2, pp=4, ranks_per_node=1, at_ms=50)
    chosen = sampled_ranks(window, DEFAULT).tolist()
    places = window.ranks[np.isin(window.ranks["rank"], chosen)]
    assert len(set(zip(places["tp"].tolist(), places["pp"].tolist(), strict=True))) == 8


def test_the_choice_stays_the_same_from_look_to_look() -> None:
    a, b = make_window(16, tp=2, pp=2, at_ms=50), make_window(16, tp=2, pp=2, at_ms=90, seed=4)
    assert sampled_ranks(a, DEFAULT).tolist() == sampled_ranks(b, DEFAULT).tolist()


def test_a_layout_that_nobody_can_write_to_is_worked_out_once_and_another_one_anew() -> None:
    window = make_window(64, tp=2, pp=2, at_ms=50)
    window.ranks.flags.writeable = window.members.flags.writeable = False
    first = sampled_ranks(window, DEFAULT)
    first[:] = -1  # what is handed out may be written to
    other = dataclasses.replace(window, ranks=window.ranks[:32])
    assert sampled_ranks(window, DEFAULT).tolist() == _sampled(window, DEFAULT).tolist()
    assert sampled_ranks(other, DEFAULT).tolist() == _sampled(other, DEFAULT).tolist()


def test_a_layout_that_nobody_else_keeps_is_not_kept_for_who_watches_it() -> None:
    window = make_window(64, tp=2, pp=2, at_ms=50)
    window.ranks.flags.writeable = window.members.flags.writeable = False
    sampled_ranks(window, DEFAULT)
    ranks, members = weakref.ref(window.ranks), weakref.ref(window.members)
    del window
    gc.collect()
    assert ranks() is None and members() is None
