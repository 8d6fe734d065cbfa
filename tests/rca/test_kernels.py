"""Hangs inside a node when NCCL reports kernels: whose GPU never began the op its mates are inside of; else nothing new."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ingest.window import Rows, Window
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from rca.diagnose import diagnose
from rca.findings import Diagnosis, FaultKind, Grade
from rca.hang.kernels import held_edges, inside_of, unbegun
from rca.hang.mates import Mates
from rca.hang.progress import Progress, state_of
from rca.settings import DEFAULT
from rca.triggers.look import look
from rca.triggers.normal import Normal
from tests.nccl_instrument.simulate.jobs import run, window_after, window_of

KERNELS = replace(TESTBED, kernels=True)
COLUMNS = ("kernels_begun", "last_kernel_ns", "kernels_open")
LAYOUTS = {
    "tensor groups": Layout(tp=4, pp=1, dp=4, ranks_per_node=4),
    "experts in a node": Layout(tp=1, pp=1, dp=8, ep=4, ranks_per_node=4),
    "stages": Layout(tp=4, pp=2, dp=2, ranks_per_node=4),
}


@cache
def window(layout: str = "tensor groups", victim: int = 10, fault: str = "gpu_error", at_s: float = 2.05) -> Window:
    return window_after(fault, LAYOUTS[layout], victim, at_s=at_s, seconds=at_s + 11.5, physics=KERNELS)


@cache
def untold(layout: str = "tensor groups", victim: int = 10, fault: str = "gpu_error", at_s: float = 2.05) -> Window:
    """The same job, whose plugin does not ask for kernels."""
    return window_after(fault, LAYOUTS[layout], victim, at_s=at_s, seconds=at_s + 11.5, physics=TESTBED)


def diagnosed(cut: Window) -> Diagnosis:
    seen = look(cut, Normal())
    assert seen.symptoms, f"no symptom: {seen.held}"
    return diagnose(cut, seen.symptoms[0])


def changed(cut: Window, **columns: object) -> Window:
    """The window with other progress rows: each argument is a column and what it is made of the rows."""
    rows = cut.rows("progress").copy()
    for name, made in columns.items():
        rows[name] = made(rows) if callable(made) else made
    return replace(cut, tables={**cut.tables, "progress": rows})


def of_rank(rank: int, column: str, value: int) -> Rows:
    """That column with another value where the row is of this rank."""

    def made(rows: Rows) -> Rows:
        return np.where(rows["rank"] == rank, np.maximum(rows[column].astype(np.int64) + value, 0), rows[column])

    return made  # type: ignore[return-value]


def blamed(found: Diagnosis) -> list[tuple[object, ...]]:
    return [(one.rule, one.culprits, one.tied, one.component, one.kind, one.sentence) for one in found.findings]


def at_of(state: Progress, rank: int) -> int:
    return int(state.ranks.position(np.array([rank], np.int64))[0])


# ---- nobody, and nothing new ----


@pytest.mark.parametrize("fault", ["gpu_error", "rank_frozen", "stuck_before", "proxy_stuck"])
def test_without_kernel_records_the_findings_are_those_of_before(fault: str) -> None:
    stripped = changed(window(fault=fault), **dict.fromkeys(COLUMNS, 0))
    assert blamed(diagnosed(stripped)) == blamed(diagnosed(untold(fault=fault)))


def test_in_a_healthy_job_nobody_is_outside_what_mates_wait_in() -> None:
    state = state_of(window_of(run(LAYOUTS["tensor groups"], seconds=6.0, physics=KERNELS)), DEFAULT)
    assert all(unbegun(state.kernels, state.members, at) is None for at in range(state.n_ranks))
    assert not state.kernels.is_outside.any(), "of a job that moves nothing stands for half a second"


def test_where_all_have_begun_and_nobody_ends_nothing_new_is_said() -> None:
    """The GPU stands inside a kernel that its mates are inside of too."""
    cut = window(at_s=2.15)
    world = cut.members["comm_id"][cut.members["name"] == "world"][0]
    rows = cut.rows("progress")
    last = rows[(rows["comm_id"] == world) & (rows["tick_ns"] > rows["tick_ns"].max() - 10**9)]
    assert len(set(last["kernels_begun"].tolist())) == 1 and (last["kernels_open"] > 0).all()
    assert blamed(diagnosed(cut)) == blamed(diagnosed(untold(at_s=2.15)))
    assert diagnosed(cut).culprits == (10,), "by what the ring took into its node and sent out of it"
    state = state_of(cut, DEFAULT)
    assert {int(state.members.comm_ids[inside_of(state.kernels, state.members, at)]) for at in range(16)} == {
        int(world)
    }


def test_a_rank_whose_kernels_went_unreported_for_long_is_not_taken_for_one_that_stands() -> None:
    lost = changed(untold(), kernels_begun=40, kernels_open=1, last_kernel_ns=lambda rows: rows["tick_ns"] - 9 * 10**9)
    lost = changed(lost, kernels_begun=of_rank(9, "kernels_begun", -20), kernels_open=of_rank(9, "kernels_open", -1))
    state = state_of(lost, DEFAULT)
    assert unbegun(state.kernels, state.members, at_of(state, 9)) is None
    assert blamed(diagnosed(lost)) == blamed(diagnosed(untold()))


def test_one_rank_that_tells_of_kernels_alone_proves_nothing() -> None:
    alone = changed(
        window(), **{name: lambda rows, name=name: np.where(rows["rank"] == 10, rows[name], 0) for name in COLUMNS}
    )
    assert blamed(diagnosed(alone)) == blamed(diagnosed(untold()))


def test_what_was_begun_a_moment_ago_is_not_at_rest() -> None:
    moving = changed(window(), last_kernel_ns=lambda rows: rows["tick_ns"] - 10**8)
    assert blamed(diagnosed(moving)) == blamed(diagnosed(untold()))


# ---- inside a kernel whose flows are through ----


def world_rows(rows: Rows, cut: Window, ranks: tuple[int, ...]) -> Rows:
    """(n,) mask: of the world's communicator, of these ranks."""
    world = cut.members["comm_id"][cut.members["name"] == "world"][0]
    found: Rows = (rows["comm_id"] == world) & np.isin(rows["rank"], ranks)
    return found


def test_who_is_through_with_its_flows_and_still_inside_may_wait_for_mates_inside_and_for_no_other() -> None:
    cut = window(at_s=2.15)  # all are inside the world's kernel; ranks 8 to 11 share a node
    held = changed(
        cut,
        n_done=lambda rows: np.where(world_rows(rows, cut, (11,)), rows["n_enqueued"], rows["n_done"]),
        kernels_open=lambda rows: np.where(world_rows(rows, cut, (9,)), 0, rows["kernels_open"]),
    )
    for found, waited_for in ((cut, set()), (held, {8, 10})):
        state = state_of(found, DEFAULT)
        assert set(state.ranks.rank[state.members.rank_at[state.kernels.is_held]].tolist()) == (
            {11} if waited_for else set()
        )
        edges = held_edges(state.kernels, state.members, Mates(state.known, state.members))
        assert set(state.ranks.rank[edges.target].tolist()) == waited_for


# ---- whose GPU stands ----


def test_the_rank_that_was_a_tie_of_its_tensor_group_is_named() -> None:
    before, now = diagnosed(untold()).findings[0], diagnosed(window()).findings[0]
    assert before.culprits == () and {rank for tied in before.tied for rank in tied.ranks} == {8, 9, 10, 11}
    assert (now.culprits, now.subject.kind, now.kind, now.grade) == (
        (10,), "gpu", FaultKind.COMPUTATION_FAIL_STOP, Grade.MODERATE,
    )  # fmt: skip
    assert "The GPU of rank 10 has not begun the kernel it was given in" in now.sentence
    assert "3 of 3 mates are inside theirs: launched and not scheduled" in now.sentence
    (evidence,) = [one for one in now.evidence if one.what.startswith("kernels begun")]
    assert evidence.rank == 10 and evidence.what.endswith("mates inside one 3")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("victim", "at_s"), [(1, 2.0), (6, 2.3)])
def test_a_gpu_that_stops_is_named_or_tied_as_before_and_no_mate_is_blamed(
    layout: str, victim: int, at_s: float
) -> None:
    before, now = diagnosed(untold(layout, victim, at_s=at_s)), diagnosed(window(layout, victim, at_s=at_s))
    assert now.culprits in ((), (victim,))
    named = {victim} & {*now.culprits, *(rank for one in now.findings[0].tied for rank in one.ranks)}
    assert named and len(now.findings[0].tied) <= len(before.findings[0].tied)


@pytest.mark.parametrize(
    ("fault", "layout"),
    [("rank_frozen", "stages"), ("stuck_before", "experts in a node"), ("proxy_stuck", "stages"), ("nic_down", "stages"),
     ("proxy_stuck", "experts in a node")],
)  # fmt: skip
def test_other_culprits_stay_what_they_are(fault: str, layout: str) -> None:
    before, now = diagnosed(untold(layout, 6, fault)), diagnosed(window(layout, 6, fault))
    assert (now.culprits, now.findings[0].component) == (before.culprits, before.findings[0].component)
