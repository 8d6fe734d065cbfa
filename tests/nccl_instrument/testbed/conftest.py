"""The rank process and the recorder plugin, built once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.nccl_instrument.testbed.jobs import REPO

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="session")
def engine() -> Path:
    subprocess.run(["make", "-s", "-C", str(REPO / "nccl_instrument" / "testbed")], check=True)
    return REPO / "nccl_instrument" / "testbed" / "build" / "dgrank"


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("recorder") / "librecorder.so"
    words = ["cc", "-std=gnu11", "-O1", "-fPIC", "-shared", "-pthread", "-w", str(HERE / "recorder.c")]
    subprocess.run([*words, "-o", str(library)], check=True)
    return library
