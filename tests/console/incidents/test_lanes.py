"""Flow lanes: the counters of the flows that matter, over time."""

from __future__ import annotations

import dataclasses

import numpy as np

from console.incidents.pictures.evidence import interesting
from console.incidents.pictures.lanes import LANES_MAX, TICKS_MAX, Lanes, make_lanes
from ingest.window import Window
from rca.diagnose import diagnose
from rca.findings import Subject, Symptom, SymptomKind, WaitEdge
from tests.console.incidents.making import make_diagnosis
from tests.windows import make_window

SECOND = 10**9


def lanes_of(window: Window, *ranks: int) -> Lanes:
    return make_lanes(window, ranks, window.start_ns + SECOND, window.start_ns + 3 * SECOND)


def test_lanes_are_the_flows_of_the_ranks_asked_for_in_their_order() -> None:
    lanes = lanes_of(make_window(nic_down=3), 3, 1).lanes
    assert list(dict.fromkeys(lane.rank for lane in lanes)) == [3, 1]
    assert len({lane.id for lane in lanes}) == len(lanes)


def test_a_lane_tells_the_counters_at_every_tick() -> None:
    window = make_window(nic_down=3)
    lane = lanes_of(window, 3).lanes[0]
    flow = window.rows("flow")
    mine = flow[
        (flow["rank"] == 3)
        & (flow["comm_id"] == np.uint64(int(lane.comm_id, 16)))
        & (flow["channel"] == lane.channel)
        & (flow["direction"] == ("send", "receive").index(lane.direction))
    ]
    mine = mine[np.argsort(mine["tick_ns"])]
    mine = mine[mine["tick_ns"] >= lane.t_ns[0]]
    assert lane.t_ns == sorted(lane.t_ns)
    assert set(zip(lane.t_ns, lane.posted, lane.done, strict=True)) <= set(
        zip(mine["tick_ns"].tolist(), mine["counters"][:, 0].tolist(), mine["counters"][:, 3].tolist(), strict=True)
    )
    assert 0 <= lane.done[-1] <= lane.transmitted[-1] <= lane.ready[-1] <= lane.posted[-1] <= lane.total_chunks


def test_a_lane_with_several_ops_in_progress_shows_the_oldest_and_keeps_its_history() -> None:
    window = make_window(nic_down=3)
    flow = window.rows("flow")
    next_ops = flow.copy()
    next_ops["op"] += 1
    next_ops["counters"] = 0
    crowded = dataclasses.replace(window, tables={**window.tables, "flow": np.concatenate([next_ops, flow])})
    plain, both = lanes_of(window, 3).lanes, lanes_of(crowded, 3).lanes
    assert [(lane.id, lane.t_ns, lane.ops, lane.done) for lane in both] == [
        (lane.id, lane.t_ns, lane.ops, lane.done) for lane in plain
    ]
    assert all(len(set(lane.t_ns)) == len(lane.t_ns) for lane in both)


def test_what_is_stuck_in_mid_op_comes_before_what_has_not_begun() -> None:
    lanes = lanes_of(make_window(nic_down=3), 3).lanes
    order = [(lane.posted[-1] == 0, -lane.stuck_ms[-1]) for lane in lanes]
    assert order == sorted(order)
    assert not order[0][0]


def test_peers_are_named_by_their_global_rank() -> None:
    window = make_window(nic_down=3)
    for lane in lanes_of(window, 3).lanes:
        members = window.members[window.members["comm_id"] == np.uint64(int(lane.comm_id, 16))]
        assert lane.peer_rank in members["rank"]
        assert lane.peer_rank != 3


def test_too_many_lanes_are_counted_not_hidden() -> None:
    window = make_window(nic_down=3)
    flow = window.rows("flow")
    mine = np.repeat(flow[flow["rank"] == 3][:1], LANES_MAX + 5)
    mine["channel"] = np.arange(len(mine))
    many = dataclasses.replace(window, tables={**window.tables, "flow": mine})
    lanes = lanes_of(many, 3)
    assert (len(lanes.lanes), lanes.omitted) == (LANES_MAX, 5)


def test_a_long_lane_keeps_its_newest_ticks() -> None:
    window = make_window(nic_down=3)
    flow = window.rows("flow")
    long = np.repeat(flow[flow["rank"] == 3][:1], TICKS_MAX + 7)
    long["tick_ns"] += np.arange(len(long))
    lane = lanes_of(dataclasses.replace(window, tables={"flow": long}), 3).lanes[0]
    assert (len(lane.t_ns), lane.t_ns[-1]) == (TICKS_MAX, int(long["tick_ns"][-1]))


def test_ops_inside_the_node_are_listed_as_not_visible() -> None:
    window = make_window(nic_down=3)
    inside = window.members[window.members["n_nodes"] == 1]
    found = {(one.rank, one.comm_name) for one in lanes_of(window, 3).not_visible}
    assert found == {(int(one["rank"]), str(one["name"])) for one in inside if one["rank"] == 3}


def test_ranks_without_flows_have_no_lanes() -> None:
    lanes = lanes_of(make_window(), 99)
    assert (lanes.lanes, lanes.omitted, lanes.not_visible) == ([], 0, [])


def test_the_flows_of_the_extent_are_those_of_the_lanes_though_several_ops_are_in_progress_on_each() -> None:
    window = make_window(nic_down=3)
    flow = window.rows("flow")
    queued = flow.copy()
    queued["op"] += 1
    queued["counters"] = 0
    window = dataclasses.replace(window, tables={**window.tables, "flow": np.concatenate([flow, queued])})
    symptom = Symptom(SymptomKind.FAILURE, "job", 1, window.end_ns - 10**10, window.end_ns, 0, (), "No op completed.")
    (flows,) = [part for part in diagnose(window, symptom).findings[0].cover if part.kind == "flow in progress"]
    assert (flows.n, flows.of) == (len(lanes_of(window, 3).lanes),) * 2


def test_those_who_wait_are_shown_by_turns_of_their_communicators() -> None:
    """A node's own ranks, which the network does not see, would else be all there is to see."""
    inside = [WaitEdge(rank, 3, 0xA, 7, "waits") for rank in (0, 1, 2, 4, 5, 6, 7)]
    across = [WaitEdge(rank, 3, 0xB, 7, "waits") for rank in (11, 19)]
    path = (*inside, *across, WaitEdge(8, 11, 0xC, 7, "waits"))
    symptom = Symptom(SymptomKind.FAILURE, "job", 1, 0, 10**10, 0xA, (0, 1), "No op completed.")
    found = dataclasses.replace(make_diagnosis(symptom, (3,)), path=path)
    assert interesting(found, attempt_id=0) == [3, 0, 11, 1, 19, 2, 4, 5, 6]


def test_of_a_tie_the_suspects_are_shown_before_those_who_wait_for_any_of_them() -> None:
    path = tuple(WaitEdge(waiter, target, 0xA, 7, "waits") for waiter, target in ((0, 4), (1, 2), (6, 0)))
    symptom = Symptom(SymptomKind.FAILURE, "job", 1, 0, 10**10, 0xA, (0, 1), "No op completed.")
    found = make_diagnosis(symptom, (3,))
    tied = tuple(Subject("rank", f"rank {rank}", (rank,)) for rank in (4, 2))
    best = dataclasses.replace(found.findings[0], subject=Subject("link", "2–4", (2, 4)), culprits=(), tied=tied)
    found = dataclasses.replace(found, findings=(best,), path=path, victims=(0, 1, 6))
    assert interesting(found, attempt_id=0) == [2, 4, 0, 1, 6]
