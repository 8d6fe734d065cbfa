"""Raw epochs, once, for real: a live job slows down, its nodes are asked for their epochs, and what is drawn is what was sent.

The whole stack, the testbed with the real plugin, real agents; the curves are held against the engine's own log of what it handed
to its links, of which neither plugin nor agent knows.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from console.supervisor.demo import LiveJob
from tests.eval.stack import RunningStack
from tests.live import looked_for, own_stack, train
from tests.nccl_instrument.testbed.sent import read_sent

pytestmark = pytest.mark.live

GIVE_UP_SECONDS = 120.0
VICTIM = 2


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[RunningStack]:
    (tmp_path / "sent").mkdir()
    monkeypatch.setenv("DIOGENES_TESTBED_SENT", str(tmp_path / "sent"))
    with own_stack(monkeypatch) as running:
        yield running


def test_epochs_of_a_slow_job_are_fetched_and_drawn_as_they_were_sent(stack: RunningStack, tmp_path: Path) -> None:
    job = LiveJob(stack.ingest_url, stack.agent_token_file, tmp_path, "epochs-test")
    try:
        job.start()
        train(job)
        job.inject("nic_limit", VICTIM)
        drawn = wait_for_epochs(stack, job)
    finally:
        job.stop()
    assert drawn["source"] == "plugin" and drawn["silent"] == []
    assert drawn["iteration"] in [one["number"] for one in drawn["iterations"]]
    curves = [one for one in drawn["figure"]["data"] if one["name"].startswith("rate")]
    assert len(curves) == len(drawn["ranks"]) > 1
    for curve, n_bytes in zip(curves, sent_in(drawn, tmp_path / "sent"), strict=True):
        assert under(curve) == pytest.approx(n_bytes, rel=0.02)


def wait_for_epochs(stack: RunningStack, job: LiveJob) -> dict[str, Any]:
    """The answer of the incident's first request once all nodes of the group have answered."""
    said: list[dict[str, Any]] = []

    def answered() -> dict[str, Any] | None:
        numbers = [incident["number"] for incident in stack.incidents(job.job)]
        said[:] = [stack.get(f"incidents/{number}/network/epochs?rank={VICTIM}") for number in numbers]
        return next((one for one in said if one["request"] is not None and not one["silent"]), None)

    return looked_for(job, answered, GIVE_UP_SECONDS, lambda: said)


def sent_in(drawn: dict[str, Any], folder: Path) -> list[int]:
    """Bytes that each of the ranks sent in the group in the stretch that is drawn, by its engine."""
    zero_ns = int(datetime.fromisoformat(drawn["asked_at"].replace("Z", "+00:00")).timestamp() * 1e6) * 1000
    zero_ns -= time.time_ns() - time.monotonic_ns()
    from_ns, until_ns = (zero_ns + 1000 * drawn[name] for name in ("from_us", "until_us"))
    slices = read_sent(folder)
    slices = slices[slices["comm_id"] == np.uint64(int(drawn["group"], 16))]
    middle_ns = (slices["began_after_ns"] // 2 + slices["ended_before_ns"] // 2).astype(np.int64)
    slices = slices[(middle_ns > from_ns) & (middle_ns < until_ns)]
    return [int(slices["bytes"][slices["rank"] == rank].sum()) for rank in drawn["ranks"]]


def under(curve: dict[str, Any]) -> float:
    """Bytes under a curve of steps: GB/s over ms."""
    at_ms, rate = (np.array([value or 0.0 for value in curve[axis]]) for axis in ("x", "y"))
    return float((rate[:-1] * np.diff(at_ms)).sum() * 1e6)
