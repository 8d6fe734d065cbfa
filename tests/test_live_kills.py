"""One death of every server of a running stack, under load, with an incident open: nothing that counts is lost.

The short form of `make eval SUITE=kills`, which kills every part three times and keeps the database away for ten minutes.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.supervisor.demo import LiveJob
from tests.eval import kills
from tests.eval.kills_browser import Browser
from tests.eval.kills_load import Load
from tests.eval.spine import wait_for_data
from tests.eval.stack import RunningStack
from tests.servers import SETTINGS

pytestmark = [pytest.mark.live, pytest.mark.timeout(1200)]  # each death is waited for up to two minutes

SERVERS = ["web", "ingest", "looks", "urgent", "worker", "beat", "valkey", "postgres"]
NODES = 8


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningStack]:
    """A stack with servers of its own, not those of the tests."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(kills, "REST_SECONDS", (0.5, 1.0))
    with RunningStack() as running:
        yield running


def test_whichever_server_dies_nothing_acknowledged_is_lost_and_everything_comes_back(
    stack: RunningStack, tmp_path: Path
) -> None:
    draw = random.Random()
    job = LiveJob(stack.ingest_url, stack.agent_token_file, tmp_path / "job", kills.HUNG)
    link = stack.manage("signin_link").splitlines()[-1]
    with (
        Load(stack.ingest_url, stack.agent_token_file, tmp_path / "load", NODES) as load,
        Browser(stack.port, link) as browser,
    ):
        try:
            job.start()
            drill = kills.Drill(stack, load, job, browser, draw)
            wait_for_data(stack, kills.HUNG)
            drill.rest(kills.TRAIN_SECONDS)
            kills.run(drill, draw.sample(SERVERS, len(SERVERS)), 0, job)
            drained = drill.drain()
            verdict = kills.judge(drill)
        finally:
            job.stop()
    assert [str(one) for one in drill.recoveries if one.seconds is None] == []
    assert drained is not None
    assert verdict["batches_acknowledged"] > NODES * kills.TRAIN_SECONDS / 2
    # The incident opens after a quarter of the deaths: its acknowledgement, and a comment after each later one.
    assert verdict["acts"] == 1 + len(SERVERS) - len(SERVERS) // 4
    counted = ("batches_lost", "batches_repeated", "incidents_lost", "false_incidents", "faults")
    assert {name: verdict[name] for name in counted} == dict.fromkeys(counted, 0)
