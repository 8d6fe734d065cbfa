"""Full tables and full file systems: counted or without tracing, never a failed job."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nccl_instrument.tables import OP_NO_NETWORK
from tests.nccl_instrument.plugin.driver import ABIS, Driver, counted

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
    assert len(rows) == 2048 and lost == 3 * 4096 - 64 - 2048
    assert list(rows["op"]) == list(range(3 * 4096 - 64 - 2048 + 1, 3 * 4096 - 64 + 1))
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
    assert driver.files() == []
    said = driver.finish()
    assert abi == 3 or "no tracing" in said


@pytest.mark.parametrize("script", ["normal", "nulls", "stale", "contexts", "concurrent", "forked"])
def test_a_folder_that_is_not_there_means_no_tracing(drive: Drive, tmp_path: Path, script: str) -> None:
    driver = drive(5, script, DIOGENES_SEGMENT_DIR=str(tmp_path / "nowhere"))
    assert driver.step()["mask"] == 0
    driver.finish()
