"""The rank process under a sanitizer, and layouts other than the default: sums stay right, threads do not race."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.nccl_instrument.testbed.jobs import REPO, run_job

SOURCES = REPO / "nccl_instrument" / "testbed" / "src"


@pytest.mark.parametrize(
    "words",
    [
        ["--tp", "1", "--pp", "2", "--dp", "4", "--nics-per-node", "1"],
        ["--tp", "1", "--pp", "3", "--dp", "3", "--ranks-per-node", "3", "--world-kib", "1", "--dp-kib", "7"],
        ["--tp", "2", "--pp", "1", "--dp", "1"],
        ["--transport", "Socket", "--channels", "3"],
    ],
)
def test_other_layouts_move_the_right_numbers(engine: Path, tmp_path: Path, words: list[str]) -> None:
    done = run_job(tmp_path / "run", "--iterations", "2", *words)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.sanitizer
@pytest.mark.parametrize("sanitizer", ["thread", "address,undefined"])
def test_a_job_is_clean_under_a_sanitizer(tmp_path: Path, recorder: Path, sanitizer: str) -> None:
    binary = tmp_path / "dgrank"
    words = ["cc", "-std=c11", "-O1", "-g", f"-fsanitize={sanitizer}", *map(str, sorted(SOURCES.glob("*.c")))]
    built = subprocess.run(
        [*words, "-o", str(binary), "-lpthread", "-ldl"], capture_output=True, text=True, check=False
    )
    if "cannot find" in built.stderr:
        pytest.skip(f"this compiler has no {sanitizer} sanitizer")
    assert built.returncode == 0, built.stderr
    words = ["--engine", str(binary), "--iterations", "2", "--links", "paced", "--plugin", str(recorder)]
    done = run_job(tmp_path / "run", *words, RECORDER_FOLDER=str(tmp_path))
    said = "".join(path.read_text() for path in (tmp_path / "run").glob("rank*.log"))
    assert done.returncode == 0 and said == "", done.stdout + said
