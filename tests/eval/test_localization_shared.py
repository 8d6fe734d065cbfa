"""Cases that share the beginning of their job: which do, that they are drawn alike every time, and that each goes on alone."""

from __future__ import annotations

import os
from typing import Any

import pytest

from tests.eval.localization_cases import FROM_THE_START, HEALTHY, LARGE, ROWS, Plan, is_felt, planned
from tests.eval.localization_shared import (
    BLOCK,
    ROOM_SECONDS,
    _forked,
    block_of,
    draw_fault,
    draw_job,
    in_blocks,
    run_block,
    shares,
)

SMALL = 16  # such jobs need not share, but can


def plans(gpus: int, n_cases: int) -> list[Plan]:
    return [(gpus, *one) for one in planned(gpus, n_cases)]


def test_large_cases_share_a_job_but_for_what_a_job_has_from_its_start() -> None:
    assert not any(shares(plan) for plan in plans(64, 32))
    alone = {plan[3] for plan in plans(LARGE, 64) if not shares(plan)}
    assert alone == set(FROM_THE_START) < set(HEALTHY)
    blocks = list(in_blocks(plans(LARGE, 64)))
    assert len(blocks) == 4 and len({plan[1] for block in blocks for plan in block}) == sum(map(len, blocks))
    assert all(len({plan[2] for plan in block if plan[2] != "healthy"}) >= len(ROWS) - 1 for block in blocks)


def test_hot_experts_are_of_jobs_with_experts_which_every_other_one_is() -> None:
    assert [draw_job(7, SMALL, block).layout.ep > 1 for block in range(4)] == [True, False, True, False]
    hot = [plan for plan in plans(LARGE, 64) if plan[3] == "hot_expert"]
    assert [block_of(plan) for plan in hot] == [0, 0, 2, 2]
    assert [plan[1] // (2 * BLOCK) for plan in hot] == [0, 1, 2, 3]


@pytest.mark.parametrize("fault", ["gpu_slow", "nic_down", "agent_restart"])
def test_a_fault_follows_from_its_number_and_begins_after_the_cases_have_parted(fault: str) -> None:
    job, plan = draw_job(7, SMALL, 0), (SMALL, 10, "a row", fault)
    first, again = (draw_fault(job, plan) for _ in range(2))
    assert first == again and first.layout == job.layout and first.physics == job.physics and is_felt(first)
    assert first.fault != draw_fault(job, (SMALL, 12, "a row", fault)).fault
    assert job.ready_s + ROOM_SECONDS <= first.fault.start_s <= job.ready_s + ROOM_SECONDS + 5
    assert draw_job(7, SMALL, 0) == job and draw_job(8, SMALL, 0) != job


def test_a_different_op_is_of_another_size_in_a_tree() -> None:
    jobs = [draw_job(seed, SMALL, 1) for seed in range(20)]
    tree, other = (
        next(job for job in jobs if (job.physics.dp_reduce == "tree") is is_tree) for is_tree in (True, False)
    )
    plan = (SMALL, 22, "different op, size or order", "different_op")
    assert (draw_fault(tree, plan).fault.name, draw_fault(other, plan).fault.name) == ("different_size", "different_op")


def test_cases_of_one_job_are_named_and_scored_each_for_itself() -> None:
    wanted = [
        (SMALL, 0, "NIC down", "nic_down"),
        (SMALL, 20, "stuck", "stuck_before"),
        (SMALL, 5, "healthy", "checkpoint"),
    ]
    told: list[float] = []
    rows = {row["number"]: row for row in run_block(5, wanted, jobs=2, tell=told.append)}
    assert set(rows) == {0, 5, 20} and told == sorted(told) and 0.9 < told[-1] <= 1.1
    assert len({str(row["layout"]) for row in rows.values()}) == 1
    assert [(rows[at]["named"], rows[at]["wrongly_blamed"]) for at in (0, 20)] == [(True, 0), (True, 0)]
    assert rows[5]["healthy"] and not rows[5]["false_incident"]


def fails() -> dict[str, Any]:
    raise ValueError("no such case")


def test_what_fails_in_a_case_is_said_and_ends_the_others() -> None:
    with pytest.raises(RuntimeError, match="no such case"):
        list(_forked([fails], 2))
    with pytest.raises(RuntimeError, match="without an answer"):
        list(_forked([lambda: os._exit(3)], 1))
    assert sorted(row["n"] for row in _forked([lambda n=n: {"n": n} for n in range(5)], 2)) == list(range(5))
