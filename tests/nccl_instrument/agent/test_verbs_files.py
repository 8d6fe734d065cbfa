"""The agent reads what shims leave, of their own users alone, and what makes no sense ends nothing but itself."""

from __future__ import annotations

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from nccl_instrument.agent.traffic.sampling import Sampling
from nccl_instrument.agent.verbs.files import UNKNOWN_COUNT, VerbsFiles
from nccl_instrument.measure.meter import FLOW, PACKED_CELL
from nccl_instrument.tables import NO_OP, SEND, empty_rows
from nccl_instrument.verbs.reading import BLOCK, MAGIC, NAMED, QUEUE_PAIR, SEVERAL_FLOWS

UID = os.getuid()
GOOD = f"diogenes-verbs.{UID}.77.1234"


def block(*, errors: int = 0, status: int = 0, named: int = NAMED, card: bytes = b"mlx5_0", n_cells: int = 3) -> bytes:
    """A block of one card with one queue pair that sends to peer 2 on channel 1."""
    head, flows, cells, pairs = (
        np.zeros(n, kind) for n, kind in ((1, BLOCK), (1, FLOW), (n_cells, PACKED_CELL), (1, QUEUE_PAIR))
    )
    head["magic"], head["epoch_ns"], head["unit_bytes"], head["name"] = MAGIC, 32_000, 32, card
    head["n_flows"], head["n_cells"], head["n_qps"], head["now_ns"] = 1, n_cells, 1, 10**12
    flows["qpn"], flows["n_cells"], flows["bytes"] = 0x101, n_cells, 96
    cells["skip"], cells["units"] = np.arange(n_cells) > 0, 1
    pairs["qpn"], pairs["comm_id"], pairs["comm_rank"], pairs["peer"] = 0x101, 5, 1, 2
    pairs["channel"], pairs["direction"], pairs["named"] = 1, SEND, named
    pairs["errors"], pairs["last_status"], pairs["last_error_ns"] = errors, status, 1
    return b"".join(one.tobytes() for one in (head, flows, cells, pairs))


class Rig:
    """Verbs files in one folder; `alive` holds the lock of a file, from another process, as its shim would."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.counted = folder, list[tuple[str, int]]()
        self.files = VerbsFiles([folder], lambda kind, pid: self.counted.append((kind, pid)))

    def write(self, raw: bytes, name: str = GOOD) -> Path:
        (self.folder / name).write_bytes(raw)
        return self.folder / name

    def nic(self, card: bytes = b"mlx5_0") -> tuple[int, int]:
        rows = empty_rows("nic", 1)
        rows["name"] = card
        (row,) = self.files.with_errors(rows)
        return int(row["completion_errors"]), int(row["completion_status"])


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@contextmanager
def holding(path: Path) -> Iterator[None]:
    """Another process holds the file's lock, as its shim does."""
    path.touch(0o600)
    ready, told = os.pipe()
    until, go = os.pipe()
    pid = os.fork()
    if not pid:
        file = os.open(path, os.O_RDWR)
        fcntl.fcntl(file, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
        os.write(told, b"1")
        os.close(go)
        os.read(until, 1)
        os._exit(0)
    try:
        os.read(ready, 1)
        os.close(until)
        yield
    finally:
        for end in (go, ready, told):
            os.close(end)
        os.waitpid(pid, 0)


@pytest.fixture
def held(tmp_path: Path) -> Iterator[None]:
    """The lock of GOOD is held until the test is over."""
    with holding(tmp_path / GOOD):
        yield


def append(path: Path, raw: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(raw)


def test_flows_cards_and_failures_are_known(rig: Rig, held: None) -> None:
    append(rig.folder / GOOD, block(errors=2, status=12))
    rig.files.look()
    assert rig.files.flows() == {(5, 1, 2, 1, SEND): (0x101, "mlx5_0")}
    assert rig.nic() == (2, 12) and rig.nic(b"mlx5_1") == (UNKNOWN_COUNT, 0)
    rows = empty_rows("traffic", 2)
    rows["comm_id"], rows["comm_rank"], rows["peer"], rows["channel"], rows["direction"] = 5, 1, [2, 3], 1, SEND
    named = rig.files.named(rows)
    assert named["queue_pair"].tolist() == [0x101, 0] and named["nic"].tolist() == [b"mlx5_0", b""]
    assert not rig.counted


def test_a_queue_pair_of_several_flows_names_none(rig: Rig, held: None) -> None:
    append(rig.folder / GOOD, block(named=NAMED | SEVERAL_FLOWS))
    rig.files.look()
    assert rig.files.flows() == {}


def test_a_file_that_grows_is_read_on_and_half_a_block_waits(rig: Rig, held: None) -> None:
    path, raw = rig.folder / GOOD, block()
    append(path, raw + raw[:300])
    rig.files.look()
    (file,) = rig.files.files.values()
    assert len(file.fresh) == 1
    rig.files.retire()
    append(path, raw[300:])
    rig.files.look()
    assert len(file.fresh) == 1 and file.at == 2 * len(raw)


def test_what_a_dead_process_left_is_read_counted_for_a_while_and_removed(rig: Rig) -> None:
    path = rig.write(block(errors=1, status=13) + block(errors=3, status=12)[:-5])
    rig.write(b"", f"{GOOD}.old")
    rig.files.look()
    assert rig.nic() == (1, 13)
    rig.files.retire()
    assert not path.exists() and not list(rig.folder.iterdir()) and not rig.files.files
    assert rig.nic() == (1, 13)  # it may well have ended because of that


def test_when_the_shim_begins_its_next_file_the_rest_of_the_last_one_is_read(rig: Rig) -> None:
    path = rig.folder / GOOD
    with holding(path):
        append(path, block(errors=1, status=12))
        rig.files.look()
        rig.files.retire()
    append(path, block(errors=2, status=12))
    path.rename(f"{path}.old")  # and nobody holds its lock any more
    with holding(path):
        append(path, block(errors=5, status=12))
        rig.files.look()
        assert sorted(len(file.fresh) for file in rig.files.files.values()) == [1, 1]
        assert rig.nic() == (5, 12)  # counts go on from file to file
        rig.files.retire()
        assert path.exists() and [file.is_rotated for file in rig.files.files.values()] == [False]
        append(path, block(errors=6, status=12))
        rig.files.look()
        assert rig.nic() == (6, 12)


@pytest.mark.parametrize("name", [f"diogenes-verbs.{UID + 1}.77.1234", GOOD])
def test_a_file_of_another_user_or_of_other_content_is_left_and_counted(rig: Rig, name: str, held: None) -> None:
    rig.write(b"\xff" * 400, name)
    for _ in range(3):
        rig.files.look()
        rig.files.retire()
    assert rig.counted == [("segments_unreadable", 77)]
    assert rig.nic() == (UNKNOWN_COUNT, 0)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_nothing_but_a_file_is_opened(rig: Rig, kind: str) -> None:
    path = rig.folder / GOOD
    {"link": lambda: path.symlink_to("/etc/passwd"), "folder": path.mkdir, "pipe": lambda: os.mkfifo(path)}[kind]()
    rig.files.look()
    assert rig.counted == [("segments_unreadable", 77)]


def test_no_change_of_any_byte_ends_more_than_the_file(rig: Rig, held: None) -> None:
    """Another process's memory: whatever is in it."""
    good, path = block(errors=1, status=12), rig.folder / GOOD
    random = np.random.default_rng(7)
    for _ in range(400):
        raw = bytearray(good)
        for at in random.integers(0, BLOCK.itemsize, 3):
            raw[at] = int(random.integers(0, 256))
        with path.open("r+b") as stream:
            stream.truncate(0)
            stream.write(bytes(raw))
        files = VerbsFiles([rig.folder], lambda kind, pid: None)
        files.look()
        files.flows()
        files.with_errors(empty_rows("nic", 1))
        files.close()


def test_more_rows_than_the_node_may_send_are_thinned_by_calls_alike_everywhere_and_counted(tmp_path: Path) -> None:
    files = VerbsFiles([tmp_path], lambda _kind, _pid: None, Sampling(rows_per_s=100))
    rows = empty_rows("traffic", 400)
    rows["op"] = np.arange(1, 401)
    kept = files._within_budget(rows, 77, 10**9)
    assert {(op - 1) // 16 % 4 for op in kept["op"].tolist()} == {0} and len(kept) >= 96
    assert not files.refused(), "what is not measured is not lost"
    rows["op"] = NO_OP
    assert len(files._within_budget(rows, 77, 10**9)) == 100 and files.refused() == {77: 300}
