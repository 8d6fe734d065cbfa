"""What may happen to a training process does not get worse because it is traced, and what was refused is counted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nccl_instrument.agent.processes.segment import Segment
from tests.nccl_instrument.plugin.driver import ABIS, Driver, counted, is_ordered, records

Drive = Callable[..., Driver]
HERE = Path(__file__).parent
SMALL = str(2 << 20)


def with_limit(limit: str) -> tuple[str, ...]:
    """Runs a command under `ulimit LIMIT`."""
    return ("sh", "-c", f'ulimit {limit}; exec "$@"', "sh")


# ---- where the segment should go -------------------------------------------------------------------------------------


@pytest.mark.parametrize("abi", ABIS)
def test_a_limit_of_file_sizes_does_not_kill_the_trainer_with_its_signal(drive: Drive, abi: int) -> None:
    driver = drive(abi, "normal", wrap=with_limit("-f 2048"))  # 1 MiB
    assert driver.until("moved")["mask"] == 0
    assert [path.stat().st_size for path in driver.files()] == [0]
    driver.finish()


def test_a_limit_of_file_sizes_gets_a_smaller_segment(drive: Drive) -> None:
    driver = drive(5, "normal", wrap=with_limit("-f 10000"))  # 5 MB
    driver.until("moved")
    assert driver.segment().path.stat().st_size == 4 << 20 and counted(driver.segment()) == {}


@pytest.mark.parametrize("folder", ["/proc/self", "/dev/null", "/nowhere"])
@pytest.mark.parametrize("script", ["normal", "churn", "crowd", "forks", "copies"])
def test_a_folder_nobody_may_write_to_means_no_tracing(
    drive: Drive, plugin_copy: str, folder: str, script: str
) -> None:
    driver = drive(5, script, DIOGENES_SEGMENT_DIR=folder, DRIVER_COPY=plugin_copy)
    assert driver.step()["mask"] == 0
    assert "no tracing" in driver.finish()


def test_another_users_file_in_the_segments_place_is_left_alone(drive: Drive, tmp_path: Path) -> None:
    """The folder is everybody's: somebody may have made a link or a folder of that name."""
    driver = drive(5, "execs")
    driver.until("before")
    (path,) = driver.files()
    path.unlink()
    path.symlink_to(tmp_path / "elsewhere")
    driver.until("moved")
    assert not (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("abi", [3, 7])
def test_a_timer_that_interrupts_every_call_does_not_keep_init_from_ending(drive: Drive, abi: int) -> None:
    driver = drive(abi, "ticks")
    driver.until("done")
    assert len(records(driver.segment())) == 100 and driver.segment().path.stat().st_size == 16 << 20


# ---- other programs and copies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("abi", ABIS)
def test_children_forked_in_any_way_may_call_back_exec_and_die(drive: Drive, abi: int) -> None:
    driver = drive(abi, "forks", DIOGENES_SEGMENT_BYTES=SMALL)
    said = driver.until("done")
    segment = driver.segment()
    counters = segment.counters()
    assert segment.is_alive() and set(counted(segment)) <= {
        "ring_busy",
        "transfers_busy",
    }  # three threads lap small rings
    assert counters["ops_done"] == counters["ops_enqueued"] == counters["flows_done"] == said["ops"]
    own = [Segment.open(path) for path in driver.files() if path != segment.path]
    assert len(own) == 24 and all(child.is_closed and not child.is_alive() for child in own)
    assert all(len(records(child)) == 1 for child in own)


@pytest.mark.parametrize("abi", ABIS)
def test_a_process_that_calls_exec_is_traced_anew(drive: Drive, abi: int) -> None:
    driver = drive(abi, "execs")
    driver.until("before")
    before = driver.segment()
    driver.until("moved")
    after = driver.segment()
    assert driver.files() == [after.path]
    assert not before.is_alive() and after.is_alive() and (before.pid, before.starttime) == (after.pid, after.starttime)
    assert len(before.live_ops()) == 1 and len(records(after)) == 4


@pytest.fixture
def plugin_copy(plugin: object, tmp_path: Path) -> str:
    """Another path to another file of the same plugin."""
    copy = tmp_path / "copy.so"
    shutil.copy(HERE.parents[2] / "nccl_instrument/plugin/build/libnccl-profiler-diogenes.so", copy)
    return str(copy)


@pytest.mark.parametrize("abi", ABIS)
def test_a_second_copy_of_the_plugin_traces_nothing_and_leaves_the_first_one_its_lock(
    drive: Drive, plugin_copy: str, abi: int
) -> None:
    driver = drive(abi, "copies", DRIVER_COPY=plugin_copy)
    assert driver.until("both")["mask"] == 0
    segment = driver.segment()
    assert segment.is_alive()
    driver.until("done")
    assert driver.files() == [segment.path] and segment.is_alive()
    assert len(records(segment)) == 10 and counted(segment) == {}
    said = driver.finish()
    assert abi == 3 or "this process has a segment already" in said


LOCKER = """
import fcntl, os, pathlib, sys, time
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
fcntl.lockf(file, fcntl.LOCK_EX, 1)
pathlib.Path(sys.argv[2]).write_text(str(os.getpid()))
time.sleep(60)
"""
TAKEN = """
name=diogenes.$(id -u).$$.$(cut -d' ' -f22 /proc/$$/stat)
"$PYTHON" -c "$LOCKER" "$DIOGENES_SEGMENT_DIR/$name" "$DIOGENES_SEGMENT_DIR/locked" >/dev/null 2>&1 &
while ! test -s "$DIOGENES_SEGMENT_DIR/locked"; do sleep 0.02; done
exec "$@"
"""


def test_two_containers_that_share_the_folder_and_a_process_number_get_a_segment_each(
    drive: Drive, tmp_path: Path
) -> None:
    driver = drive(5, "hang", wrap=("sh", "-c", TAKEN, "sh"), PYTHON=sys.executable, LOCKER=LOCKER)
    driver.until("moved")
    others = int((tmp_path / "locked").read_text())
    taken, own = driver.files()
    assert taken.stat().st_size == 0
    segment = Segment.open(own)
    assert segment.is_alive() and len(records(segment)) == 4 and segment.pid == driver.process.pid
    assert int(own.suffix[1:]) == int(taken.suffix[1:]) + 1 == segment.starttime + 1
    os.kill(others, signal.SIGKILL)


@pytest.mark.parametrize("abi", ABIS)
def test_the_library_may_be_closed_and_opened_again(drive: Drive, abi: int) -> None:
    driver = drive(abi, "reloads")
    driver.until("done")
    segment = driver.segment()
    assert segment.is_alive() and segment.is_closed and counted(segment) == {}
    assert len(records(segment)) == 20 and len(segment.comms()) == 20 and len(driver.files()) == 1


# ---- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("abi", ABIS)
@pytest.mark.parametrize(("script", "number"), [("aborts", signal.SIGABRT), ("faults", signal.SIGSEGV)])
def test_a_crash_is_the_trainers_own_and_leaves_a_segment_that_can_be_read(
    drive: Drive, script: str, number: int, abi: int
) -> None:
    driver = drive(abi, script, wrap=with_limit("-c 0"), DIOGENES_SEGMENT_BYTES=SMALL)
    driver.until("running")
    segment = driver.segment()
    assert driver.die() == number
    assert not segment.is_alive() and not segment.is_closed
    make_sense(segment)


@pytest.mark.parametrize("abi", ABIS)
def test_a_trainer_killed_in_the_middle_of_callbacks_leaves_a_segment_that_can_be_read(
    drive: Drive, tmp_path: Path, abi: int
) -> None:
    for number in range(6):
        folder = tmp_path / str(number)
        folder.mkdir()
        driver = drive(abi, "hammers", DIOGENES_SEGMENT_DIR=str(folder), DIOGENES_SEGMENT_BYTES=SMALL)
        driver.until("running")
        segment = driver.segment()
        time.sleep(0.003 * number)
        driver.process.kill()
        driver.process.wait()
        assert not segment.is_alive()
        make_sense(segment)
        make_sense(Segment.open(segment.path))


def make_sense(segment: Segment) -> None:
    """Every row that is shown is whole, and the counts agree with each other."""
    ring = segment.op_ring(0)
    drained = [ring.drain() for _ in range(2)]  # a record that its writer never finished holds up the first time
    rows, lost = np.concatenate([part for part, _ in drained]), sum(n_lost for _, n_lost in drained)
    ops, flows, counters = segment.live_ops(), segment.live_flows(), segment.counters()
    both = np.concatenate([rows, ops])
    assert (both["comm_id"] == 0xABC000).all() and (both["enqueued_ns"] > 0).all() and set(both["comm"]) <= {0, 1, 2, 3}
    assert (rows["done_ns"] >= rows["enqueued_ns"]).all()
    assert len(np.unique(both[["comm", "op"]])) == len(both)
    assert is_ordered(flows["counters"]) and (flows["counters"] <= flows["total_chunks"][:, None]).all()
    assert segment.torn_rows == 0 and len(ops) <= 8 and len(flows) <= 8
    written = len(rows) + lost  # a record that found its row busy is among the lost
    assert 0 <= counters["ops_enqueued"] - written <= 8 and counters["stale_handles"] == 0


# ---- the file under it -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("abi", ABIS)
def test_a_segment_deleted_under_the_trainer_is_still_written_and_read(drive: Drive, abi: int) -> None:
    driver = drive(abi, "steady")
    driver.until("op")
    segment = driver.segment()
    segment.path.unlink()
    driver.until("done")
    assert len(records(segment)) == 5 and segment.is_alive() and segment.is_closed
    driver.finish()


def test_only_its_owner_may_write_to_a_segment(drive: Drive) -> None:
    """Truncating it would kill the trainer with SIGBUS: whoever may do that may also just kill it."""
    driver = drive(5, "steady")
    driver.until("op")
    status = driver.segment().path.stat()
    assert status.st_uid == os.geteuid() and status.st_mode & 0o777 == 0o600


# ---- clocks ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def clock_steps(tmp_path_factory: pytest.TempPathFactory) -> str:
    library = tmp_path_factory.mktemp("clock") / "clock_steps.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", HERE / "clock_steps.c", "-o", library], check=True)
    return str(library)


@pytest.mark.parametrize("abi", ABIS)
def test_a_wall_clock_that_jumps_changes_no_duration(drive: Drive, clock_steps: str, abi: int) -> None:
    began_ns = time.monotonic_ns()
    driver = drive(abi, "normal", LD_PRELOAD=clock_steps)
    driver.until("moved")
    segment, ended_ns = driver.segment(), time.monotonic_ns()
    assert abs(segment.header()["wall_ns"] - time.time_ns()) > 3000 * 10**9
    rows = records(segment)
    assert len(rows) == 40 and counted(segment) == {}
    for name in ("enqueued_ns", "started_ns", "first_transfer_ns", "last_transfer_ns", "done_ns"):
        assert (rows[name] > began_ns).all() and (rows[name] < ended_ns).all()
    for name in ("gpu_wait_ns", "peer_wait_ns", "net_wait_ns"):
        assert (rows[name] < (ended_ns - began_ns) * rows["n_flows"]).all()
    assert began_ns < segment.header()["mono_ns"] < ended_ns


def test_the_segment_tells_in_which_boot_its_times_count(drive: Drive) -> None:
    driver = drive(5, "steady")
    driver.until("op")
    assert driver.segment().boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


# ---- many ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("abi", ABIS)
def test_ten_thousand_communicators_made_and_freed_are_all_traced_in_constant_memory(drive: Drive, abi: int) -> None:
    driver = drive(abi, "churn")
    driver.until("warm")
    before = memory_kb(driver.process.pid)
    driver.until("done")
    segment, after = driver.segment(), memory_kb(driver.process.pid)
    assert after["VmRSS"] - before["VmRSS"] < 4096 and after["VmSize"] - before["VmSize"] < 16384
    counters = segment.counters()
    assert counters["comms_joined"] == counters["comms_finalized"] == counters["ops_done"] == 10_000
    assert counters["ops_enqueued"] == 20_000 and counters["ops_no_network"] == 10_000
    assert set(counted(segment)) <= {"ops_no_network"}
    rows, lost = segment.op_ring(0).drain()
    assert len(rows) + lost == 20_000 and segment.is_closed
    assert len(segment.comms()) == 256 and len(segment.live_ops()) == len(segment.live_flows()) == 0
    newest = 0xABC000 + np.arange(10_000 - 256, 10_000)
    assert abi == 3 or sorted(segment.comms()["comm_id"]) == newest.tolist()


def memory_kb(pid: int) -> dict[str, int]:
    lines = [line.split() for line in Path(f"/proc/{pid}/status").read_text().splitlines()]
    return {words[0][:-1]: int(words[1]) for words in lines if words[0] in ("VmRSS:", "VmSize:")}


@pytest.mark.parametrize("abi", ABIS)
def test_callbacks_from_sixty_four_threads_are_counted_exactly(drive: Drive, abi: int) -> None:
    driver = drive(abi, "crowd")
    said = driver.until("done")
    segment = driver.segment()
    counters = segment.counters()
    assert said["ops"] == 6401
    names = ("ops_enqueued", "flows_started", "flows_done")
    assert {name: counters[name] for name in names} == dict.fromkeys(names, 6401)
    closed = sum(counters[name] for name in ("ops_done", "ops_lost", "ops_no_network"))
    assert closed - counters["ops_reopened"] == 6401
    assert set(counted(segment)) <= {"ops_lost", "ops_no_network", "ops_reopened", "ring_busy"}
    rows, lost = segment.op_ring(0).drain()
    assert sorted(set(rows["op"])) == list(range(1, 6402)) or lost + counters["ring_busy"] > 0
    assert len(rows) + lost == closed and counters["peer_wait_polls"] == said["polls"]
    (comm,) = segment.comms()
    assert comm["n_enqueued"] == 6401 and comm["n_done"] == counters["ops_done"]


def test_every_interface_version_leaves_the_same_records(drive: Drive, tmp_path: Path) -> None:
    """One script, five versions of the tables: nothing that an op was depends on which of them NCCL speaks."""
    same = ["op", "seq", "func", "dtype", "algo", "proto", "channels", "flags", "n_flows", "count"]
    same += ["bytes", "comm_id", "comm_rank", "n_flows_begun", "n_flows_stopped", "peer"]
    found = {}
    for abi in ABIS:
        folder = tmp_path / str(abi)
        folder.mkdir()
        driver = drive(abi, "normal", DIOGENES_SEGMENT_DIR=str(folder))
        driver.until("finalized")
        rows = records(driver.segment())
        rows = rows[np.lexsort((rows["op"], rows["comm_id"]))]
        found[abi] = [rows[name].tolist() for name in same], driver.segment().counters()
    for abi in ABIS[1:]:
        assert found[abi][0] == found[3][0]
        assert abi == 4 or found[abi][1] == found[4][1]
