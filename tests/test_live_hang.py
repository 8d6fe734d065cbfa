"""The spine, once, for real: a live job hangs, and the incident names who started it.

The whole stack as `manage.py up` runs it, the testbed with the real plugin, real agents; the console is only asked
through its REST API. The accuracy suites (`make eval`) repeat this for every fault and many victims.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from console.supervisor.demo import LiveJob
from tests.eval.stack import RunningStack
from tests.servers import SETTINGS

pytestmark = pytest.mark.live

TRAIN_SECONDS = 15.0
GIVE_UP_SECONDS = 90.0


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningStack]:
    """A stack with servers of its own, not those of the tests."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    with RunningStack() as running:
        yield running


def wait_for_diagnosis(stack: RunningStack, job: LiveJob) -> dict[str, Any]:
    give_up_at = time.monotonic() + GIVE_UP_SECONDS
    while time.monotonic() < give_up_at:
        job.look()
        for incident in stack.incidents(job.job):
            if incident["certainty"] == "diagnosed":
                return incident
        time.sleep(0.25)
    raise AssertionError(f"no diagnosis within {GIVE_UP_SECONDS:.0f} s: {stack.incidents(job.job)}")


def test_a_frozen_rank_hangs_the_job_and_the_incident_names_it(stack: RunningStack, tmp_path: Path) -> None:
    victim = random.randrange(8)
    job = LiveJob(stack.ingest_url, stack.agent_token_file, tmp_path, "live-test")
    try:
        job.start()
        trained_until = time.monotonic() + TRAIN_SECONDS
        while time.monotonic() < trained_until:
            job.look()
            time.sleep(0.25)
        assert stack.incidents(job.job) == []
        job.inject("rank_frozen", victim)
        incident = wait_for_diagnosis(stack, job)
    finally:
        job.stop()
    assert incident["culprits"] == [victim]
    assert incident["component"] == "process"
    assert incident["state"] == "open"
    assert incident["n_victims"] == 7
