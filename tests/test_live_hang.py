"""The spine, once, for real: a live job hangs, and the incident names who started it.

The whole stack as `manage.py up` runs it, the testbed with the real plugin, real agents; the console is only asked
through its REST API. The accuracy suites (`make eval`) repeat this for every fault and many victims.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.supervisor.demo import LiveJob
from tests.eval.stack import RunningStack
from tests.live import looked_for, own_stack, train

pytestmark = pytest.mark.live

GIVE_UP_SECONDS = 90.0


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningStack]:
    with own_stack(monkeypatch) as running:
        yield running


def wait_for_diagnosis(stack: RunningStack, job: LiveJob) -> dict[str, Any]:
    def diagnosed() -> dict[str, Any] | None:
        return next((one for one in stack.incidents(job.job) if one["certainty"] == "diagnosed"), None)

    return looked_for(job, diagnosed, GIVE_UP_SECONDS, lambda: stack.incidents(job.job))


def test_a_frozen_rank_hangs_the_job_and_the_incident_names_it(stack: RunningStack, tmp_path: Path) -> None:
    victim = random.randrange(8)
    job = LiveJob(stack.ingest_url, stack.agent_token_file, tmp_path, "live-test")
    try:
        job.start()
        train(job)
        assert stack.incidents(job.job) == []
        job.inject("rank_frozen", victim)
        incident = wait_for_diagnosis(stack, job)
    finally:
        job.stop()
    assert incident["culprits"] == [victim]
    assert incident["component"] == "process"
    assert incident["state"] == "open"
    assert incident["n_victims"] == 7
