"""Whoever reads what a command says may stop reading: that is no traceback, and no success either."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.architecture.sources import ROOT


@pytest.mark.parametrize(
    "module",
    ["rca", "nccl_instrument.verbs", "nccl_instrument.captures", "nccl_instrument.simulate", "nccl_instrument.testbed"],
)
def test_a_reader_that_goes_away_is_no_traceback(module: str) -> None:
    command = [sys.executable, "-m", module, "--help"]
    buffered = {**os.environ, "PYTHONUNBUFFERED": ""}  # argparse itself ignores what fails at once
    with subprocess.Popen(command, cwd=ROOT, env=buffered, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout
        assert run.stderr
        run.stdout.close()
        said = run.stderr.read().decode()
        assert (run.wait(), "Traceback" in said, "BrokenPipe" in said) == (141, False, False), said
