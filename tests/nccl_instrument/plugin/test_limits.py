"""Full tables and full file systems: counted or without tracing, never a failed job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from nccl_instrument.agent.processes.segment import Segment, is_alive
from nccl_instrument.agent.processes.segment_layout import FLOW, HEADER
from nccl_instrument.tables import OP_FOREIGN, OP_HAS_FLOWS, OP_NO_NETWORK, OP_STOPS_LOST
from tests.nccl_instrument.plugin.driver import ABIS, Driver, counted, records

Drive = Callable[..., Driver]
SMALL = str(2 << 20)


def test_communicators_beyond_the_table_are_refused_and_rows_come_free_again(drive: Drive) -> None:
    driver = drive(5, "many_comms")
    driver.until("full")
    segment = driver.segment()
    assert len(segment.comms()) == 256 and counted(segment) == {"comm_table_full": 44, "bad_contexts": 1}
    driver.until("done")
    assert segment.counters()["ops_done"] == 1 and not segment.is_closed


def test_ops_beyond_the_table_are_refused_and_still_numbered(drive: Drive) -> None:
    driver = drive(5, "many_ops")
    driver.until("full")
    segment = driver.segment()
    assert len(segment.live_ops()) == 4096 and counted(segment) == {"op_table_full": 200}
    assert list(segment.comms()["n_enqueued"]) == [4296]


def test_flows_beyond_the_table_get_no_handle(drive: Drive) -> None:
    driver = drive(5, "many_flows", DIOGENES_SEGMENT_BYTES=SMALL)
    driver.until("full")
    segment = driver.segment()
    assert len(segment.live_flows()) == 2048 and counted(segment) == {"flow_table_full": 50}


@pytest.mark.parametrize("abi", ABIS)
def test_an_op_whose_flows_were_refused_is_neither_done_early_nor_inside_the_node(drive: Drive, abi: int) -> None:
    driver = drive(abi, "refused_flows", DIOGENES_SEGMENT_BYTES=SMALL)
    driver.until("half")
    segment = driver.segment()
    assert len(records(segment)) == 0
    driver.until("half_over")
    later, half = records(segment)
    assert (later["op"], half["op"]) == (3, 2) and later["flags"] == OP_HAS_FLOWS
    assert half["flags"] == OP_HAS_FLOWS | OP_STOPS_LOST
    driver.until("done")
    none = records(segment)[records(segment)["op"] == 4]
    assert list(none["flags"]) == [OP_STOPS_LOST] and list(none["done_ns"]) == [0]
    assert list(segment.comms()["n_done"]) == [3] and list(segment.comms()["n_no_network"]) == [0]
    assert counted(segment) == {"flow_table_full": 2, "ops_lost": 1}


def test_flows_of_another_process_give_their_rows_up_once_they_are_old(drive: Drive) -> None:
    driver = drive(5, "many_foreign_flows", DIOGENES_SEGMENT_BYTES=SMALL)
    driver.until("full")
    segment = driver.segment()
    assert counted(segment) == {"foreign_flows": 2048, "flow_table_full": 1}
    age_flows(segment, 61 * 10**9)
    driver.until("done")
    assert counted(segment) == {"foreign_flows": 2048, "flow_table_full": 1, "flows_lost": 50}
    assert (segment.live_flows()["flags"] == OP_FOREIGN).sum() == 2048 - 50


def age_flows(segment: Segment, age_ns: int) -> None:
    """Nothing has moved for that long: written into the segment, because no test can wait for it."""
    raw = np.memmap(segment.path, np.uint8, "r+")
    (section,) = (entry for entry in raw[: HEADER.itemsize].view(HEADER)["sections"][0] if entry["name"] == b"flow")
    at, size = int(section["offset"]), int(section["n_rows"]) * FLOW.itemsize
    raw[at : at + size].view(FLOW)["last_progress_ns"] -= age_ns


def test_all_segments_of_a_host_together_have_a_limit(drive: Drive, tmp_path: Path) -> None:
    sizes = []
    for limit, wanted in ((16, 16), (20, 16), (24, 2), (24, 16)):
        megabytes = {"DIOGENES_HOST_BYTES_MAX": str(limit << 20), "DIOGENES_SEGMENT_BYTES": str(wanted << 20)}
        driver = drive(5, "normal", **megabytes)
        driver.until("moved")
        sizes.append(driver.segment().path.stat().st_size >> 20)
    assert sizes == [16, 4, 2, 2]
    refused = drive(5, "normal", DIOGENES_HOST_BYTES_MAX=str(24 << 20))
    assert refused.until("moved")["mask"] == 0
    assert "no tracing" in refused.finish()
    assert sorted(path.stat().st_size >> 20 for path in tmp_path.glob("diogenes.*")) == [0, 2, 2, 4, 16]


def test_ops_that_never_complete_give_their_rows_to_later_ones(drive: Drive) -> None:
    driver = drive(5, "many_local_ops")
    driver.until("done")
    segment = driver.segment()
    live = segment.live_ops()
    assert segment.counters()["ops_enqueued"] == 3 * 4096 and len(live) == 64
    assert counted(segment) == {"ops_no_network": 3 * 4096 - 64} and not (live["flags"] & OP_NO_NETWORK).any()


def test_lost_ops_and_their_flows_give_their_rows_to_later_ones(drive: Drive) -> None:
    driver = drive(5, "many_lost_ops", DIOGENES_SEGMENT_BYTES=SMALL)
    driver.until("done")
    segment = driver.segment()
    seen = counted(segment)
    assert segment.counters()["ops_done"] == 3000 and seen["ops_lost"] > 900 and seen["flows_lost"] > 900
    assert "op_table_full" not in seen and "flow_table_full" not in seen
    assert seen["ops_lost"] + len(segment.live_ops()) == 3000


def test_an_overwritten_ring_says_how_much_was_lost(drive: Drive) -> None:
    driver = drive(5, "many_local_ops", DIOGENES_SEGMENT_BYTES=SMALL)
    driver.until("done")
    ring = driver.segment().op_ring(position=0)
    rows, lost = ring.drain()
    assert len(rows) == 1024 and lost == 3 * 4096 - 64 - 1024
    assert list(rows["op"]) == list(range(3 * 4096 - 64 - 1024 + 1, 3 * 4096 - 64 + 1))
    assert ring.drain()[1] == 0 and len(ring.drain()[0]) == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """small_disk(size): a file system of that size, as a container's /dev/shm is."""
    if os.geteuid() != 0:
        pytest.skip("mounting a small tmpfs needs root")
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(size: str) -> Path:
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", folder], check=False)
        if done.returncode:
            pytest.skip("may not mount here")
        return folder

    yield mount
    subprocess.run(["umount", "-l", folder], check=False, stderr=subprocess.DEVNULL)


def test_a_small_file_system_gets_a_smaller_segment(drive: Drive, small_disk: Callable[[str], Path]) -> None:
    driver = drive(5, "normal", DIOGENES_SEGMENT_DIR=str(small_disk("5m")))
    driver.until("moved")
    segment = driver.segment()
    assert segment.path.stat().st_size == 4 << 20 and counted(segment) == {}


@pytest.mark.parametrize("abi", ABIS)
def test_a_full_file_system_means_no_tracing(drive: Drive, small_disk: Callable[[str], Path], abi: int) -> None:
    driver = drive(abi, "normal", DIOGENES_SEGMENT_DIR=str(small_disk("1m")))
    assert driver.until("moved")["mask"] == 0
    (told,) = driver.files()
    assert told.stat().st_size == 0 and is_held(told)
    said = driver.finish()
    assert abi == 3 or "no tracing" in said
    assert not is_held(told)


def is_held(path: Path) -> bool:
    """Whether a process lives that wanted a segment there."""
    with path.open("rb") as file:
        return is_alive(file.fileno())


@pytest.mark.parametrize("script", ["normal", "nulls", "stale", "contexts", "concurrent", "forked"])
def test_a_folder_that_is_not_there_means_no_tracing(drive: Drive, tmp_path: Path, script: str) -> None:
    driver = drive(5, script, DIOGENES_SEGMENT_DIR=str(tmp_path / "nowhere"))
    assert driver.step()["mask"] == 0
    driver.finish()
