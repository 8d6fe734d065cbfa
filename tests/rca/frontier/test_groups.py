"""Ranks that play different parts are told apart, and a wait is believed only where communicators show one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.stage_schema import DATA, OPTIMIZER
from nccl_instrument.tables import FUNCS, SYNCHRONOUS
from rca.frontier.gates import DEFAULT as GATES
from rca.frontier.groups import Fit, fit_of, groups_of
from rca.frontier.packet import packet_of
from rca.frontier.report import Label
from tests.eval.stages_model import Fault, Job, run, window_of
from tests.rca.frontier.built import WORLD, joined, members_of, stage_window
from tests.rca.frontier.test_cutting import SHORT, steady, windows_of


def fit(window: Window, after_s: float = 0.0) -> Fit:
    """Of the first group, where the leading stage of every rank ends `after_s` after the step began."""
    stage = np.sort(window.rows("stage"), order=("step", "rank"))
    ended = stage["ended_ns"].reshape(-1, 8).astype(np.int64)
    began = ended - stage["durations_ns"].sum(axis=1).reshape(-1, 8)
    return fit_of(window, groups_of(window)[0], range(8), began + int(after_s * 1e9), ended)


def healthy(n_ranks: int = 8) -> Window:
    return window_of(run(Job(n_ranks), Fault(), 30, np.random.default_rng(0)))


def test_ranks_of_which_nothing_is_known_are_one_group() -> None:
    (found,) = groups_of(stage_window(steady(3)))
    assert (found.role, found.ranks, found.n_known, found.are_roles_known) == ("", (0, 1, 2, 3), 4, True)


def test_stages_of_a_pipeline_are_groups_of_their_own() -> None:
    found = groups_of(stage_window(steady(3), pp=(0, 0, 1, 1)))
    assert [(one.role, one.ranks, one.n_known) for one in found] == [("pp 0", (0, 1), 2), ("pp 1", (2, 3), 2)]
    assert [one.n_roles for one in found] == [2, 2]


def test_what_ranks_declare_tells_them_apart_too() -> None:
    window = stage_window(steady(3))
    recorder = window.rows("recorder").copy()
    recorder["role"][2:] = b"encoder"
    found = groups_of(replace(window, tables={**window.tables, "recorder": recorder}))
    assert [(one.role, one.ranks) for one in found] == [("", (0, 1)), ("encoder", (2, 3))]


def test_ranks_that_record_nothing_are_known_to_be_missing() -> None:
    (found,) = groups_of(stage_window(steady(3), known=6))
    assert (len(found.ranks), found.n_known) == (4, 6)


def test_a_pipeline_whose_places_nobody_knows_has_unknown_roles() -> None:
    window = healthy(4)
    ops = window.rows("op").copy()
    ops["func"][:4] = FUNCS.index("Send")
    (found,) = groups_of(replace(window, tables={**window.tables, "op": ops}))
    assert not found.are_roles_known


def test_one_communicator_with_an_op_after_the_stage_fits() -> None:
    found = fit(healthy())
    assert found.fits
    assert found.why == "8 ranks of one role are in one communicator, with AllReduce after that stage"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("nothing traced", "no communicator of this group is traced"),
        ("apart", "do not join this group into one"),
        ("no ops", "no synchronising op of this group was seen"),
        ("stage is last", "in no step a synchronising op"),
    ],
)
def test_what_communicators_do_not_show_does_not_fit_and_says_why(change: str, why: str) -> None:
    window = healthy()
    members = {"nothing traced": members_of([]), "apart": members_of([range(4), range(4, 8)])}
    window = replace(window, members=members.get(change, window.members))
    if change == "no ops":
        window = replace(window, tables={**window.tables, "op": window.rows("op")[:0]})
    found = fit(window, after_s=0.2 if change == "stage is last" else 0.0)
    assert not found.fits
    assert why in found.why


def test_communicators_that_overlap_join_a_group() -> None:
    window = healthy()
    members = members_of([(0, 1, 2, 3), (4, 5, 6, 7), (0, 4), (1, 5), (2, 6), (3, 7)])
    ops = window.rows("op").copy()
    ops["comm_id"] = WORLD + (ops["rank"] >= 4)
    window = replace(window, members=members, tables={**window.tables, "op": joined("op", ops, ops["rank"].tolist())})
    assert "6 communicators that join them" in fit(window).why


@pytest.mark.parametrize(
    ("stage", "n_said", "why"),
    [
        (DATA, 8, "declared by the programs of all 8 ranks"),
        (OPTIMIZER, 8, "is before that stage"),
        (DATA, 7, "no communicator of this group is traced"),
    ],
)
def test_where_nothing_is_traced_the_programs_own_word_is_taken_and_said_to_be_that(
    stage: str, n_said: int, why: str
) -> None:
    """As of DDP over gloo, or without the plugin: else no stage that others wait for could ever be named."""
    made = run(Job(8), Fault("data" if stage == DATA else "optimizer", 3, 0.3), 30, np.random.default_rng(0))
    window = replace(window_of(made), members=members_of([]))
    recorder = window.rows("recorder").copy()
    recorder["flags"][recorder["rank"] < n_said] = SYNCHRONOUS
    window = replace(window, tables={**window.tables, "recorder": recorder, "op": window.rows("op")[:0]})
    (found,) = windows_of(window, replace(SHORT, stage_steps=30)).cuts
    if stage == OPTIMIZER:  # nobody waits for it in this step: say that it leads
        found = replace(
            found, durations=found.durations[:, :, [0, 1, 2, 3, 4, 5]] * np.array([0.1, 0.1, 0.1, 0.1, 1, 0.1])
        )
    report = packet_of(found, groups_of(window)[0], window, GATES).report
    assert why in report.why
    assert report.fits_wait_model == why.startswith("declared")
    assert (Label.SYNC_WAIT_DEPENDENT in report.labels) == report.fits_wait_model
    assert report.stage == stage
