"""Every way NCCL is known to surprise a profiler plugin: survived, and counted exactly."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from nccl_instrument.tables import OP_FOREIGN, OP_GRAPH, OP_HAS_FLOWS, OP_NO_NETWORK, OP_P2P, OP_STOPS_LOST
from tests.nccl_instrument.plugin.driver import ABIS, WITH_STEPS, Driver, counted, records

Drive = Callable[..., Driver]
OP_REOPENED = 64


@pytest.mark.parametrize("abi", ABIS)
def test_null_handles_and_arguments_are_counted(drive: Drive, abi: int) -> None:
    driver = drive(abi, "nulls")
    driver.until("done")
    assert counted(driver.segment()) == {"null_handles": 5, "null_args": 3}


@pytest.mark.parametrize("abi", ABIS)
def test_unknown_types_states_and_steps_are_counted(drive: Drive, abi: int) -> None:
    driver = drive(abi, "unknown")
    driver.until("done")
    expected = {"unknown_types": 2, "ignored_types": 3, "unknown_states": 3, "bad_steps": 2}
    if abi == 3:  # step starts are ignored there, and no step state is possible
        expected = {"unknown_types": 2, "ignored_types": 5, "unknown_states": 2}
    assert counted(driver.segment()) == expected


@pytest.mark.parametrize("abi", ABIS)
def test_stale_and_made_up_handles_touch_nothing(drive: Drive, abi: int) -> None:
    driver = drive(abi, "stale")
    driver.until("done")
    segment = driver.segment()
    assert counted(segment) == {"repeated_stops": 1, "stale_handles": 2, "bad_handles": 3}
    assert len(records(segment)) == 1


@pytest.mark.parametrize("abi", ABIS)
def test_unknown_and_finalized_contexts_get_no_handle(drive: Drive, abi: int) -> None:
    driver = drive(abi, "contexts")
    driver.until("done")
    assert counted(driver.segment()) == {"bad_contexts": 6}


@pytest.mark.parametrize("abi", ABIS)
def test_callbacks_after_finalize_change_no_row(drive: Drive, abi: int) -> None:
    driver = drive(abi, "after_finalize")
    driver.until("finalized")
    segment = driver.segment()
    before = segment.comms().tobytes(), records(segment).tobytes()
    driver.until("done")
    assert (segment.comms().tobytes(), records(segment).tobytes()) == before
    assert counted(segment)["bad_contexts"] == 1 and counted(segment)["stale_handles"] > 0


@pytest.mark.parametrize("abi", ABIS)
def test_an_op_of_another_process_is_traced_by_its_origin(drive: Drive, abi: int) -> None:
    driver = drive(abi, "pxn")
    driver.until("moving")
    segment = driver.segment()
    (flow,) = segment.live_flows()
    assert flow["origin_pid"] == driver.process.pid + 1 and flow["flags"] == OP_FOREIGN
    assert (flow["op_handle"], flow["origin_context"]) == (0x7FFF00005678, 0x7FFF00001234)
    assert flow["comm_id"] == 0 and flow["counters"][0] > 0
    driver.until("done")
    assert counted(segment) == {"foreign_flows": 1} and len(segment.live_flows()) == 0


@pytest.mark.parametrize("abi", ABIS)
def test_a_flow_without_an_op_is_counted(drive: Drive, abi: int) -> None:
    driver = drive(abi, "orphan")
    driver.until("done")
    assert counted(driver.segment()) == {"orphan_flows": 1}


@pytest.mark.parametrize("abi", WITH_STEPS)
def test_lost_step_stops_neither_hold_up_the_op_nor_go_uncounted(drive: Drive, abi: int) -> None:
    driver = drive(abi, "lost_stops")
    said = driver.until("moved")
    segment = driver.segment()
    assert counted(segment) == {"lost_stops": said["lost_stops"]} and said["lost_stops"] == 280
    assert len(records(segment)) == said["ops"] == segment.counters()["ops_done"]


@pytest.mark.parametrize("abi", ABIS)
def test_inside_one_node_an_op_never_counts_as_done(drive: Drive, abi: int) -> None:
    driver = drive(abi, "inside_node")
    driver.until("done")
    segment = driver.segment()
    if abi == 3:  # does not say how many nodes there are: open until something shows that they are over
        assert len(segment.live_ops()) == 5
        return
    rows = records(segment)
    assert list(rows["op"]) == [1, 2, 3, 4, 5] and (rows["flags"] == OP_NO_NETWORK).all()
    assert (rows["done_ns"] == 0).all() and list(segment.comms()["n_done"]) == [0]
    assert list(segment.comms()["transport"]) == [3] and counted(segment) == {"ops_no_network": 5}


@pytest.mark.parametrize("abi", WITH_STEPS)
def test_network_flows_of_a_one_node_communicator_reopen_the_op(drive: Drive, abi: int) -> None:
    driver = drive(abi, "reopened")
    driver.until("closed")
    segment = driver.segment()
    assert len(segment.live_ops()) == 0
    driver.until("done")
    closed, done = records(segment)
    assert closed["op"] == done["op"] == 1 and closed["done_ns"] == 0 and done["done_ns"] > 0
    assert done["flags"] == OP_HAS_FLOWS | OP_REOPENED and list(segment.comms()["n_no_network"]) == [0]


@pytest.mark.parametrize("abi", WITH_STEPS)
def test_an_op_thought_complete_too_early_counts_once(drive: Drive, abi: int) -> None:
    driver = drive(abi, "reopened_done")
    driver.until("thought_complete")
    segment = driver.segment()
    assert list(segment.comms()["n_done"]) == [1]
    driver.until("done")
    rows = records(segment)
    assert list(rows["op"]) == [1, 1, 2] and list(rows["flags"] & OP_REOPENED) == [0, OP_REOPENED, 0]
    assert rows["done_ns"][1] > rows["done_ns"][0] > 0
    assert list(segment.comms()["n_done"]) == [2]


@pytest.mark.parametrize("abi", ABIS)
def test_ops_without_flows_are_closed_when_a_later_op_completes(drive: Drive, abi: int) -> None:
    driver = drive(abi, "mixed")
    driver.until("open")
    segment = driver.segment()
    ops = segment.live_ops()
    order = ops["ordinal"].argsort()
    numbers = [(int(op["peer"]), int(op["func"]), int(op["op"])) for op in ops[order]]
    assert numbers == [(2, 7, 1), (2, 7, 2), (2, 7, 3), (2, 8, 1), (3, 7, 1)]
    driver.until("done")
    assert len(segment.live_ops()) == 0
    local = records(segment)[records(segment)["done_ns"] == 0]
    assert len(local) == 5 and (local["flags"] == OP_NO_NETWORK | OP_P2P).all()


@pytest.mark.parametrize("abi", ABIS)
def test_proxy_ops_that_never_report_do_not_keep_an_op_open(drive: Drive, abi: int) -> None:
    driver = drive(abi, "silent")
    driver.until("open")
    segment = driver.segment()
    assert len(segment.live_ops()) == 1
    driver.until("done")
    rows = records(segment)
    assert list(rows["op"]) == [1, 2] and (rows["done_ns"] > 0).all()
    assert len(segment.live_ops()) == len(segment.live_flows()) == 0


@pytest.mark.parametrize("abi", ABIS)
def test_an_aborted_op_is_closed_as_lost(drive: Drive, abi: int) -> None:
    driver = drive(abi, "abandoned")
    driver.until("done")
    segment = driver.segment()
    done, lost = records(segment)
    assert done["flags"] == OP_HAS_FLOWS and lost["flags"] == OP_HAS_FLOWS | OP_STOPS_LOST
    assert counted(segment)["ops_lost"] == 1 and counted(segment)["flows_lost"] == 1


@pytest.mark.parametrize("abi", ABIS)
def test_ops_of_a_captured_graph_are_marked(drive: Drive, abi: int) -> None:
    driver = drive(abi, "graph")
    driver.until("done")
    ops = driver.segment().live_ops()
    is_graph = [bool(op["flags"] & OP_GRAPH) for op in ops[ops["ordinal"].argsort()]]
    assert is_graph == [False, abi >= 5, True, False]
    assert sorted(ops["op"]) == [1, 2, 3, 4]


@pytest.mark.parametrize("abi", WITH_STEPS)
def test_the_queue_pair_of_a_flow_is_kept_when_the_transport_tells_it(drive: Drive, abi: int) -> None:
    driver = drive(abi, "queue_pair", DIOGENES_PROFILER_MASK="158")
    assert driver.until("done")["mask"] == 158
    assert list(driver.segment().live_flows()["qpn"]) == [4711]


@pytest.mark.parametrize("abi", ABIS)
def test_many_communicators_may_join_run_and_leave_at_once(drive: Drive, abi: int) -> None:
    driver = drive(abi, "concurrent")
    driver.until("done")
    segment = driver.segment()
    rows = records(segment)
    assert len(driver.files()) == 1 and len(rows) == 640 and counted(segment) == {}
    assert (segment.counters()["comms_joined"], segment.counters()["comms_finalized"]) == (64, 64)
    assert all(sorted(rows["op"][rows["comm"] == comm]) == list(range(1, 11)) for comm in range(64))
