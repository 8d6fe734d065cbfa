"""The mismatch rule: members that entered different ops as their n-th."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import FUNCS
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, FaultKind, Finding, Grade, Symptom, SymptomKind
from tests.windows import make_window


def with_another_op(window: Window, ranks: list[int], **columns: int) -> Window:
    """The window with the world AllReduce of these ranks changed to something else."""
    live = window.rows("live_op").copy()
    world = live["comm_id"] == window.members["comm_id"][window.members["n_ranks"] == 8][0]
    mask = np.isin(live["rank"], ranks) & world
    for name, value in columns.items():
        live[name][mask] = value
    return replace(window, tables={**window.tables, "live_op": live})


def diagnosed(window: Window) -> Diagnosis:
    return diagnose(window, Symptom(SymptomKind.FAILURE, "job", 1, 1, 2, 0, (), ""))


def test_the_same_op_everywhere_is_no_mismatch() -> None:
    assert all(found.rule != "mismatch" for found in diagnosed(make_window(frozen=3)).findings)


def test_the_rank_with_another_size_is_named() -> None:
    best = diagnosed(with_another_op(make_window(frozen=3), [6], count=4096)).findings[0]
    assert (best.culprits, best.component, best.kind) == ((6,), Component.SOFTWARE, FaultKind.MISMATCH)


def test_the_rank_with_another_function_is_named() -> None:
    best = diagnosed(with_another_op(make_window(frozen=3), [1], func=FUNCS.index("Broadcast"))).findings[0]
    assert best.culprits == (1,)


def test_without_a_majority_nobody_is_blamed() -> None:
    window = with_another_op(make_window(paused=False, nic_down=3), [0, 1, 2, 3], count=4096)
    found = mismatch_of(window)
    assert (found.culprits, found.grade) == ((), Grade.WEAK)
    assert [side.ranks for side in found.tied] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert "tell nothing" not in found.sentence


def mismatch_of(window: Window) -> Finding:
    return next(found for found in diagnosed(window).findings if found.rule == "mismatch")


def without_op(window: Window, ranks: list[int]) -> Window:
    """The window in which these ranks tell nothing of the world AllReduce."""
    world = window.members["comm_id"][window.members["n_ranks"] == 8][0]
    tables = dict(window.tables)
    for name in ("live_op", "op", "flow"):
        rows = window.rows(name)
        tables[name] = rows[~(np.isin(rows["rank"], ranks) & (rows["comm_id"] == world))]
    return replace(window, tables=tables)


def test_the_majority_of_those_that_tell_blames_nobody_where_most_tell_nothing() -> None:
    window = without_op(with_another_op(make_window(nic_down=3), [2], count=4096), [3, 4, 5, 6, 7])
    found = mismatch_of(window)
    assert (found.culprits, found.grade) == ((), Grade.WEAK)
    assert [side.ranks for side in found.tied] == [(2,), (0, 1)]
    assert "5 of its 8 members tell nothing of it" in found.sentence


def test_members_of_nodes_that_are_not_heard_of_count_among_those_that_tell_nothing() -> None:
    window = make_window(nic_down=1, without_nodes=[2, 3])
    found = mismatch_of(with_another_op(window, [3], count=4096))
    assert (found.culprits, [side.ranks for side in found.tied]) == ((), [(3,), (0, 1, 2)])
    assert "4 of its 8 members tell nothing of it" in found.sentence


def test_more_than_half_of_all_members_are_right_though_some_tell_nothing() -> None:
    found = mismatch_of(without_op(with_another_op(make_window(nic_down=3), [2], count=4096), [6, 7]))
    assert (found.culprits, found.grade, found.tied) == ((2,), Grade.STRONG, ())


def test_three_sides_of_which_none_is_half_of_all_are_all_tied() -> None:
    window = without_op(with_another_op(make_window(nic_down=3), [3, 4], count=4096), [7])
    found = mismatch_of(with_another_op(window, [5, 6], count=512))
    assert (found.culprits, [side.ranks for side in found.tied]) == ((), [(3, 4), (5, 6), (0, 1, 2)])
    assert "entered 3 different ops" in found.sentence
