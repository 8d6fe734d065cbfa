"""`manage.py` itself: whoever reads its output may stop reading."""

from __future__ import annotations

import subprocess
import sys

from tests.architecture.sources import ROOT


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = [sys.executable, str(ROOT / "manage.py"), "help", "--commands"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as run:
        assert run.stdout
        assert run.stderr
        run.stdout.close()  # as `| head` does when it has seen enough
        said = run.stderr.read().decode()
        assert (run.wait(), "Traceback" in said, "BrokenPipe" in said) == (141, False, False)
