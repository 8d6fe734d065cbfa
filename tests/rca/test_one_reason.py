"""Why nothing came of a process is told once, however many things were asked of it."""

from __future__ import annotations

from dataclasses import replace

from nccl_instrument.dumps import NO_PYTHON, Silent
from rca.dumps.dumped import with_dumps
from tests.rca.test_dumped import LOAD, WAIT, looked, of_traces


def test_a_process_without_python_has_one_reason_why_nothing_came_of_it() -> None:
    why = f"{NO_PYTHON}, so it has no Python stack"
    silent = [Silent(rank, "n", "stacks", why) for rank in (0, 1)]
    silent += [Silent(0, "n", "recorder", "no answer within the time; tried torch's dump file")]
    silent += [Silent(2, "n", "recorder", "no answer within the time; tried torch's dump file")]
    missing = with_dumps(of_traces((2,)), replace(looked(WAIT, WAIT, LOAD), silent=silent)).missing
    assert f"No stacks of ranks 0 and 1: {why}." in missing
    assert f"No flight recorder of rank 0: {NO_PYTHON}, so it has no flight recorder." in missing
    assert "No flight recorder of rank 2: no answer within the time; tried torch's dump file." in missing
