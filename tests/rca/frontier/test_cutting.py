"""Windows are cut where the paper closes them, nothing is merged that does not match, and what is wrong is said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.stage_schema import DATA, DEFAULT, FORWARD_EVENTS
from nccl_instrument.tables import GATHER_FAILED, NESTED_REFUSED, OUT_OF_ORDER, WAIT_UNSURE
from rca.frontier.cutting import Batch, Cursor, after, beyond, cut
from rca.frontier.gates import DEFAULT as GATES
from rca.frontier.groups import groups_of
from rca.frontier.packet import packet_of
from rca.frontier.report import Label
from rca.frontier.steps import schemas_of, steps_of
from rca.settings import Settings
from tests.rca.frontier.built import END_NS, SECOND, joined, stage_window
from tests.rca.frontier.test_labels import BASE

START = Cursor()
SHORT = Settings(stage_steps=10, stage_warm_up=0)


def steady(n_steps: int = 30, n_ranks: int = 4, step_s: float = 0.2) -> np.ndarray:
    return np.tile(BASE * (step_s / BASE.sum()), (n_steps, n_ranks, 1))


def windows_of(window: Window, settings: Settings = SHORT, cursor: Cursor = START, *, is_last: bool = False) -> Batch:
    steps, _ = after(steps_of(window), cursor, settings)
    ranks = np.unique(steps.rank).tolist()
    return cut(steps, schemas_of(window), ranks, window.end_ns, settings, is_last=is_last)


def without(window: Window, **where: Any) -> Window:
    """The window without the stage rows for which all these columns have these values."""
    rows = window.rows("stage")
    is_out = np.logical_and.reduce([np.isin(rows[name], values) for name, values in where.items()])
    return replace(window, tables={**window.tables, "stage": rows[~is_out]})


def test_nothing_is_cut_of_nothing_and_nothing_that_may_still_grow() -> None:
    assert windows_of(stage_window(steady(9))).cuts == ()
    empty = without(stage_window(steady(9)), rank=range(4))
    assert windows_of(empty, is_last=True) == Batch((), -1, 0)


def test_a_window_holds_so_many_steps_after_the_warm_up() -> None:
    found = windows_of(stage_window(steady(45)), replace(SHORT, stage_warm_up=20))
    assert [(one.steps[0], one.steps[-1], one.closed) for one in found.cuts] == [
        (20, 29, "10 steps"),
        (30, 39, "10 steps"),
    ]
    assert found.step == 39
    assert found.cuts[0].durations.shape == (10, 4, 6)


def test_a_window_ends_after_so_long() -> None:
    found = windows_of(stage_window(steady(40)), replace(SHORT, stage_steps=100, stage_window_ns=3 * SECOND))
    assert [one.closed for one in found.cuts] == ["3 s", "3 s"]
    assert all(one.end_ns - one.start_ns <= 3.01 * SECOND for one in found.cuts)


def test_steps_that_not_all_ranks_have_told_are_waited_for_but_not_for_ever() -> None:
    window = without(stage_window(steady(10)), rank=[2], step=[9])
    assert windows_of(window).cuts == ()
    later = replace(window, end_ns=window.end_ns + 10 * SECOND)
    (found,) = windows_of(later).cuts
    assert (len(found.steps), found.n_left_out) == (9, 1)


def test_a_step_that_one_rank_broke_off_is_left_out_of_all() -> None:
    (found,) = windows_of(without(stage_window(steady(10)), rank=[2], step=[4])).cuts
    assert found.steps.tolist() == [0, 1, 2, 3, 5, 6, 7, 8, 9]
    assert found.trouble == ("1 of 10 steps are left out: not every rank completed them.",)


def test_members_that_come_or_go_close_the_window() -> None:
    joins = without(stage_window(steady(30)), rank=[3], step=range(6))
    assert [(len(one.ranks), one.closed) for one in windows_of(joins).cuts][:2] == [
        (3, "a rank joined"),
        (4, "10 steps"),
    ]
    leaves = without(stage_window(steady(60)), rank=[3], step=range(6, 60))
    assert [(len(one.ranks), one.closed) for one in windows_of(leaves).cuts][:2] == [
        (4, "a rank left"),
        (3, "10 steps"),
    ]


def test_another_schema_closes_the_window() -> None:
    before, after_ = stage_window(steady(5)), stage_window(np.tile(BASE[[0, *range(6)]], (5, 4, 1)),
        schema=DEFAULT.refined(DATA, "data.read", "data.to_device"), first_step=5, end_ns=END_NS + 2 * SECOND)  # fmt: skip
    tables = {name: np.concatenate([before.rows(name), after_.rows(name)]) for name in before.tables}
    found = windows_of(replace(after_, tables=tables), is_last=True)
    assert [(len(one.stages.names), one.closed) for one in found.cuts] == [
        (6, "the stages changed"),
        (7, "the data ends"),
    ]


def test_rows_of_other_schemas_are_not_merged_and_are_said() -> None:
    most, other = stage_window(steady(10, 3)), stage_window(np.tile(BASE[[0, *range(6)]], (10, 1, 1)),
        schema=DEFAULT.refined(DATA, "data.read", "data.to_device"), ranks=(3,))  # fmt: skip
    tables = {name: np.concatenate([most.rows(name), other.rows(name)]) for name in most.tables}
    window = replace(stage_window(steady(10, 4)), tables=tables)
    (found,) = windows_of(window).cuts
    assert found.ranks == (0, 1, 2)
    assert found.trouble == ("1 rank records other stages than the rest.",)
    report = packet_of(found, groups_of(window)[0], window, GATES).report
    assert Label.TELEMETRY_LIMITED in report.labels
    assert "1 rank of the group sent nothing." in report.downgrades


def test_numbers_that_begin_anew_are_new_steps() -> None:
    first = windows_of(stage_window(steady(10)))
    again = stage_window(steady(10), first_step=3, end_ns=END_NS + 60 * SECOND)
    found = windows_of(again, cursor=Cursor(first.step, first.ended_ns, 0))
    assert found.cuts[0].steps[0] == 3


def test_the_first_steps_of_numbers_that_begin_anew_are_warm_up_too_however_often_they_are_read() -> None:
    settings = replace(SHORT, stage_warm_up=5)
    before = windows_of(stage_window(steady(15)), settings)
    again = stage_window(steady(30), first_step=3, end_ns=END_NS + 60 * SECOND)
    _, cursor = after(steps_of(again), Cursor(before.step, before.ended_ns, 0), settings)
    later = without(again, step=range(3, 7))  # of a slow start what was read first is not read again
    own, _ = after(steps_of(later), cursor, settings)
    assert own.step.min() == 8 and windows_of(later, settings, cursor).cuts[0].steps[0] == 8
    old = stage_window(steady(30), first_step=20)
    assert len(after(steps_of(old), cursor, settings)[0].step) == 0  # of before the restart


@pytest.mark.parametrize(
    ("flags", "said"), [(WAIT_UNSURE, "batches are fetched ahead"), (GATHER_FAILED, "gather of this window failed")]
)
def test_what_rows_say_of_themselves_limits_the_labels(flags: int, said: str) -> None:
    window = stage_window(steady(10), flags=flags)
    (found,) = windows_of(window).cuts
    report = packet_of(found, groups_of(window)[0], window, GATES).report
    assert Label.TELEMETRY_LIMITED in report.labels
    assert any(said in why for why in report.downgrades)


def test_rows_that_no_clock_can_have_measured_are_left_out_and_counted() -> None:
    window = stage_window(steady(10))
    rows = window.rows("stage").copy()
    rows["durations_ns"][3, 0] = -5
    (found,) = windows_of(replace(window, tables={**window.tables, "stage": rows})).cuts
    assert any("cannot be a duration" in why for why in found.trouble)
    assert (found.durations >= 0).all()


def test_a_schema_that_was_never_told_gives_no_window() -> None:
    window = stage_window(steady(10))
    silent = replace(window, tables={**window.tables, "schema": window.rows("schema")[:2]})
    assert windows_of(silent).cuts == ()


def test_more_than_eight_stages_come_in_several_rows() -> None:
    schema = DEFAULT.accumulated(4)
    durations = np.random.default_rng(1).uniform(0.001, 0.01, (10, 3, 15))
    (found,) = windows_of(stage_window(durations, schema=schema)).cuts
    assert np.allclose(found.durations, durations, atol=1e-6)
    assert (found.stages.micro_steps, found.stages.is_indexed) == (4, True)


def test_device_times_that_were_asked_for_and_came_are_counted() -> None:
    schema = DEFAULT.with_side(FORWARD_EVENTS)
    window = stage_window(steady(10, 2), schema=schema)
    stage = window.rows("stage")
    side = np.zeros(20, window.rows("side").dtype)
    for name in ("rank", "step", "schema", "ended_ns"):
        side[name] = stage[name]
    side["value_ns"] = np.where(side["rank"] == 0, 5_000_000, -1)
    window = replace(window, tables={**window.tables, "side": joined("side", side, side["rank"].tolist())})
    (found,) = windows_of(window).cuts
    events = packet_of(found, groups_of(window)[0], window, GATES).window.events
    assert events is not None
    assert (events.ready.tolist(), events.asked.tolist(), round(events.mean_s[0], 9)) == ([10, 0], [10, 10], 0.005)


@pytest.mark.parametrize("ahead_s", [3600, -3600, 65, 20])
def test_a_nodes_clock_changes_neither_windows_nor_what_is_new(ahead_s: int) -> None:
    """Only step numbers are compared across ranks (StageFrontier §3)."""
    window = stage_window(steady(260))
    rows = window.rows("stage").copy()
    rows["ended_ns"][rows["rank"] == 2] += ahead_s * SECOND
    odd = replace(window, tables={**window.tables, "stage": rows})
    settings = replace(SHORT, stage_steps=120, stage_warm_up=20)
    plain, found = windows_of(window, settings), windows_of(odd, settings)
    told = [(one.steps[0], one.steps[-1], one.closed, one.start_ns, one.end_ns) for one in found.cuts]
    assert told == [(one.steps[0], one.steps[-1], one.closed, one.start_ns, one.end_ns) for one in plain.cuts]
    assert len(found.cuts) == 2 and found.ended_ns == plain.ended_ns
    again, _ = after(steps_of(odd), Cursor(found.step, found.ended_ns, 0), settings)
    assert len(again.step) == 0


@pytest.mark.parametrize("flag", [WAIT_UNSURE, NESTED_REFUSED, OUT_OF_ORDER])
def test_what_one_rank_of_many_says_of_itself_limits_the_labels_too(flag: int) -> None:
    window = stage_window(steady(10, 32))
    rows = window.rows("stage").copy()
    rows["flags"][rows["rank"] == 3] = flag
    (found,) = windows_of(replace(window, tables={**window.tables, "stage": rows})).cuts
    assert len(found.trouble) == 1 and found.trouble[0].startswith("On rank 3, in 100% of the steps ")


def test_folded_micro_steps_are_told_by_how_often_backward_came_and_a_change_closes_the_window() -> None:
    window = stage_window(steady(60))
    rows = window.rows("stage").copy()
    rows["repeats"] = np.where(rows["step"] < 23, 4, 2)
    rows["repeats"][(rows["step"] == 30) & (rows["rank"] == 1)] = 1  # the last step of an epoch: no window of its own
    window = replace(window, tables={**window.tables, "stage": rows})
    found = windows_of(window, replace(SHORT, stage_steps=30), is_last=True).cuts
    assert [(one.steps[0], len(one.steps), one.repeats, one.closed) for one in found] == [
        (0, 23, 4, "the accumulation changed"), (23, 30, 2, "30 steps"), (53, 7, 2, "the data ends"),
    ]  # fmt: skip
    report = packet_of(found[0], groups_of(window)[0], window, GATES).report
    assert Label.GRADIENT_ACCUMULATION_AMBIGUOUS in report.labels and not report.is_strong
    assert "4 micro-steps are folded into each stage." in report.downgrades


def test_a_hole_in_the_steps_closes_the_window_and_is_counted() -> None:
    """As of an outage whose rows are still in the spool: what is before it and after it is not one window."""
    window = without(stage_window(steady(60)), step=range(24, 46))
    cuts = windows_of(window, replace(SHORT, stage_steps=20), is_last=True).cuts
    assert [(one.steps[0], one.steps[-1], one.closed) for one in cuts] == [
        (0, 19, "20 steps"), (20, 23, "steps are missing"), (46, 59, "the data ends"),
    ]  # fmt: skip
    cursor = Cursor(step=-1)
    for one in cuts:
        cursor = beyond(cursor, one)
    assert (cursor.step, cursor.missed) == (59, 22)


def test_a_few_steps_that_nobody_told_are_counted_and_close_nothing() -> None:
    (one,) = windows_of(without(stage_window(steady(12)), step=[3, 7])).cuts
    assert (one.closed, beyond(Cursor(), one).missed) == ("10 steps", 2)
    (broken,) = windows_of(without(stage_window(steady(10)), rank=[2], step=[4])).cuts
    assert beyond(Cursor(), broken).missed == 0  # told by others, and said as left out


def test_what_was_missed_before_the_numbers_begin_anew_stays_counted() -> None:
    again = stage_window(steady(10), first_step=3, end_ns=END_NS + 60 * SECOND)
    _, cursor = after(steps_of(again), Cursor(9, END_NS, 0, missed=7), SHORT)
    assert (cursor.step, cursor.missed) == (2, 7)
