"""What GPUs say of their kernels, as the plugin counts it: who is inside one, who was given one and has not begun it."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from nccl_instrument.agent.processes.segment import Segment
from nccl_instrument.tables import OP_NO_NETWORK
from tests.nccl_instrument.plugin.driver import ABIS, WITH_STEPS, Built, Driver, counted, records

Drive = Callable[..., Driver]
KERNEL_CH = 64
ALL = {"DIOGENES_PROFILER_MASK": str(30 | KERNEL_CH)}
CROWDED = {"DIOGENES_KERNELS": "1", "LOCAL_WORLD_SIZE": "1000000"}


def told(segment: Segment) -> tuple[int, int, int]:
    """(ops enqueued, of which the GPU has begun a kernel, channels now inside one)."""
    (row,) = segment.comms()
    return int(row["n_enqueued"]), int(row["kernels_begun"]), int(row["kernels_open"])


@pytest.mark.parametrize("abi", ABIS)
def test_the_row_tells_how_many_ops_the_gpu_has_begun_and_whether_it_is_inside_one(drive: Drive, abi: int) -> None:
    driver = drive(abi, "kernels", **ALL)
    driver.until("launched")
    segment = driver.segment()
    assert told(segment) == (4, 0, 0)
    driver.until("inside")
    assert told(segment) == (4, 1, 2)
    driver.until("outside")
    assert told(segment) == (4, 2, 0)
    (row,) = segment.comms()
    assert row["last_kernel_ns"] > row["last_enqueued_ns"] > 0
    driver.until("stands")
    assert told(segment) == (4, 3, 1)
    assert counted(segment) == ({} if abi == 3 else {"ops_no_network": 4})  # v3 does not say how many nodes there are
    assert (records(segment)["flags"] & OP_NO_NETWORK).all()


@pytest.mark.parametrize("abi", ABIS)
def test_a_kernel_that_ends_after_its_communicator_changes_nothing(drive: Drive, abi: int) -> None:
    driver = drive(abi, "kernels", **ALL)
    driver.until("stands")
    segment = driver.segment()
    before = told(segment)
    driver.until("finalized")
    assert told(segment) == before and counted(segment)["stale_handles"] == 1


@pytest.mark.parametrize("abi", ABIS)
def test_kernels_of_ops_whose_rows_are_others_by_then_are_counted_and_are_nobodys(drive: Drive, abi: int) -> None:
    driver = drive(abi, "late_kernels", **ALL)
    driver.until("done")
    segment = driver.segment()
    assert told(segment) == (6000, 0, 0)
    seen = counted(segment)
    assert seen.pop("ops_no_network") > 5000 and seen == {"orphan_kernels": 3}


@pytest.mark.parametrize("abi", WITH_STEPS)
def test_an_op_over_the_network_that_hangs_leaves_its_kernel_open(drive: Drive, abi: int) -> None:
    driver = drive(abi, "hang", **ALL)
    driver.until("moved")
    comms = driver.segment().comms()
    assert (comms["kernels_begun"] == 3).all() and (comms["kernels_open"] == 2).all()


@pytest.mark.parametrize("abi", ABIS)
def test_nobody_is_asked_for_kernels_unless_the_setting_says_so(drive: Drive, abi: int) -> None:
    driver = drive(abi, "normal")
    assert not driver.until("moved")["mask"] & KERNEL_CH
    comms = driver.segment().comms()
    assert not comms["kernels_begun"].any() and counted(driver.segment()) == {}


@pytest.mark.parametrize("abi", ABIS)
def test_the_setting_asks_where_nccl_has_room_for_its_queues_and_does_not_lose_jobs(drive: Drive, abi: int) -> None:
    driver = drive(abi, "kernels", DIOGENES_KERNELS="1", LOCAL_WORLD_SIZE="1")
    room = os.statvfs("/dev/shm")
    is_granted = room.f_frsize * room.f_bavail >= 128 << 20 and abi != 4
    assert bool(driver.until("launched")["mask"] & KERNEL_CH) is is_granted
    assert counted(driver.segment()).get("kernels_refused", 0) == (not is_granted)


@pytest.mark.parametrize("abi", ABIS)
def test_where_nccl_might_crash_it_is_not_asked_and_that_is_said(drive: Drive, abi: int) -> None:
    driver = drive(abi, "kernels", **CROWDED)
    assert not driver.until("launched")["mask"] & KERNEL_CH
    assert counted(driver.segment())["kernels_refused"] == 1
    said = driver.finish()
    assert "no kernels: " in said or abi == 3  # interface v3 has no log


@pytest.mark.sanitizer
@pytest.mark.parametrize("abi", [3, 7])
def test_threads_that_report_kernels_side_by_side_do_not_race(drive: Drive, plugin_tsan: Built, abi: int) -> None:
    assert "ThreadSanitizer" not in drive(abi, "hang", plugin_tsan, DIOGENES_SEGMENT_BYTES=str(2 << 20), **ALL).finish()
