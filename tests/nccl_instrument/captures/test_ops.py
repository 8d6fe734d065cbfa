"""With the ranks' traces beside it, a capture says which op its bytes belong to; without them, or with others, that it cannot."""

from __future__ import annotations

import json
import shutil
import struct
from pathlib import Path

import numpy as np
import pytest

from nccl_instrument.agent.processes.segment import Segment
from nccl_instrument.captures import written
from nccl_instrument.captures.__main__ import main
from nccl_instrument.captures.ops import read_traces
from nccl_instrument.tables import SEND, TRAFFIC_FINISHED, TRAFFIC_INCOMPLETE, TRAFFIC_SOURCES
from nccl_instrument.verbs.reading import blocks
from tests.nccl_instrument.captures import made
from tests.nccl_instrument.captures.test_command import run
from tests.nccl_instrument.verbs.conftest import built  # noqa: F401
from tests.nccl_instrument.verbs.test_named import CHANNELS, CHUNK_BYTES, CHUNKS, OPS, Ran, ran  # noqa: F401

PACKET_BYTES, SNAP = 4096, 128
OP_BYTES = CHUNKS * CHUNK_BYTES


def head_of(folder: Path) -> dict[str, int]:
    (path,) = folder.glob("diogenes.*")
    segment = Segment.open(path)
    try:
        return segment.header()
    finally:
        segment.close()


def capture_of(ran: Ran, *, late_ns: int = 0, first_op: int = 1) -> bytes:  # noqa: F811
    """What a mirror of the rank's port saw of its ops, by a clock that is late: packets over each op's whole time, cut short."""
    head, pairs = head_of(ran.folder), ran.blocks[-1].queue_pairs
    shift_ns = head["wall_ns"] - head["mono_ns"] + late_ns
    there = {int(row["channel"]): int(row["dest_qpn"]) for row in pairs if row["direction"] == SEND}
    frames = [
        (int(ran.told[first_op - 1, 1]) + shift_ns - 5_000_000, made.ethernet(made.roce(8, destination=made.C, qpn=9)))
    ]
    n = OP_BYTES // PACKET_BYTES
    for op, begin_ns, end_ns in ran.told.tolist():
        for i in range(n if op >= first_op else 0):
            at_ns = begin_ns + shift_ns + (end_ns - begin_ns) * i // n
            frames += [
                (at_ns, made.ethernet(made.roce(PACKET_BYTES, qpn=there[channel], psn=op * n + i)))
                for channel in range(CHANNELS)
            ]
    return made.pcap(sorted(frames), snap=SNAP)


def told(ran: Ran, folder: Path, capture: bytes, traces: Path | None = None) -> tuple[np.ndarray, str]:  # noqa: F811
    """(rows of `traffic`, what was printed)."""
    (folder / "a.pcap").write_bytes(capture)
    done = run(folder / "a.pcap", "--traces", traces or ran.folder)
    assert done.returncode == 0, done.stderr
    with np.load(folder / "a.pcap.epochs.npz") as saved:
        assert json.loads(str(saved["facts"]))["counts"]["traces_read"] >= 0
        return saved["traffic"], done.stdout.decode()


@pytest.mark.parametrize("late_ns", [0, 3_000_000])
def test_every_op_has_its_bytes_and_its_time(ran: Ran, tmp_path: Path, late_ns: int) -> None:  # noqa: F811
    rows, text = told(ran, tmp_path, capture_of(ran, late_ns=late_ns))
    rows = rows[rows["flags"] & TRAFFIC_FINISHED != 0]
    assert sorted(zip(rows["op"].tolist(), rows["channel"].tolist(), strict=True)) == [
        (op, channel) for op in range(1, OPS + 1) for channel in range(CHANNELS)
    ]
    assert (rows["n_bytes"] == OP_BYTES).all() and (rows["peer"] == 2).all() and (rows["comm_id"] == 0xC0FFEE).all()
    assert (rows["source"] == TRAFFIC_SOURCES.index("capture")).all() and (rows["nic"] == b"mlx5_0").all()
    assert f"{OPS} ops told from traces" in text and "cannot be told" not in text


def test_a_capture_that_begins_later_begins_with_an_op_it_has_whole(ran: Ran, tmp_path: Path) -> None:  # noqa: F811
    rows, _ = told(ran, tmp_path, capture_of(ran, first_op=3))
    assert sorted(set(rows["op"].tolist())) == [3, 4, 5]
    assert (rows["n_bytes"] == OP_BYTES).all()


def test_traces_of_other_ranks_tell_nothing_and_that_is_said(ran: Ran, tmp_path: Path) -> None:  # noqa: F811
    rows, text = told(ran, tmp_path, made.pcap([(10**9, made.ethernet(made.roce(1000)))]))
    assert not len(rows) and "which op the bytes belong to cannot be told" in text


def test_damaged_traces_are_counted_and_said(ran: Ran, tmp_path: Path) -> None:  # noqa: F811
    folder = tmp_path / "traces"
    shutil.copytree(ran.folder, folder)
    (segment,) = folder.glob("diogenes.*")
    segment.write_bytes(segment.read_bytes()[:5000])
    (folder / "diogenes-verbs.0.1.2").write_bytes(bytes(1000))
    (folder / "notes.txt").write_text("of no interest")
    rows, text = told(ran, tmp_path, capture_of(ran), folder)
    assert (rows["op"] == -1).all() and "2 trace files could not be read." in text and "cannot be told" in text


def test_a_verbs_file_that_is_cut_off_counts_to_its_last_whole_block(ran: Ran, tmp_path: Path) -> None:  # noqa: F811
    (path,) = ran.folder.glob("diogenes-verbs.*")
    raw, n = path.read_bytes(), len(list(blocks(path)))
    (tmp_path / path.name).write_bytes(raw[:-3])
    assert n > 1 and len(read_traces(tmp_path).pairs) == CHANNELS


def test_epochs_beyond_those_that_are_read_are_counted_and_ops_under_way_there_are_marked(
    ran: Ran,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "a.pcap").write_bytes(capture_of(ran))
    words = [str(tmp_path / "a.pcap"), "--traces", str(ran.folder), "--out", str(tmp_path / "a.npz")]
    assert main(words) == 0
    with np.load(tmp_path / "a.npz") as saved:
        whole, n_cells = saved["traffic"], len(saved["cells"])
    capsys.readouterr()
    monkeypatch.setattr(written, "CELLS_READ_MAX", n_cells // 2)
    assert main(words) == 0
    assert "epochs are beyond those in which ops are looked for" in capsys.readouterr().out
    with np.load(tmp_path / "a.npz") as saved:
        rows, counts = saved["traffic"], json.loads(str(saved["facts"]))["counts"]
    assert n_cells // 2 <= counts["epochs_unread"] < n_cells and 0 < len(rows) < len(whole)
    sound = rows[(rows["flags"] & TRAFFIC_INCOMPLETE) == 0]
    assert (rows["flags"] & TRAFFIC_INCOMPLETE).any() and (sound["n_bytes"] == OP_BYTES).all()


def test_without_a_folder_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(made.pcap([(10**9, made.ethernet(made.roce(1000)))]))
    done = run(tmp_path / "a.pcap", "--traces", tmp_path / "none")
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
    assert not (tmp_path / "a.pcap.epochs.npz").exists()


@pytest.mark.parametrize("length", [0xFFFFFFFF, 1 << 31, 300_000])
def test_a_packet_that_says_to_be_huge_ends_it_with_one_sentence(tmp_path: Path, length: int) -> None:
    good = made.pcap([(10**9, made.ethernet(made.roce(1000)))])
    (tmp_path / "a.pcap").write_bytes(good + struct.pack("<IIII", 2, 0, length, length) + bytes(100_000))
    done = run(tmp_path / "a.pcap")
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1 and b"byte" in done.stderr
