"""What is a symptom and what is not: pauses, spools, outages and busy ranks raise nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import Physics
from nccl_instrument.tables import OP_NO_NETWORK
from rca.findings import CREPT, SymptomKind
from rca.hang.progress import state_of
from rca.hang.sinks import sinks
from rca.settings import DEFAULT, SECOND_NS
from rca.triggers.look import delta_ns, look
from rca.triggers.normal import ALL, Normal
from rca.triggers.pace import USUAL_KEPT, Pace
from tests.nccl_instrument.simulate.jobs import TESTBED, window_after
from tests.windows import lagging, make_window

USUAL = Normal(intervals={ALL: {100: 1000}})  # 2^25 ns, some 34 ms, between two ops


def kinds(window, normal: Normal = USUAL) -> list[SymptomKind]:  # type: ignore[no-untyped-def]
    return [symptom.kind for symptom in look(window, normal).symptoms]


def test_a_healthy_job_has_no_symptom() -> None:
    assert kinds(make_window()) == []


def test_a_pause_with_nothing_in_flight_is_nobodys_fault() -> None:
    assert kinds(make_window(paused=True, stalled_s=30)) == []


def test_a_stall_shorter_than_delta_is_not_reported() -> None:
    assert kinds(make_window(frozen=3, stalled_s=1.5)) == []


def test_while_no_normal_is_known_the_papers_ten_seconds_hold() -> None:
    assert kinds(make_window(frozen=3, stalled_s=9), Normal()) == []
    assert kinds(make_window(frozen=3, stalled_s=11), Normal()) == [SymptomKind.FAILURE]


def test_ops_inside_the_node_are_never_in_progress_or_completed() -> None:
    window = make_window(4, tp=4, pp=1, ranks_per_node=4, stalled_s=30, paused=True)
    assert (window.rows("op")["flags"] & OP_NO_NETWORK).any()
    assert kinds(window) == []


def test_an_op_that_still_moves_data_is_slow_not_stuck() -> None:
    window = make_window(nic_down=3)
    flow = window.rows("flow").copy()
    flow["stuck_ns"] = 10_000_000
    assert kinds(replace(window, tables={**window.tables, "flow": flow})) == []


def test_when_every_node_is_silent_nobody_is() -> None:
    assert SymptomKind.SILENCE not in kinds(make_window(silent=range(4)))


def test_a_node_that_drains_its_spool_is_late_not_silent() -> None:
    assert SymptomKind.SILENCE not in kinds(make_window(catching_up=[2]))


def test_nothing_is_learnt_from_nodes_whose_completions_have_not_all_arrived() -> None:
    nothing = look(make_window(catching_up=range(4))).normal
    assert replace(nothing, looked_ns=0) == Normal()
    learnt, of_three_nodes = look(make_window()).normal, look(make_window(catching_up=[1])).normal
    assert 0 < of_three_nodes.count() < learnt.count()


@pytest.mark.parametrize("rank", [0, 5])
def test_a_rank_that_writes_a_checkpoint_is_late_not_stuck(rank: int) -> None:
    seen = look(make_window(stuck_before=rank, io_bytes_per_s={rank: 5_000_000}), USUAL)
    assert seen.symptoms == ()
    assert f"rank {rank}" in seen.held


def test_node_mates_of_which_nothing_is_seen_may_wait_for_the_checkpoint_too() -> None:
    """Rank 4's part of the tree lies inside the node of rank 0: its group seems to wait for nobody."""
    layout, physics = (
        Layout(4, 2, 4, 1, 8),
        replace(TESTBED, dp_reduce="tree", tree_from=4, ahead=12, n_buckets=1, n_channels=1),
    )
    window = window_after("checkpoint", layout, 0, 10.0, at_s=6.0, seconds=11.0, physics=physics)
    state = state_of(window, DEFAULT)
    assert any(sink.tied and 0 not in state.ranks.names(np.array(sink.ranks)) for sink in sinks(state))
    seen = look(window, USUAL)
    assert seen.symptoms == ()
    assert "rank 0, which moves" in seen.held
    process = window.rows("process").copy()
    process["io_bytes"][process["rank"] == 0] = 0
    assert kinds(replace(window, tables={**window.tables, "process": process})) == [SymptomKind.FAILURE]


def test_a_rank_whose_ring_goes_on_inside_its_node_may_wait_for_mates_that_wait_for_the_checkpoint() -> None:
    """Rank 41 has input and does not take it: it passes on to rank 43, which waits for its own mate, and that for rank 0."""
    layout = Layout(tp=2, pp=1, dp=32, ranks_per_node=8)
    physics = Physics(
        n_channels=1, n_microbatches=2, n_layers=1, n_buckets=2, forward_ms=47.7, backward_ms=95.5, optimizer_ms=8.0,
        step_gap_ms=3.0, tp_kib=32768, dp_kib=1212592, ahead=12, dp_reduce="ring",
    )  # fmt: skip
    window = window_after("checkpoint", layout, 0, 10.0, at_s=6.0, seconds=11.0, physics=physics)
    state = state_of(window, DEFAULT)
    ends = {state.ranks.names(np.array(sink.ranks)) for sink in sinks(state)}
    assert (0,) in ends and len(ends) > 1
    seen = look(window, USUAL)
    assert seen.symptoms == () and "rank 0, which moves" in seen.held
    process = window.rows("process").copy()
    process["io_bytes"][process["rank"] == 0] = 0
    assert kinds(replace(window, tables={**window.tables, "process": process})) == [SymptomKind.FAILURE]


def test_news_that_a_stall_is_over_reaches_the_server_from_one_node_first() -> None:
    """Node 2 reports that its ranks went on; what the other nodes said last is older."""
    window = make_window(frozen=3)
    op, flow = window.rows("op").copy(), window.rows("flow").copy()
    last = op["done_ns"] == op["done_ns"][op["rank"] == 4].max()
    op["done_ns"][last & (op["rank"] == 4)] = window.end_ns - 10_000_000
    seen = look(replace(window, tables={**window.tables, "op": op, "flow": flow[flow["rank"] != 4]}), USUAL)
    assert seen.symptoms == ()
    assert "rank 4" in seen.held.lower()


def test_another_ranks_io_excuses_nobody() -> None:
    assert kinds(make_window(stuck_before=5, io_bytes_per_s={4: 5_000_000})) == [SymptomKind.FAILURE]


def test_a_frozen_rank_is_not_excused_by_io() -> None:
    assert kinds(make_window(frozen=5, io_bytes_per_s={5: 5_000_000})) == [SymptomKind.FAILURE]


@pytest.mark.parametrize(("seconds_ago", "is_held"), [(range(12), True), (range(5, 12), False), ((), False)])
def test_who_waits_for_a_rank_that_goes_on_all_the_while_holds_up_nobody(
    seconds_ago: Sequence[int], is_held: bool
) -> None:
    """As one that evaluates waits for the next weights. seconds_ago: when rank 3 completed ops of another communicator."""
    window = make_window(stuck_before=3)
    ops = window.rows("op")
    more = np.repeat(ops[ops["rank"] == 3][:1], len(seconds_ago))
    more["comm_id"], more["op"] = 77, np.arange(len(more))
    more["done_ns"] = window.end_ns - np.array(seconds_ago, np.int64) * SECOND_NS - SECOND_NS // 10
    more["enqueued_ns"] = more["done_ns"] - SECOND_NS // 100
    seen = look(replace(window, tables={**window.tables, "op": np.concatenate([ops, more])}), USUAL)
    assert ([one.kind for one in seen.symptoms] == []) == is_held
    assert is_held == ("those they wait for, rank 3, complete ops all the while" in seen.held)


@pytest.mark.parametrize("fault", ["nic_down", "frozen", "stuck_before", "proxy_asleep", "gpu_hung"])
def test_a_stalled_job_is_a_failure(fault: str) -> None:
    (symptom,) = look(make_window(**{fault: 3}), USUAL).symptoms
    assert symptom.kind is SymptomKind.FAILURE
    assert symptom.comm_id == 0  # the key of the incident must not change when another communicator is seen first
    assert symptom.numbers["delta_s"] == 2.0
    assert symptom.at_ns < symptom.seen_ns


def test_one_missing_rank_keeps_the_others_in_an_op() -> None:
    seen = look(make_window(stuck_before=3), USUAL)
    missing = next(one for one in seen.watched if one.rank == 3)
    assert (missing.n_in_progress, missing.stalled_ns) == (0, 0)
    assert 3 not in seen.symptoms[0].ranks
    assert max(one.stalled_ns for one in seen.watched) > 10 * SECOND_NS


@pytest.mark.parametrize(("seconds", "is_told"), [(9.9, False), (15, False), (19.9, False), (20, True), (600, True)])
def test_a_silent_node_with_whose_ranks_the_job_goes_on_is_a_symptom_after_twice_the_time(
    seconds: float, is_told: bool
) -> None:
    found = [
        s for s in look(lagging(make_window(silent=[1]), (1, seconds)), USUAL).symptoms if s.kind is SymptomKind.SILENCE
    ]
    assert [symptom.ranks for symptom in found] == ([(2, 3)] if is_told else [])
    assert all("node1" in symptom.sentence for symptom in found)


def test_a_silent_node_that_the_job_stands_without_is_a_symptom_at_once() -> None:
    window = lagging(make_window(frozen=3, silent=[1]), (1, 10.5))
    assert SymptomKind.SILENCE in [symptom.kind for symptom in look(window, USUAL).symptoms]


@pytest.mark.parametrize(("heard_s", "n_symptoms"), [(0, 0), (29, 0), (31, 1)])
def test_after_an_outage_of_ours_who_has_not_returned_yet_is_not_silent(heard_s: int, n_symptoms: int) -> None:
    window = lagging(make_window(silent=[1]), (1, 21))
    heard = replace(window, heard_since_ns=window.now_ns - heard_s * SECOND_NS)
    assert len([s for s in look(heard, USUAL).symptoms if s.kind is SymptomKind.SILENCE]) == n_symptoms


@pytest.mark.parametrize(("heard_s", "is_held"), [(2, True), (31, False)])
def test_after_an_outage_of_ours_a_stall_waits_for_the_nodes_that_are_still_to_return(
    heard_s: int, is_held: bool
) -> None:
    window = make_window(frozen=3, silent=[1])
    seen = look(replace(window, heard_since_ns=window.now_ns - heard_s * SECOND_NS), USUAL)
    assert (SymptomKind.FAILURE not in [symptom.kind for symptom in seen.symptoms]) == is_held
    assert ("still to return: node1." in seen.held) == is_held


def test_when_all_nodes_have_returned_a_stall_is_reported_at_once() -> None:
    window = make_window(frozen=3)
    seen = look(replace(window, heard_since_ns=window.now_ns), USUAL)
    assert [symptom.kind for symptom in seen.symptoms] == [SymptomKind.FAILURE]


def test_a_process_that_is_gone_while_others_wait_is_silence_too() -> None:
    seen = look(make_window(killed=6), USUAL)
    assert [symptom.kind for symptom in seen.symptoms] == [SymptomKind.FAILURE, SymptomKind.SILENCE]
    assert seen.symptoms[1].ranks == (6,)


def test_a_process_that_ended_after_its_last_op_is_no_symptom() -> None:
    window = make_window(paused=True, stalled_s=30)
    process = window.rows("process").copy()
    process["alive"], process["state"] = np.where(process["rank"] == 6, 0, 1), ord("X")
    assert kinds(replace(window, tables={**window.tables, "process": process})) == []


@pytest.mark.parametrize("n_killed", [1, 3, 7, 8])
def test_a_job_whose_processes_are_all_gone_has_ended_not_hung(n_killed: int) -> None:
    """After scancel the agents send the frozen rows of dead processes for minutes; some that are killed are a finding."""
    window = make_window(killed=0, stalled_s=30)
    process = window.rows("process").copy()
    is_killed = process["rank"] < n_killed
    process["alive"][is_killed], process["state"][is_killed] = 0, ord("X")
    seen = look(replace(window, tables={**window.tables, "process": process}), USUAL)
    assert bool(seen.symptoms) == (n_killed < 8)
    assert ("ended or was cancelled" in seen.held) == (n_killed == 8)


def test_nodes_whose_processes_have_ended_are_not_silent() -> None:
    """A job that is over on three nodes, while the fourth still reports what a dead rank left behind."""
    window = make_window(killed=3, silent=[0, 2, 3])
    process = window.rows("process").copy()
    process["alive"], process["state"] = 0, ord("X")
    assert SymptomKind.SILENCE not in kinds(replace(window, tables={**window.tables, "process": process}))


def test_delta_follows_the_job_between_floor_and_the_papers_value() -> None:
    assert delta_ns(Normal(), DEFAULT) == 10 * SECOND_NS
    assert delta_ns(Normal(intervals={ALL: {100: 10}}), DEFAULT) == 10 * SECOND_NS  # too few to be a normal
    assert delta_ns(Normal(intervals={ALL: {100: 1000}}), DEFAULT) == 2 * SECOND_NS
    assert 4 * SECOND_NS < delta_ns(Normal(intervals={ALL: {115: 1000}}), DEFAULT) < 7 * SECOND_NS
    assert delta_ns(Normal(intervals={ALL: {140: 1000}}), DEFAULT) == 10 * SECOND_NS


def test_the_same_look_twice_is_the_same() -> None:
    window = make_window(nic_down=2)
    assert look(window, USUAL) == look(window, USUAL)


def test_a_pace_that_crept_is_said_to_be_so_many_times_that_of_the_start() -> None:
    window, ms = make_window(), SECOND_NS // 1000
    recent = tuple((window.end_ns + at * 600 * ms, 600 * ms) for at in range(20))
    pace = Pace(recent[-1][0], 20, (600 * ms,) * USUAL_KEPT, recent, recent[0][0], window.end_ns, anchor_ns=500 * ms)
    (symptom,) = look(window, replace(USUAL, pace=pace)).symptoms
    assert symptom.kind is SymptomKind.STRAGGLER
    assert "600 ms instead of 500 ms, 1.20 times as long as at the start of the job" in symptom.sentence
    assert symptom.numbers == {"iteration_usual_s": 0.5, "iteration_s": 0.6, CREPT: 20.0}
    assert symptom.crept_times == pytest.approx(1.2)
    assert not look(window, replace(USUAL, pace=replace(pace, anchor_ns=600 * ms))).symptoms
