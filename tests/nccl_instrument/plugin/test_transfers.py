"""Every chunk a flow sent is one whole record: what it was of, how large, when it was posted and done."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from nccl_instrument.wire import Rows
from tests.nccl_instrument.plugin.driver import ABIS, Driver, records

Drive = Callable[..., Driver]
N_STEPS, N_OPS, N_CHANNELS = 20, 20, 2


def transfers(driver: Driver) -> Rows:
    ring = driver.segment().transfer_ring(0)
    assert ring is not None
    rows, lost = ring.drain()
    assert lost == 0
    return rows


@pytest.mark.parametrize("abi", ABIS)
def test_every_chunk_sent_leaves_one_record_with_its_size(drive: Drive, abi: int) -> None:
    driver = drive(abi, "normal")
    driver.until("moved")
    rows = transfers(driver)
    keys = {name: rows[name].tolist() for name in ("comm_id", "op", "channel", "step")}
    seen = sorted(zip(*keys.values(), strict=True))
    assert seen == [
        (comm_id, op, channel, step)
        for comm_id in (0xABC000, 0xABC001)
        for op in range(1, N_OPS + 1)
        for channel in range(N_CHANNELS)
        for step in range(N_STEPS)
    ]
    assert (rows["bytes"] == 1000 + rows["step"] % 7).all()
    assert not rows["is_p2p"].any()


@pytest.mark.parametrize("abi", ABIS)
def test_chunks_of_a_flow_are_posted_and_done_in_order_within_their_op(drive: Drive, abi: int) -> None:
    driver = drive(abi, "paced")
    driver.until("moved")
    rows, ops = transfers(driver), records(driver.segment())
    assert len(rows)
    assert (rows["posted_ns"] <= rows["done_ns"]).all()
    for op in ops:
        for channel in range(N_CHANNELS):
            mine = rows[(rows["op"] == op["op"]) & (rows["comm_id"] == op["comm_id"]) & (rows["channel"] == channel)]
            mine = mine[np.argsort(mine["step"])]
            assert (np.diff(mine["posted_ns"]) >= 0).all() and (np.diff(mine["done_ns"]) >= 0).all()
            assert mine["posted_ns"][0] >= op["first_transfer_ns"] and mine["done_ns"][-1] <= op["last_transfer_ns"]


@pytest.mark.parametrize("abi", ABIS)
def test_of_an_op_that_halts_only_what_was_done_is_there(drive: Drive, abi: int) -> None:
    driver = drive(abi, "hang")
    driver.until("moved")
    rows = transfers(driver)
    last = rows[rows["op"] == rows["op"].max()]
    assert last["step"].max() == 3  # four of its ten posted chunks came through (driver/rank.c)


@pytest.mark.parametrize("abi", ABIS)
def test_sends_and_receives_are_marked_and_numbered_as_such(drive: Drive, abi: int) -> None:
    driver = drive(abi, "p2p")
    driver.until("moved")
    rows = transfers(driver)
    assert rows["is_p2p"].all() and set(rows["op"].tolist()) == {1, 2, 3, 4, 5}


@pytest.mark.parametrize("abi", ABIS[1:])
def test_stops_that_were_lost_lose_no_bytes(drive: Drive, abi: int) -> None:
    """Only receives lose theirs (NCCL 2.24 to 2.26): what was sent is complete."""
    driver = drive(abi, "lost_stops")
    driver.until("moved")
    rows = transfers(driver)
    for op in range(1, 11):
        of_op = rows[(rows["op"] == op) & (rows["channel"] == 0) & (rows["comm_id"] == 0xABC000)]
        assert of_op["bytes"].sum() == sum(1000 + step % 7 for step in range(N_STEPS))


def test_a_segment_of_the_least_size_has_room_for_some(drive: Drive) -> None:
    driver = drive(5, "normal", DIOGENES_SEGMENT_BYTES=str(2 << 20))
    driver.until("moved")
    ring = driver.segment().transfer_ring(0)
    assert ring is not None and ring.n_rows >= 1024
