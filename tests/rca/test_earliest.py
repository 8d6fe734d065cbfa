"""Which of ranks that cannot be told apart have come least far."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from nccl_instrument.simulate.layout import Layout
from rca.diagnose import diagnose
from rca.findings import Finding
from rca.hang.earliest import earliest_of
from rca.triggers.look import look
from rca.triggers.normal import Normal
from tests.eval.pulse_cases import SETTINGS
from tests.nccl_instrument.simulate.jobs import window_after

DEEP = Layout(tp=2, pp=4, dp=2, ranks_per_node=4)
EXPERTS = Layout(tp=4, pp=1, dp=4, ep=4, ranks_per_node=4)
WIDE = Layout(tp=8, pp=1, dp=4, ep=4, ranks_per_node=8)
ALONE = Layout(tp=1, pp=4, dp=4, ranks_per_node=4)
ROW = np.dtype([("comm_id", "u8"), ("comm_rank", "i4"), ("n_p2p_enqueued", "u8"), ("n_p2p_done", "u8")])


def best(layout: Layout, victim: int, at_s: float) -> Finding:
    """The first finding about a GPU that executes nothing."""
    cut = window_after("gpu_error", layout, victim, at_s=at_s, seconds=at_s + 11.5)
    return diagnose(cut, look(cut, Normal()).symptoms[0]).findings[0]


def state(*ranks: tuple[int, int, int, int, int], is_cut: bool = False) -> Any:
    """Ranks of one job, each with (ops entered in the world, communicator of its pipeline, place there, sends and receives
    enqueued, and over)."""
    n = len(ranks)
    entered, pipe, place, enqueued, done = np.array(ranks).T
    ids = np.unique(pipe)
    comm = np.concatenate([np.zeros(n, int), 1 + np.searchsorted(ids, pipe)])
    members = SimpleNamespace(
        comm=comm, rank_at=np.tile(np.arange(n), 2), entered=np.concatenate([entered, np.zeros(n, int)]),
        is_heard=np.ones(2 * n, bool), comm_ids=np.append(0, ids), n_ranks=np.append(n, np.full(len(ids), 4)),
        n_nodes=np.append(2, np.full(len(ids), 2)), comm_of=lambda asked: np.searchsorted(np.append(0, ids), asked),
    )  # fmt: skip
    rows = np.zeros(n, ROW)
    rows["comm_id"], rows["comm_rank"], rows["n_p2p_enqueued"], rows["n_p2p_done"] = pipe, place, enqueued, done
    known = SimpleNamespace(progress=rows, progress_at=np.arange(n))
    return SimpleNamespace(members=members, known=known, is_cut=np.full(n, is_cut))


def earliest(*ranks: tuple[int, int, int, int, int], is_cut: bool = False) -> list[int]:
    found = earliest_of(state(*ranks, is_cut=is_cut), np.arange(len(ranks)))
    return [int(at) for at in found]


@pytest.mark.parametrize(
    "ranks",
    [
        ((64, 11, 1, 40, 40), (64, 12, 1, 40, 40)),
        ((64, 11, 1, 40, 38), (64, 12, 1, 42, 40)),
        ((64, 11, 1, 40, 38), (64, 12, 2, 40, 40)),
        ((64, 11, 1, 40, 20), (64, 12, 1, 40, 40)),
        ((63, 11, 0, 40, 38), (64, 11, 1, 40, 40)),
        ((63, 11, 1, 40, 40), (64, 12, 1, 40, 39)),
    ],
    ids=["alike", "other programs", "other stages", "what the network does not see", "of one pipeline", "it disagrees"],
)
def test_where_nothing_tells_who_is_behind_all_stay(ranks: tuple[tuple[int, int, int, int, int], ...]) -> None:
    assert earliest(*ranks) == [0, 1]


def test_what_is_known_to_have_stopped_by_itself_is_not_compared() -> None:
    assert earliest((63, 11, 1, 40, 38), (64, 12, 1, 40, 40), is_cut=True) == [0, 1]


def test_hosts_that_have_entered_more_of_what_all_share_are_not_it() -> None:
    assert earliest((64, 11, 1, 40, 40), (63, 12, 1, 40, 40), (63, 13, 1, 40, 40)) == [1, 2]


def test_ranks_of_a_stage_that_are_through_with_more_sends_are_not_it() -> None:
    assert earliest((64, 11, 1, 40, 40), (64, 12, 1, 40, 38), (64, 13, 1, 40, 39)) == [1]


@pytest.mark.parametrize(("layout", "victim", "at_s"), [(DEEP, 5, 3.1), (ALONE, 2, 2.33)])
def test_a_gpu_that_stops_while_its_mates_send_on_is_named(layout: Layout, victim: int, at_s: float) -> None:
    assert best(layout, victim, at_s).culprits == (victim,)


def test_mates_of_a_tensor_group_that_stop_together_stay_tied_and_the_others_are_not() -> None:
    found = best(DEEP, 13, 2.12)
    assert (found.culprits, {rank for one in found.tied for rank in one.ranks}) == ((), {12, 13})


@pytest.mark.parametrize(("layout", "victim", "at_s"), [(EXPERTS, 6, 2.6154), (WIDE, 18, 1.8312)])
def test_nothing_enqueued_later_is_taken_for_what_holds_a_kernel_that_never_started(
    layout: Layout, victim: int, at_s: float
) -> None:
    physics = replace(SETTINGS["Mixtral"].physics, traffic_rows=0)
    cut = window_after("gpu_error", layout, victim, at_s=at_s, seconds=at_s + 11.5, physics=physics)
    assert diagnose(cut, look(cut, Normal()).symptoms[0]).findings[0].culprits == (victim,)
