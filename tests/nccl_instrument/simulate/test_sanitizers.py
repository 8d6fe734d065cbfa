"""The engine touches no memory that is not its own, whatever befalls the job."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nccl_instrument.simulate.engine import HERE

REPO = HERE.parents[1]
FLAGS = ["-std=c11", "-g", "-O1", "-fPIC", "-shared", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


@pytest.mark.sanitizer
def test_jobs_with_faults_run_clean_under_address_and_undefined_sanitizers(tmp_path: Path) -> None:
    library = tmp_path / "libdgsim.so"
    compiler = os.environ.get("CC", "gcc")
    sources = sorted(str(path) for path in (HERE / "src").glob("*.c"))
    subprocess.run([compiler, *FLAGS, *sources, "-o", str(library)], check=True)
    runtime = subprocess.run([compiler, "-print-file-name=libasan.so"], capture_output=True, text=True, check=True)
    done = subprocess.run(
        [sys.executable, "-m", "tests.nccl_instrument.simulate.sanitized", str(library), "10"],
        cwd=REPO,
        env=os.environ | {"LD_PRELOAD": runtime.stdout.strip(), "ASAN_OPTIONS": "detect_leaks=0"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0 and "clean" in done.stdout, done.stderr[-3000:]
