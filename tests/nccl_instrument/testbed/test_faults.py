"""Each fault acts on the mechanism and is taken back; those of NICs over real and over paced links."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.nccl_instrument.testbed.jobs import IS_ROOT, LIMIT_S, RunningJob, running_job, wait_until

LINKS = [pytest.param("real", marks=pytest.mark.skipif(not IS_ROOT, reason="namespaces need root")), "paced"]


@pytest.fixture(scope="module")
def job(engine: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningJob]:
    """Over the links this user may have."""
    with running_job(tmp_path_factory.mktemp("auto") / "run", "--jitter", "0") as job:
        yield job


@pytest.fixture(scope="module", params=LINKS)
def linked_job(
    request: pytest.FixtureRequest, engine: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningJob]:
    folder = tmp_path_factory.mktemp(request.param) / "run"
    with running_job(folder, "--links", request.param, "--jitter", "0") as job:
        yield job


def nic_folder(job: RunningJob, rank: int) -> Path:
    for node in job.manifest()["nodes"]:
        for described in node["ranks"]:
            if described["rank"] == rank:
                return next(Path(nic["sysfs"]) for nic in node["nics"] if nic["name"] == described["nic"])
    raise AssertionError(f"no rank {rank} in the manifest")


def read(folder: Path, name: str) -> str:
    return (folder / name).read_text().strip()


def state_of(job: RunningJob, rank: int) -> str:
    return job.status()["ranks"][rank]["state"]


def test_a_nic_that_is_down_hangs_the_job_until_it_is_healed(linked_job: RunningJob) -> None:
    job = linked_job
    folder = nic_folder(job, 3)
    assert (read(folder, "operstate"), read(folder, "carrier")) == ("up", "1")
    assert job.ask("inject", fault="nic_down", rank=3)["ok"]
    job.hangs()
    assert read(folder, "operstate") != "up" and read(folder, "carrier") == "0"
    assert read(nic_folder(job, 2), "carrier") == "1"
    assert job.ask("heal", fault="nic_down", rank=3)["ok"]
    job.trains()
    assert read(folder, "carrier") == "1"


GIVES_UP_S = 18  # a socket of a link that is down, after the kernel's usual fifteen tries


@pytest.mark.live
def test_a_nic_that_was_down_for_longer_than_sockets_usually_bear_does_not_end_the_job(linked_job: RunningJob) -> None:
    job = linked_job
    job.ask("inject", fault="nic_down", rank=4)
    job.hangs()
    time.sleep(GIVES_UP_S)
    job.ask("heal", fault="nic_down", rank=4)
    job.trains()


def test_a_limited_nic_slows_the_job_to_what_its_wire_carries(linked_job: RunningJob) -> None:
    """Bounds from below only, so that a busy machine cannot fail this: 640 KiB per step at 5 % of 25 MB/s."""
    job = linked_job
    job.ask("inject", fault="nic_limit", rank=2, amount=0.05)
    job.trains()
    assert job.iteration_ms() > 450
    job.ask("heal", fault="nic_limit")
    job.trains()


def test_a_frozen_rank_hangs_the_job_until_it_thaws(job: RunningJob) -> None:
    job.ask("inject", fault="rank_frozen", rank=5)
    job.hangs()
    pid = job.status()["ranks"][5]["pid"]
    assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    job.ask("heal", fault="rank_frozen", rank=5)
    job.trains()


def test_a_sleeping_proxy_hangs_the_job_until_it_wakes(job: RunningJob) -> None:
    job.ask("inject", fault="proxy_sleep", rank=6)
    job.hangs()
    job.ask("heal", fault="proxy_sleep", rank=6)
    job.trains()


def test_a_proxy_that_sleeps_for_a_time_wakes_by_itself(job: RunningJob) -> None:
    job.ask("inject", fault="proxy_sleep", rank=6, amount=0.3)
    job.trains()


@pytest.mark.parametrize(
    ("fault", "amount", "step_ms"),
    [
        ("slow_copies", 40.0, 600),  # 640 KiB out of the GPU at 40 MB/s take 16 ms
        ("slow_compute", 30.0, 540),  # 19 ms of compute
    ],
)
def test_slower_copies_and_slower_compute_slow_the_job(
    job: RunningJob, fault: str, amount: float, step_ms: float
) -> None:
    job.ask("inject", fault=fault, rank=1, amount=amount)
    job.trains()
    assert job.iteration_ms() > step_ms
    job.ask("heal", fault=fault, rank=1)


def test_a_rank_stuck_before_its_op_is_in_its_data_loader(job: RunningJob) -> None:
    job.ask("inject", fault="stuck_before", rank=4)
    job.hangs()
    assert state_of(job, 4) == "in data loader"
    enqueued = [rank["n_ops_enqueued"] for rank in job.status()["ranks"]]
    assert enqueued[4] < enqueued[0]
    job.ask("heal", fault="stuck_before", rank=4)
    job.trains()


def test_a_pause_stops_all_ranks_between_iterations(job: RunningJob) -> None:
    job.ask("inject", fault="pause", amount=0.6)
    wait_until(lambda: {rank["state"] for rank in job.status()["ranks"]} == {"paused"}, "nobody pauses")
    assert len({rank["iteration"] for rank in job.status()["ranks"]}) == 1
    job.trains()


def test_a_checkpoint_holds_rank_0_before_its_next_op(job: RunningJob) -> None:
    job.ask("inject", fault="checkpoint", amount=0.6)
    wait_until(lambda: state_of(job, 0) == "checkpoint", "rank 0 writes no checkpoint")
    job.trains()


def test_heal_without_a_name_ends_every_fault(job: RunningJob) -> None:
    job.ask("inject", fault="slow_copies", rank=1, amount=2)
    job.ask("inject", fault="slow_compute", rank=2, amount=2)
    healed = job.ask("heal")
    assert healed["ok"] and {("slow_copies", 1), ("slow_compute", 2)} <= {
        (f["fault"], f["rank"]) for f in healed["healed"]
    }
    assert job.ask("heal")["error"] == "No active fault."
    job.trains()


@pytest.mark.parametrize(
    ("request_words", "sentence"),
    [
        ({"do": "inject", "fault": "gremlin", "rank": 1}, "There is no fault"),
        ({"do": "inject", "fault": "nic_down"}, "needs --rank"),
        ({"do": "inject", "fault": "nic_down", "rank": 99}, "no rank 99"),
        ({"do": "inject", "fault": "slow_copies", "rank": 1, "amount": -1}, "above 0"),
        ({"do": "heal", "fault": "nic_down", "rank": 1}, "No active fault nic_down on rank 1."),
        ({"do": "dance"}, "does one of"),
    ],
)
def test_senseless_requests_are_refused_with_a_sentence(
    job: RunningJob, request_words: dict[str, object], sentence: str
) -> None:
    answer = job.ask(**request_words)  # type: ignore[arg-type]
    assert not answer["ok"] and sentence in answer["error"]


def test_the_truth_is_written_beside_the_run(job: RunningJob) -> None:
    job.ask("inject", fault="nic_limit", rank=7, amount=0.9)
    job.ask("heal", fault="nic_limit", rank=7)
    injected, healed = (json.loads(line) for line in (job.folder / "truth.jsonl").read_text().splitlines()[-2:])
    assert (injected["what"], healed["what"]) == ("injected", "healed")
    assert (injected["ranks"], injected["node"], injected["nic"]) == ([7], "node3", "nic1")
    assert (injected["component"], injected["kind"]) == ("nic", "communication, fail-slow")
    assert healed["healed_at"] >= injected["injected_at"]


def test_nic_counters_grow_in_both_directions(linked_job: RunningJob) -> None:
    job = linked_job
    folder = nic_folder(job, 0) / "statistics"
    before = {name: int(read(folder, name)) for name in ("rx_bytes", "tx_bytes")}
    job.trains()
    wait_until(lambda: all(int(read(folder, name)) > was for name, was in before.items()), "NIC counters stand still")
    assert int(read(nic_folder(job, 0), "speed")) == 200


def test_a_killed_rank_leaves_the_others_hanging_and_its_segment_folder_in_place(engine: Path, tmp_path: Path) -> None:
    with running_job(tmp_path / "run") as job:
        assert job.ask("inject", fault="rank_killed", rank=2)["ok"]
        job.hangs()
        status = job.status()
        assert [rank["rank"] for rank in status["ranks"] if not rank["is_alive"]] == [2]
        assert all(Path(node["segment_dir"]).is_dir() for node in job.manifest()["nodes"])
        assert not job.ask("heal", fault="rank_killed", rank=2)["ok"]


def test_a_rank_that_dies_unasked_ends_the_job_loudly(engine: Path, tmp_path: Path) -> None:
    with running_job(tmp_path / "run") as job:
        os.kill(job.status()["ranks"][1]["pid"], signal.SIGKILL)
        assert job.process.wait(LIMIT_S) == 3
    assert "Rank 1 ended with code -9" in (tmp_path / "run.log").read_text()


def test_a_wrong_sum_ends_the_job_loudly(engine: Path, tmp_path: Path) -> None:
    with running_job(tmp_path / "run", "--links", "paced") as job:
        job.ask("inject", fault="corrupt", rank=3)
        assert job.process.wait(LIMIT_S) == 3
    words = (tmp_path / "run.log").read_text()
    assert "wrong data" in words and "element" in words
