"""The shim writes down which ops a job calls and never changes a call: the job checks that itself, word for word."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nccl_instrument.agent.processes.ring import OpRing
from nccl_instrument.agent.processes.segment import Segment
from nccl_instrument.tables import (
    DTYPES,
    FUNCS,
    LACKS_DONE,
    LACKS_GPU_READY,
    LACKS_TRANSMITTED,
    OP_API,
    OP_P2P,
    OP_STOPS_LOST,
)
from tests.nccl_instrument.nccl_api.conftest import Built, build

LIVE_KEPT = 8


class Traced:
    """What a run left: segment, and all its ops in the order in which they were enqueued, records and live ones."""

    def __init__(self, folder: Path, pid: int | None = None) -> None:
        (path,) = folder.glob(f"diogenes.*.{pid}.*") if pid else sorted(folder.glob("diogenes.*"))[:1]
        self.segment = Segment.open(path)
        records, self.lost = OpRing.drain(self.segment.op_ring())
        self.live = self.segment.live_ops()
        ops = np.concatenate([records, self.live])
        self.ops: Any = ops[np.lexsort((ops["ordinal"], ops["comm"]))]
        self.comms: Any = self.segment.comms()

    def counted(self) -> dict[str, int]:
        usual = {"comms_joined", "comms_finalized", "ops_enqueued", "ops_unseen"}
        return {name: n for name, n in self.segment.counters().items() if n and name not in usual}


def ran(done: subprocess.CompletedProcess[str], folder: Path) -> Traced:
    assert done.returncode == 0, done.stderr
    return Traced(folder)


SCENARIOS = (
    "plain",
    "ended",
    "groups",
    "simulated",
    "splits",
    "all",
    "asynchronous",
    "scalable",
    "failing",
    "strangers",
    "forked",
)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_job_is_right_without_the_shim(built: Built, tmp_path: Path, scenario: str) -> None:
    assert built.run(scenario, tmp_path, with_shim=False).returncode == 0
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_call_reaches_the_library_and_every_answer_the_job(built: Built, tmp_path: Path, scenario: str) -> None:
    done = built.run(scenario, tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("as_module", [False, True])
def test_ops_are_written_down_with_what_was_asked_for(built: Built, tmp_path: Path, as_module: bool) -> None:
    traced = ran(built.run("plain", tmp_path, as_module=as_module), tmp_path)
    ops = traced.ops
    called = "AllReduce AllReduce AllReduce Broadcast Broadcast Reduce AllGather ReduceScatter AllReduce".split()
    assert [FUNCS[func] for func in ops["func"]] == called
    assert ops["count"].tolist() == [100, 200, 300, 10, 11, 12, 13, 14, 15]
    float32, bfloat16 = DTYPES.index("Float32"), DTYPES.index("Bfloat16")
    assert ops["dtype"].tolist() == [float32] * 3 + [bfloat16, DTYPES.index("Int8")] + [float32] * 3 + [0]
    assert ops["bytes"].tolist() == [400, 800, 1200, 20, 11, 48, 52, 56, 15]
    assert ops["peer"].tolist() == [0, 0, 0, 2, 3, 1, 0, 0, 0]
    assert ops["op"].tolist() == list(range(1, 10))
    assert (np.diff(ops["enqueued_ns"]) >= 0).all() and (ops["launched_ns"] >= ops["enqueued_ns"]).all()
    assert not traced.counted()
    assert traced.segment.header()["library_version"] == 22105


def test_what_the_interface_cannot_tell_is_unknown(built: Built, tmp_path: Path) -> None:
    traced = ran(built.run("plain", tmp_path), tmp_path)
    ops, (comm,) = traced.ops, traced.comms
    assert (ops["flags"] == OP_API).all()  # in particular not "inside the node", and no captured graph
    assert not ops["done_ns"].any() and not ops["algo"].any() and not ops["proto"].any() and (ops["seq"] == -1).all()
    assert comm["network_seen"] == LACKS_GPU_READY | LACKS_TRANSMITTED | LACKS_DONE  # counters_seen on the wire
    assert (comm["n_done"], comm["n_enqueued"], comm["n_nodes"], comm["abi"]) == (0, 9, 0, 0)
    assert len(traced.live) == LIVE_KEPT and traced.live["op"].min() == 2


def test_communicators_are_known_by_nccls_own_number(built: Built, tmp_path: Path) -> None:
    """DJB2a of the unique id with its bytes signed, worked out here by other means."""
    (comm,) = ran(built.run("plain", tmp_path), tmp_path).comms
    expected = 5381
    for at in range(128):
        byte = (1 + at * 3) % 256
        expected = (expected * 33 ^ (byte - 256 if byte > 127 else byte)) % 2**64
    assert (comm["comm_id"], comm["comm_rank"], comm["n_ranks"]) == (expected, 1, 4)


def test_destroyed_and_aborted_communicators_are_left(built: Built, tmp_path: Path) -> None:
    traced = ran(built.run("ended", tmp_path), tmp_path)
    assert (traced.comms["finalized_ns"] > 0).tolist() == [False, True, True]
    assert not traced.counted()


def test_ops_of_a_group_are_enqueued_at_its_end_and_at_one_time(built: Built, tmp_path: Path) -> None:
    ops = ran(built.run("groups", tmp_path), tmp_path).ops
    first, *group, after, other = ops
    assert len({int(op["enqueued_ns"]) for op in (*group, other)}) == 1 and len(group) == 6
    assert (
        group[0]["enqueued_ns"] - first["enqueued_ns"] >= 20_000_000
    )  # where the group ended, not where it was called
    assert after["enqueued_ns"] > group[0]["enqueued_ns"]
    told = [(FUNCS[op["func"]], int(op["peer"]), int(op["op"]), int(op["count"])) for op in (*group, after)]
    assert told == [
        ("Send", 0, 1, 100), ("Recv", 0, 1, 200), ("Send", 2, 1, 102), ("Recv", 2, 1, 200), ("Send", 3, 1, 103),
        ("Recv", 3, 1, 200), ("Send", 2, 2, 300),
    ]  # fmt: skip
    assert all(op["flags"] == OP_API | OP_P2P for op in (*group, after))


def test_a_simulated_group_has_run_nothing(built: Built, tmp_path: Path) -> None:
    traced = ran(built.run("simulated", tmp_path), tmp_path)
    assert (traced.ops["flags"] & OP_STOPS_LOST > 0).tolist() == [True, False]
    assert traced.counted() == {"ops_lost": 1, "api_failed_calls": 1}


def test_splits_agree_on_their_number_and_ask_who_they_are(built: Built, tmp_path: Path) -> None:
    traced = ran(built.run("splits", tmp_path), tmp_path)
    parent, half, grouped, slow = traced.comms
    assert [(int(comm["comm_rank"]), int(comm["n_ranks"])) for comm in (half, grouped, slow)] == [
        (2, 4),
        (3, 4),
        (1, 4),
    ]
    text = f"{int(parent['comm_id']):016x}-4-5".encode().ljust(128, b"\0")  # the fourth split, with or without a color
    expected = 5381
    for byte in text:
        expected = (expected * 33 ^ byte) % 2**64
    assert slow["comm_id"] == expected
    ids = traced.ops["comm_id"][traced.ops["comm"] == 3]
    assert ids.tolist() == [0, 0, expected]  # while it was still being made, nobody could say who we are


def test_one_process_may_be_several_ranks(built: Built, tmp_path: Path) -> None:
    traced = ran(built.run("all", tmp_path), tmp_path)
    assert traced.comms["comm_rank"].tolist() == [0, 1, 2] and len(set(traced.comms["comm_id"].tolist())) == 1
    assert len(set(traced.ops["enqueued_ns"].tolist())) == 1 and len(traced.ops) == 3


def test_what_goes_on_by_itself_counts_as_begun(built: Built, tmp_path: Path) -> None:
    traced = ran(built.run("asynchronous", tmp_path), tmp_path)
    assert len(traced.live) == 1 and traced.live["launched_ns"][0] > 0 and not traced.counted()


def test_a_communicator_of_several_unique_ids_is_known_by_the_first(built: Built, tmp_path: Path) -> None:
    for folder in ("one", "several"):
        (tmp_path / folder).mkdir()
    one = ran(built.run("failing", tmp_path / "one"), tmp_path / "one")  # made of the first of the ids alone
    traced = ran(built.run("scalable", tmp_path / "several"), tmp_path / "several")
    assert traced.comms[["comm_rank", "n_ranks"]].tolist() == [(3, 4)]
    assert traced.comms["comm_id"].tolist() == one.comms["comm_id"].tolist()
    assert traced.live["count"].tolist() == [8] and not traced.counted()


def test_a_refused_call_is_no_op_in_progress(built: Built, tmp_path: Path) -> None:
    traced = ran(built.run("failing", tmp_path), tmp_path)
    assert traced.counted() == {"ops_lost": 2, "api_failed_calls": 2}
    assert traced.live["count"].tolist() == [5]


def test_calls_on_communicators_nobody_saw_being_made_are_counted(built: Built, tmp_path: Path) -> None:
    traced = ran(built.run("strangers", tmp_path), tmp_path)
    assert traced.counted() == {"api_unknown_comms": 7} and not len(traced.ops)


def test_threads_lose_no_call(built: Built, tmp_path: Path) -> None:
    traced = ran(built.run("threads", tmp_path, DIOGENES_SEGMENT_BYTES=str(64 << 20)), tmp_path)
    assert traced.comms["n_enqueued"].tolist() == [20_000] * 8
    assert traced.comms["n_p2p_enqueued"].tolist() == [400] * 8
    assert traced.counted().keys() <= {"ring_busy"}  # a writer that slept while the ring went round gives up its record
    for comm in range(8):
        mine = traced.ops[(traced.ops["comm"] == comm) & (traced.ops["flags"] & OP_P2P == 0)]
        assert len(np.unique(mine["op"])) == len(mine) > 0


def test_communicators_come_and_go_on_many_threads(built: Built, tmp_path: Path) -> None:
    traced = ran(built.run("churn", tmp_path), tmp_path)
    counters = traced.segment.counters()
    assert counters["comms_joined"] == counters["comms_finalized"] == counters["ops_enqueued"] == 2_000
    assert not traced.counted()


def test_limits_count_what_they_refuse(built: Built, tmp_path: Path) -> None:
    traced = ran(built.run("many", tmp_path), tmp_path)
    counted = traced.counted()
    assert counted["comm_table_full"] >= 945 and counted["op_table_full"] == 5000 - 4096
    assert traced.comms["n_p2p_enqueued"][0] == 5000  # numbered all the same, or later ones would not match
    assert len(traced.live) <= 2 * LIVE_KEPT


def test_a_forked_child_is_traced_by_itself(built: Built, tmp_path: Path) -> None:
    done = built.run("forked", tmp_path)
    assert done.returncode == 0, done.stderr
    made = [Segment.open(path) for path in sorted(tmp_path.glob("diogenes.*"))]
    assert sorted(segment.comms()["n_enqueued"].tolist() for segment in made) == [[1], [2]]


def test_where_the_profiler_plugin_can_be_loaded_it_traces(built: Built, tmp_path: Path) -> None:
    plugin = "/opt/libnccl-profiler-diogenes.so"
    assert built.run("plain", tmp_path, STUB_VERSION="22602", NCCL_PROFILER_PLUGIN=plugin).returncode == 0
    assert built.run("plain", tmp_path, DIOGENES_NCCL_API="0").returncode == 0
    assert not list(tmp_path.iterdir())
    assert (
        built.run("plain", tmp_path, STUB_VERSION="22501", NCCL_PROFILER_PLUGIN=plugin).returncode == 0
    )  # its interface is too old
    assert len(list(tmp_path.iterdir())) == 1


def test_no_room_costs_the_job_nothing(built: Built, tmp_path: Path) -> None:
    assert built.run("plain", tmp_path / "none").returncode == 0
    assert built.run("threads", tmp_path, DIOGENES_HOST_BYTES_MAX="1").returncode == 0


SANITIZED = ("plain", "ended", "groups", "splits", "all", "failing", "strangers", "threads", "churn", "many")


def sanitized(folder: Path, target: str, library: str, flags: str, **environment: str) -> Built:
    found = subprocess.run(["gcc", f"-print-file-name={library}"], capture_output=True, text=True, check=True)
    shim, behind = build(folder, target, (f"-fsanitize={flags}",))
    return Built(shim, behind, (str(Path(found.stdout.strip()).resolve()),), environment)


@pytest.fixture(scope="module")
def with_asan(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("asan")
    return sanitized(folder, "asan", "libasan.so", "address,undefined", ASAN_OPTIONS="detect_leaks=0")


@pytest.fixture(scope="module")
def with_tsan(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("tsan")
    return sanitized(folder, "tsan", "libtsan.so", "thread", TSAN_OPTIONS="halt_on_error=1:die_after_fork=0")


@pytest.mark.sanitizer
@pytest.mark.parametrize("scenario", SANITIZED)
def test_no_call_touches_memory_it_should_not(with_asan: Built, tmp_path: Path, scenario: str) -> None:
    done = with_asan.run(scenario, tmp_path)
    assert done.returncode == 0 and "runtime error" not in done.stderr, done.stderr


@pytest.mark.sanitizer
@pytest.mark.parametrize("scenario", ["threads", "churn", "groups"])
def test_no_call_races(with_tsan: Built, tmp_path: Path, scenario: str) -> None:
    done = with_tsan.run(scenario, tmp_path)
    assert done.returncode == 0 and "ThreadSanitizer" not in done.stderr, done.stderr
