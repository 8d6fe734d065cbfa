"""`python -m rca`: a saved window is diagnosed on any machine; anything else is refused in one sentence."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ingest.window import save_window
from rca.__main__ import main
from tests.windows import make_window


def test_a_hang_is_printed_with_culprit_victims_and_path(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_window(tmp_path / "w.npz", make_window(nic_down=3))
    assert main([str(tmp_path / "w.npz")]) == 0
    printed = capsys.readouterr().out
    assert "NIC nic1 of node1 is down: rank 3" in printed
    assert "waits for 3" in printed


def test_json_holds_the_whole_diagnosis(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_window(tmp_path / "w.npz", make_window(stuck_before=5))
    assert main([str(tmp_path / "w.npz"), "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)["diagnoses"]
    assert found["findings"][0]["culprits"] == [5]


def test_a_healthy_window_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_window(tmp_path / "w.npz", make_window())
    assert main([str(tmp_path / "w.npz")]) == 0
    assert "Nothing is wrong" in capsys.readouterr().out


def test_a_window_of_which_something_cannot_be_read_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_window(tmp_path / "w.npz", replace(make_window(), unreadable={"node2": 7}))
    assert main([str(tmp_path / "w.npz")]) == 0
    assert "cannot be read: 7 table groups of node2" in capsys.readouterr().out


def test_a_file_that_is_no_window_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "other.npz", a=np.zeros(3))
    assert main([str(tmp_path / "other.npz")]) == 2
    assert len(capsys.readouterr().err.strip().splitlines()) == 1


def test_it_needs_nothing_but_numpy(tmp_path: Path) -> None:
    save_window(tmp_path / "w.npz", make_window(frozen=2))
    code = "import sys; from rca.__main__ import main; main(sys.argv[1:]); print(sorted(m for m in sys.modules if m == 'django'))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "w.npz")], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip().endswith("[]")
