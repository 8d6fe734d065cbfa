"""The measurement core, built."""

from __future__ import annotations

import subprocess

import pytest

from nccl_instrument.measure.meter import LIBRARY


@pytest.fixture(scope="session", autouse=True)
def built() -> None:
    subprocess.run(["make", "-s", "-C", LIBRARY.parents[1]], check=True)
