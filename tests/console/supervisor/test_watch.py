"""A child that dies is started again, later each time; a demo that ends is let go."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.supervisor.children import Recipe
from console.supervisor.folder import claim
from console.supervisor.stack import Stack
from console.supervisor.watch import Watch


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def stack(tmp_path: Path, said: list[str]) -> Iterator[Stack]:
    made = Stack(claim(tmp_path), 8000, said.append)
    yield made
    made.stop()
    made.folder.release()


def wait_for_death(stack: Stack) -> None:
    stack.children[0].process.wait()


def test_a_dead_child_is_started_again_after_its_pause(stack: Stack, said: list[str]) -> None:
    stack.spawn(Recipe("sleeper", ["sleep", "600"]))
    first = stack.children[0]
    first.process.kill()
    wait_for_death(stack)
    watch, now = Watch(stack), time.monotonic()
    watch.look(stack.children[0], now)
    assert stack.children == [first]
    assert "sleeper died (exit -9); starting it again in 1 s" in said[0]
    watch.look(stack.children[0], now + 0.5)
    assert stack.children == [first]
    watch.look(stack.children[0], now + 1.5)
    assert stack.children[0].pid != first.pid
    assert stack.children[0].is_running()
    assert len(said) == 1


def test_the_pause_doubles_up_to_half_a_minute(stack: Stack, said: list[str]) -> None:
    stack.spawn(Recipe("broken", ["false"]))
    watch, now = Watch(stack), time.monotonic()
    for _ in range(7):
        wait_for_death(stack)
        watch.look(stack.children[0], now)
        now += 31
        watch.look(stack.children[0], now)
        stack.children[0].started_at = now  # the clock of this test is ahead of the real one
    pauses = [int(line.split(" again in ")[1].split()[0]) for line in said]
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_a_quiet_minute_forgets_earlier_deaths(stack: Stack, said: list[str]) -> None:
    stack.spawn(Recipe("broken", ["false"]))
    watch, now = Watch(stack), time.monotonic()
    wait_for_death(stack)
    watch.look(stack.children[0], now)
    watch.look(stack.children[0], now + 2)
    wait_for_death(stack)
    watch.look(stack.children[0], now + 300)
    assert [line.split(" again in ")[1].split(" s")[0] for line in said] == ["1", "1"]


def test_a_demo_that_ended_has_its_words_said_and_is_let_go(stack: Stack, said: list[str]) -> None:
    stack.spawn(Recipe("demo", ["sh", "-c", "echo demo: the job failed; echo noise; exit 3"]))
    wait_for_death(stack)
    watch = Watch(stack)
    watch.relay_demo()
    watch.relay_demo()
    watch.look(stack.children[0], time.monotonic())
    assert stack.children == []
    assert said[0] == "demo: the job failed"
    assert said[1].startswith("the demo is over, the console goes on; `make run` again for a new one; see ")
    assert len(said) == 2


def test_the_last_words_of_a_demo_are_said_though_it_died_since_the_last_look(stack: Stack, said: list[str]) -> None:
    stack.spawn(Recipe("demo", ["echo", "demo: goodbye"]))
    wait_for_death(stack)
    Watch(stack).look(stack.children[0], time.monotonic())
    assert said[0] == "demo: goodbye"
