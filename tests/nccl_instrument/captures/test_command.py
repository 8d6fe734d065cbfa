"""The command, as it is run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from nccl_instrument.flows.segmentation import segment
from tests.nccl_instrument.captures import made

ROOT = Path(__file__).parents[3]
SECOND = 10**9


def run(*arguments: str | Path, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    words = [sys.executable, "-m", "nccl_instrument.captures", *map(str, arguments)]
    return subprocess.run(words, cwd=ROOT, input=stdin, capture_output=True, check=False)


def bursts(*starts_ns: int, source: str = made.A) -> bytes:
    """Four packets of 1,000 bytes at each start, 32 µs apart."""
    at = [start + i * 32_000 for start in starts_ns for i in range(4)]
    return made.pcap([(SECOND + ns, made.ethernet(made.roce(1000, source=source, psn=i))) for i, ns in enumerate(at)])


def test_rates_peers_and_gaps_are_printed_and_that_ops_cannot_be_told(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(bursts(0, 10_000_000))
    done = run(tmp_path / "a.pcap")
    text = done.stdout.decode()
    assert done.returncode == 0, done.stderr
    assert "8 packets, 8 of RoCEv2; 1 flows, 1 with payload; 8 epochs of 32 µs." in text
    assert "10.0.0.1 → 10.0.0.2 0x000007" in text
    assert "0.25" in text  # 1,000 bytes in 32 µs
    assert "9.86 ms" in text
    assert "10.0.0.1 sends to 10.0.0.2: 8,000 bytes on 1 queue pairs" in text
    assert "cannot be told without an op source" in text


def test_the_file_is_what_segmentation_reads(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(bursts(0, 10_000_000))
    run(tmp_path / "a.pcap", "--out", tmp_path / "e.npz")
    with np.load(tmp_path / "e.npz") as saved:
        cells, facts = saved["cells"], json.loads(str(saved["facts"]))
        assert saved["flows"]["bytes"].tolist() == [8000]
    epoch_ns = facts["epoch_ns"]
    found = segment(cells["epoch"], cells["bytes"], [4000, 4000], epoch_ns=epoch_ns, now_ns=2 * SECOND)
    assert [(one.n_bytes, one.is_finished, one.is_cut) for one in found] == [(4000, True, False)] * 2


def test_several_files_are_one_capture_and_standard_input_is_one_of_them(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(bursts(0))
    done = run(tmp_path / "a.pcap", "-", "--out", tmp_path / "e.npz", "--json", stdin=bursts(0, source=made.C))
    assert json.loads(done.stdout)["counts"]["packets_roce"] == 8
    with np.load(tmp_path / "e.npz") as saved:
        assert saved["flows"]["source"].tolist() == [b"10.0.0.1", b"10.0.0.3"]


def test_a_file_that_is_no_capture_is_named_and_nothing_is_left_behind(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("no capture")
    done = run(tmp_path / "a.txt")
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr.decode() == f"{tmp_path / 'a.txt'}: the file is neither pcap nor pcapng\n"
    assert [one.name for one in tmp_path.iterdir()] == ["a.txt"]


def test_a_missing_file_and_settings_that_cannot_be_are_clear_errors(tmp_path: Path) -> None:
    done = run(tmp_path / "none.pcap", "--out", tmp_path / "e.npz")
    assert (done.returncode, b"No such file" in done.stderr) == (2, True)
    for words in (["--epoch-us", "5"], ["--gap-ms", "nan"], ["--flows", "0"], ["--epochs", "-1"]):
        done = run("x", *words)
        assert (done.returncode, words[0].encode() in done.stderr) == (2, True)


def test_a_capture_without_roce_says_so_by_its_status(tmp_path: Path) -> None:
    (tmp_path / "a.pcap").write_bytes(made.pcap([(0, made.ethernet(made.roce(port=53)))]))
    done = run(tmp_path / "a.pcap")
    assert (done.returncode, b"0 of RoCEv2" in done.stdout) == (1, True)
