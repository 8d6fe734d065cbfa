"""The life of a segment: one per process, locked while it lives, readable when it is gone, not shared by fork."""

from __future__ import annotations

import os
import signal
import stat
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nccl_instrument.agent.processes.segment import Segment
from tests.nccl_instrument.plugin.driver import ABIS, Driver, counted, records

Drive = Callable[..., Driver]


@pytest.mark.parametrize("abi", ABIS)
def test_a_killed_trainer_leaves_its_segment_and_frees_its_lock(drive: Drive, abi: int) -> None:
    driver = drive(abi, "hang")
    driver.until("moved")
    segment = driver.segment()
    assert segment.is_alive() and not segment.is_closed
    driver.process.send_signal(signal.SIGSTOP)
    assert segment.is_alive()
    driver.process.kill()
    driver.process.wait()
    assert not segment.is_alive()
    assert len(segment.live_flows()) == 8 and len(records(segment)) == 4
    assert len(Segment.open(segment.path).live_ops()) == 2


def test_the_lock_goes_with_the_trainer_though_its_child_lives(drive: Drive) -> None:
    driver = drive(5, "forked")
    driver.until("child lives")
    segment = driver.segment()
    assert segment.is_alive()
    driver.process.kill()
    os.waitpid(driver.process.pid, 0)
    assert not segment.is_alive()


@pytest.mark.parametrize("abi", ABIS)
def test_a_forked_child_cannot_touch_the_trainers_segment(drive: Drive, abi: int) -> None:
    driver = drive(abi, "forked")
    driver.until("child gone")
    segment = driver.segment()
    assert segment.is_alive() and len(segment.live_ops()) == len(segment.live_flows()) == 1
    assert segment.counters()["ops_enqueued"] == 1 and counted(segment) == {}
    (own,) = (Segment.open(path) for path in driver.files() if path != segment.path)
    assert own.pid != segment.pid and own.is_closed and not own.is_alive() and len(records(own)) == 1
    driver.until("done")
    assert len(records(segment)) == 1 and counted(segment) == {}


@pytest.mark.parametrize("abi", ABIS)
def test_one_segment_serves_communicators_that_come_after_the_last_one_left(drive: Drive, abi: int) -> None:
    driver = drive(abi, "reinit")
    driver.until("finalized")
    segment = driver.segment()
    assert segment.is_closed and segment.is_alive()
    driver.until("joined")
    assert not segment.is_closed and segment.is_alive()
    assert len(driver.files()) == 1 and len(records(segment)) == 2
    assert [stamp & 0xFF for stamp in segment.comms()["stamp"]] == [4, 2]


def test_only_its_owner_may_read_the_segment_and_its_name_names_the_process(drive: Drive) -> None:
    driver = drive(5, "hang")
    driver.until("moved")
    segment = driver.segment()
    mode = segment.path.stat()
    assert stat.S_IMODE(mode.st_mode) == 0o600 and mode.st_size == 16 << 20 and mode.st_blocks * 512 >= 16 << 20
    started = Path(f"/proc/{driver.process.pid}/stat").read_text().rpartition(")")[2].split()[19]
    assert segment.path.name == f"diogenes.{os.getuid()}.{driver.process.pid}.{started}"
    assert (segment.pid, segment.starttime) == (driver.process.pid, int(started))


def test_the_header_carries_the_launchers_identity_and_both_clocks(drive: Drive) -> None:
    launcher = {"RANK": "5", "WORLD_SIZE": "16", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "DIOGENES_PP_RANK": "2"}
    driver = drive(5, "hang", **launcher, TORCHELASTIC_RESTART_COUNT="3", DIOGENES_JOB="llama", NCCL_HOSTID="n1",
                   NCCL_IB_HCA="=mlx5_0:1,mlx5_1", DIOGENES_TP_RANK="x", DIOGENES_GID="fe80::1")  # fmt: skip
    driver.until("moved")
    segment = driver.segment()
    identity, header = segment.identity(), segment.header()
    numbers = {name: identity[name] for name in ("global_rank", "world_size", "local_rank", "local_world_size")}
    assert numbers == {"global_rank": 5, "world_size": 16, "local_rank": 1, "local_world_size": 4}
    assert (identity["restart_count"], identity["pp"], identity["tp"], identity["dp"]) == (3, 2, -1, -1)
    assert (identity["job"], identity["host_id"], identity["nic"]) == ("llama", "n1", "mlx5_0")
    assert (identity["hostname"], identity["gid"]) == (os.uname().nodename[:63], "fe80::1")
    assert (header["abi"], header["mask"], header["uid"]) == (5, 30, os.getuid())
    offset = time.time_ns() - time.monotonic_ns()
    assert abs(header["wall_ns"] - header["mono_ns"] - offset) < 1_000_000_000
    assert 0 < header["mono_ns"] <= segment.last_callback_ns <= time.monotonic_ns()


@pytest.mark.parametrize(
    ("launcher", "job"),
    [
        ({"SLURM_JOB_ID": "77", "TORCHELASTIC_RUN_ID": "abc"}, "slurm-77"),
        ({"TORCHELASTIC_RUN_ID": "abc", "DIOGENES_K8S_JOB": "k"}, "abc"),
        ({"TORCHELASTIC_RUN_ID": "none", "DIOGENES_K8S_JOB": "k"}, "k"),
        ({"DIOGENES_K8S_JOB": "pod", "JOB_NAME": "jenkins"}, "pod"),
        ({"JOB_NAME": "jenkins"}, ""),
        ({}, ""),
    ],
)
def test_the_job_is_named_by_the_first_launcher_that_names_it(drive: Drive, launcher: dict[str, str], job: str) -> None:
    driver = drive(5, "inside_node", **launcher, SLURM_PROCID="4")
    driver.until("done")
    assert driver.segment().identity()["job"] == job and driver.segment().identity()["global_rank"] == 4


@pytest.mark.parametrize(
    ("settings", "transport"),
    [({"NCCL_NET": "Socket"}, 2), ({"NCCL_IB_DISABLE": "1"}, 2), ({"NCCL_NET": "IB"}, 1), ({"NCCL_NET": "other"}, 0)],
)
def test_the_transport_is_taken_from_nccls_settings_when_they_settle_it(
    drive: Drive, settings: dict[str, str], transport: int
) -> None:
    driver = drive(5, "hang", **settings)
    driver.until("moved")
    assert set(driver.segment().live_flows()["transport"]) == {transport}
