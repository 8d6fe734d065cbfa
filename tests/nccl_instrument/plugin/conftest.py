"""Builds the plugin and its driver once per test session."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.nccl_instrument.plugin.driver import PLUGIN_FOLDER, Built, Driver


def _build(target: str, folder: str, **environment: str) -> Built:
    done = subprocess.run(["make", "-s", "-C", PLUGIN_FOLDER, target], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Built(PLUGIN_FOLDER / folder, environment)


@pytest.fixture(scope="session")
def plugin() -> Built:
    return _build("all", "build")


@pytest.fixture(scope="session")
def plugin_asan() -> Built:
    return _build("asan", "build/asan", ASAN_OPTIONS="detect_leaks=0")


@pytest.fixture(scope="session")
def plugin_tsan() -> Built:
    return _build("tsan", "build/tsan", TSAN_OPTIONS="halt_on_error=1:die_after_fork=0")


@pytest.fixture
def drive(plugin: Built, tmp_path: Path) -> Iterator[Callable[..., Driver]]:
    """drive(abi, script, **environment): a driver that is gone when the test is over."""
    with ExitStack() as running:

        def start(
            abi: int, script: str, built: Built = plugin, wrap: tuple[str, ...] = (), **environment: str
        ) -> Driver:
            folder = Path(environment.get("DIOGENES_SEGMENT_DIR", tmp_path))
            return running.enter_context(Driver(built, abi, script, folder, wrap, **environment))

        yield start
