"""What the plugin traces of ops that run, hang and end: against what the driver says it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nccl_instrument.agent.processes.segment_layout import ROW_DONE
from nccl_instrument.tables import ALGOS, DTYPES, FUNCS, OP_HAS_FLOWS, OP_P2P, PROTOS, RECEIVE, SEND
from tests.nccl_instrument.plugin.driver import ABIS, WITH_STEPS, Driver, counted, is_ordered, records

Drive = Callable[..., Driver]


@pytest.mark.parametrize("abi", ABIS)
def test_every_completed_op_leaves_one_whole_record(drive: Drive, abi: int) -> None:
    driver = drive(abi, "normal")
    said = driver.until("moved")
    segment = driver.segment()
    rows = records(segment)
    assert len(rows) == said["ops"] == 40
    for comm_id in (0xABC000, 0xABC001):
        assert sorted(rows["op"][rows["comm_id"] == comm_id]) == list(range(1, 21))
    first = rows[0]
    codes = (FUNCS[first["func"]], DTYPES[first["dtype"]], ALGOS[first["algo"]], PROTOS[first["proto"]])
    assert codes == ("AllReduce", "Bfloat16", "RING", "SIMPLE")
    assert (rows["bytes"] == 2048).all() and (rows["count"] == 1024).all() and (rows["channels"] == 2).all()
    assert (rows["flags"] == OP_HAS_FLOWS).all() and (rows["n_flows"] == 4).all()
    assert (rows["seq"] == rows["op"].astype(np.int64) - 1).all()
    assert (rows["user_tag"] == (4242 if abi == 7 else 0)).all()


@pytest.mark.parametrize("abi", ABIS)
def test_marks_and_waits_of_an_op_fit_its_duration(drive: Drive, abi: int) -> None:
    driver = drive(abi, "normal")
    driver.until("moved")
    rows = records(driver.segment())
    times = ("enqueued_ns", "started_ns", "first_transfer_ns", "last_transfer_ns", "done_ns")
    assert (np.diff(np.stack([rows[name] for name in times]), axis=0) >= 0).all()
    assert (rows["enqueued_ns"] > 0).all()
    lifetimes = (rows["done_ns"] - rows["enqueued_ns"]).astype(np.uint64) * rows["n_flows"]
    for wait in ("gpu_wait_ns", "peer_wait_ns", "net_wait_ns"):
        assert (rows[wait] > 0).all() and (rows[wait] <= lifetimes).all()
        assert (rows[f"receive_{wait}"] > 0).all() and (rows[f"receive_{wait}"] < rows[wait]).all()
    assert (rows["first_ready_ns"] >= rows["started_ns"]).all() and (rows["first_ready_ns"] < rows["done_ns"]).all()
    assert (rows["fastest_done_ns"] >= rows["first_transfer_ns"]).all()
    assert (rows["fastest_done_ns"] <= rows["slowest_ns"]).all()
    assert (rows["slowest_ns"] == rows["last_transfer_ns"]).all()
    assert set(rows["slowest_peer"]) <= {0, 1, 2, 3}


@pytest.mark.parametrize("abi", ABIS)
def test_repeated_calls_are_counted_exactly_and_nothing_else_is(drive: Drive, abi: int) -> None:
    driver = drive(abi, "normal")
    said = driver.until("moved")
    segment = driver.segment()
    counters = segment.counters()
    assert counters["peer_wait_polls"] == said["polls"] > 0
    assert counters["repeated_recv_starts"] == said["repeated_starts"]
    assert records(segment)["n_refused"].sum() == said["polls"]
    assert (counters["ops_enqueued"], counters["ops_done"]) == (said["ops"], said["ops"])
    assert (counters["flows_started"], counters["flows_done"]) == (said["flows"], said["flows"])
    assert counted(segment) == {}
    assert len(segment.live_ops()) == len(segment.live_flows()) == 0


@pytest.mark.parametrize("abi", ABIS)
def test_a_stuck_op_shows_where_each_flow_stands(drive: Drive, abi: int) -> None:
    driver = drive(abi, "hang")
    said = driver.until("moved")
    segment = driver.segment()
    flows, ops = segment.live_flows(), segment.live_ops()
    assert len(flows) == 8 and len(ops) == 2 and segment.torn_rows == 0
    sends, receives = flows[flows["direction"] == SEND], flows[flows["direction"] == RECEIVE]
    assert (sends["counters"] == (10, 7, 6, 4)).all() and (receives["counters"] == (9, 3, 3, 1)).all()
    assert (flows["total_chunks"] == 20).all() and (flows["op"] == 3).all() and (ops["op"] == 3).all()
    sizes = 1000 + np.arange(20) % 7
    assert (sends["bytes"] == sizes[:6].sum()).all() and (receives["bytes"] == sizes[:3].sum()).all()
    assert (flows["func"] == FUNCS.index("AllReduce")).all() and (flows["origin_pid"] == driver.process.pid).all()
    assert (ops["done_ns"] == 0).all() and (ops["started_ns"] > 0).all()
    assert {(int(f["channel"]), int(f["direction"]), int(f["peer"])) for f in flows if f["comm_rank"] == 0} == {
        (0, SEND, 1), (0, RECEIVE, 3), (1, SEND, 3), (1, RECEIVE, 1),
    }  # fmt: skip
    assert said["ops"] == segment.counters()["ops_done"] + 2


@pytest.mark.parametrize("abi", [3, 7])
def test_counters_of_a_moving_flow_only_grow_and_keep_their_order(drive: Drive, abi: int) -> None:
    driver = drive(abi, "paced")
    driver.until("running")
    segment = driver.segment()
    seen: dict[Any, Any] = {}
    looks = 0
    while segment.counters()["ops_done"] < 12:
        looks += 1
        flows = segment.live_flows()
        assert is_ordered(flows["counters"]) and (flows["counters"][:, 0] <= flows["total_chunks"]).all()
        for row in flows:
            key = tuple(int(row[name]) for name in ("comm_id", "op", "channel", "direction"))
            assert (row["counters"] >= seen.get(key, 0)).all()
            seen[key] = row["counters"].copy()
    assert looks > 10 and len(seen) > 20


@pytest.mark.parametrize("abi", WITH_STEPS)
def test_a_communicator_row_says_who_joined_what(drive: Drive, abi: int) -> None:
    driver = drive(abi, "hang", NCCL_NET="IB", DIOGENES_GPU_BUS_ID="0000:1b:00.0", DIOGENES_GPU_UUID="GPU-1")
    driver.until("moved")
    comms = driver.segment().comms()
    assert list(comms["comm_id"]) == [0xABC000, 0xABC001] and list(comms["comm_rank"]) == [0, 1]
    assert list(comms["name"]) == [b"group 0", b"group 1"]
    assert (comms["n_ranks"] == 4).all() and (comms["n_nodes"] == 2).all() and (comms["abi"] == abi).all()
    assert (comms["transport"] == 1).all() and (comms["gpu_bus_id"] == b"0000:1b:00.0").all()
    assert (comms["n_enqueued"] == 3).all() and (comms["n_done"] == 2).all() and (comms["network_seen"] == 1).all()
    assert (comms["last_enqueued_ns"] > comms["joined_ns"]).all() and (comms["last_done_ns"] > 0).all()


def test_interface_v3_learns_its_communicator_from_the_first_op(drive: Drive) -> None:
    driver = drive(3, "hang")
    driver.until("moved")
    comms = driver.segment().comms()
    assert list(comms["comm_id"]) == [0xABC000, 0xABC001] and list(comms["comm_rank"]) == [0, 1]
    assert (comms["n_ranks"] == 0).all() and (comms["name"] == b"dangled").all()


@pytest.mark.parametrize("abi", ABIS)
def test_a_p2p_is_numbered_by_its_peer_and_has_no_nccl_sequence(drive: Drive, abi: int) -> None:
    driver = drive(abi, "p2p")
    driver.until("moved")
    segment = driver.segment()
    rows = records(segment)
    assert list(rows["op"]) == [1, 2, 3, 4, 5] and (rows["seq"] == -1).all() and (rows["peer"] == 1).all()
    assert (rows["flags"] == OP_HAS_FLOWS | OP_P2P).all() and (rows["func"] == FUNCS.index("Send")).all()
    assert list(segment.comms()["n_p2p_done"]) == [5] and list(segment.comms()["n_done"]) == [0]
    assert (rows["bytes"] == 4096).all()
    assert (rows["channels"] == (2 if abi >= 5 else 0)).all()  # v4 may get garbage there


@pytest.mark.parametrize("abi", ABIS)
def test_an_op_is_not_done_before_it_is_launched_though_its_flows_are_through(drive: Drive, abi: int) -> None:
    driver = drive(abi, "early")
    driver.until("through")
    segment = driver.segment()
    assert len(segment.live_ops()) == 1 and len(records(segment)) == 0
    driver.until("done")
    assert len(segment.live_ops()) == 0 and len(records(segment)) == 1


def test_sizes_that_run_on_from_earlier_ops_are_not_counted_again(drive: Drive) -> None:
    driver = drive(3, "running_sizes")
    driver.until("done")
    assert sorted(driver.segment().live_flows()["bytes"]) == [2000, 2000]


@pytest.mark.parametrize("abi", ABIS)
def test_finalize_ends_what_hangs_and_says_so(drive: Drive, abi: int) -> None:
    driver = drive(abi, "hang")
    driver.until("finalized")
    segment = driver.segment()
    assert len(segment.live_ops()) == len(segment.live_flows()) == 0 and segment.is_closed
    assert counted(segment)["ops_lost"] == 2 and counted(segment)["flows_lost"] == 8
    lost = records(segment)[-2:]
    assert (lost["flags"] & 4).all() and (lost["done_ns"] == 0).all()
    assert (segment.comms()["stamp"] & 0xFF == ROW_DONE).all()
