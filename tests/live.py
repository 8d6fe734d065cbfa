"""A live job under a whole stack of its own: training until something is to happen, and looking until something has."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import pytest

from console.supervisor.demo import LiveJob
from tests.eval.stack import RunningStack
from tests.servers import SETTINGS

TRAIN_SECONDS = 15.0
LOOK_SECONDS = 0.25
Found = TypeVar("Found")


@contextmanager
def own_stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningStack]:
    """A stack with servers of its own, not those of the tests."""
    for name in SETTINGS:
        monkeypatch.delenv(name, raising=False)
    with RunningStack() as running:
        yield running


def train(job: LiveJob) -> None:
    """Let the job run until what is usual is known of it; its agents are kept running meanwhile."""
    until = time.monotonic() + TRAIN_SECONDS
    while time.monotonic() < until:
        job.look()
        time.sleep(LOOK_SECONDS)


def looked_for(job: LiveJob, find: Callable[[], Found | None], seconds: float, what: Callable[[], object]) -> Found:
    """What `find` returns once it finds something. AssertionError after `seconds`, with what there is instead."""
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at:
        job.look()
        if (found := find()) is not None:
            return found
        time.sleep(LOOK_SECONDS)
    raise AssertionError(f"not found within {seconds:.0f} s: {what()}")
