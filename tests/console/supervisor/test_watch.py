"""A child that dies is started again, later each time; a demo that ends is let go."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from signal import SIGTERM, getsignal, raise_signal, signal

import pytest

from console.supervisor.children import Recipe
from console.supervisor.folder import claim
from console.supervisor.stack import Stack
from console.supervisor.watch import STOP_SIGNALS, Stopped, Watch, stop_on_signals


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


def test_a_dead_child_is_started_again_at_once(stack: Stack, said: list[str]) -> None:
    stack.spawn(Recipe("sleeper", ["sleep", "600"]))
    first = stack.children[0]
    first.process.kill()
    wait_for_death(stack)
    Watch(stack).look(first, time.monotonic())
    assert stack.children[0].pid != first.pid
    assert stack.children[0].is_running()
    assert len(said) == 1
    assert "sleeper died (exit -9); starting it again now" in said[0]


def test_one_that_keeps_dying_is_started_again_later_each_time(stack: Stack, said: list[str]) -> None:
    stack.spawn(Recipe("broken", ["false"]))
    watch, now = Watch(stack), time.monotonic()
    for _ in range(7):
        dead = stack.children[0]
        wait_for_death(stack)
        watch.look(dead, now)
        if stack.children[0] is dead:
            watch.look(dead, now + 0.9)
            assert stack.children == [dead]  # the shortest pause is a second
        now += 11
        watch.look(stack.children[0], now)
        stack.children[0].started_at = now  # the clock of this test is ahead of the real one
    pauses = [line.split(" again ")[1].split(";")[0] for line in said]
    assert pauses == ["now", "in 1 s", "in 2 s", "in 4 s", "in 8 s", "in 10 s", "in 10 s"]


def test_a_quiet_minute_forgets_earlier_deaths(stack: Stack, said: list[str]) -> None:
    stack.spawn(Recipe("broken", ["false"]))
    watch, now = Watch(stack), time.monotonic()
    wait_for_death(stack)
    watch.look(stack.children[0], now)
    wait_for_death(stack)
    watch.look(stack.children[0], now + 300)
    assert [line.split(" again ")[1].split(";")[0] for line in said] == ["now", "now"]


def test_a_child_that_is_held_stays_down_until_it_is_let_go(stack: Stack, said: list[str]) -> None:
    held = stack.folder.path / "held" / "sleeper"
    held.parent.mkdir()
    held.touch()
    stack.spawn(Recipe("sleeper", ["sleep", "600"]))
    first = stack.children[0]
    first.process.kill()
    wait_for_death(stack)
    watch, now = Watch(stack), time.monotonic()
    for later in (0, 100, 200):
        watch.look(first, now + later)
    assert stack.children == [first]
    assert [f"starting it again when {held} is removed" in line for line in said] == [True]
    held.unlink()
    watch.look(first, now + 201)
    assert stack.children[0].is_running()


def test_a_hold_ends_a_running_child_and_its_removal_starts_it_at_once(stack: Stack, said: list[str]) -> None:
    stack.spawn(Recipe("sleeper", ["sleep", "600"], answers=lambda child: True))
    watch, first, now = Watch(stack), stack.children[0], time.monotonic()
    held = stack.folder.hold_of("sleeper")
    held.parent.mkdir()
    for _ in range(3):  # holding a part is no death: there is no pause however often
        held.touch()
        watch.look(stack.children[0], now)
        wait_for_death(stack)
        watch.look(stack.children[0], now)
        assert not stack.children[0].is_running()
        held.unlink()
        watch.look(stack.children[0], now)
        watch.look(stack.children[0], now)
    assert stack.children[0].pid != first.pid
    assert said[0] == f"sleeper is held by {held}: ending it"
    assert said[1].startswith(f"sleeper ended (exit -15); starting it again when {held} is removed; see ")
    assert said[2] == "sleeper is back"
    assert len(said) == 9


def test_a_held_child_that_does_not_listen_is_killed(stack: Stack) -> None:
    stack.spawn(Recipe("deaf", ["sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done"], stop_seconds=2.0))
    while "up" not in stack.children[0].log_text():
        time.sleep(0.02)
    stack.folder.hold_of("deaf").parent.mkdir()
    stack.folder.hold_of("deaf").touch()
    watch, now = Watch(stack), time.monotonic()
    for later in (0.0, 0.1, 3.0):
        watch.look(stack.children[0], now + later)
    wait_for_death(stack)
    assert stack.children[0].process.returncode == -9


def test_a_hold_that_names_no_part_is_said_once(stack: Stack, said: list[str]) -> None:
    stack.spawn(Recipe("sleeper", ["sleep", "600"]))
    stack.folder.hold_of("sleper").parent.mkdir()
    stack.folder.hold_of("sleper").touch()
    watch = Watch(stack)
    watch.name_strange_holds()
    watch.name_strange_holds()
    assert said == [f"{stack.folder.hold_of('sleper')} holds nothing: the parts are sleeper"]


def test_a_demo_that_ended_has_its_words_said_and_is_let_go(stack: Stack, said: list[str]) -> None:
    stack.spawn(Recipe("demo", ["sh", "-c", "echo demo: the job failed; echo noise; exit 3"]))
    wait_for_death(stack)
    watch = Watch(stack)
    watch.relay_demo()
    watch.relay_demo()
    watch.look(stack.children[0], time.monotonic())
    assert stack.children == []
    assert said[0] == "demo: the job failed"
    assert said[1].startswith(
        "the demo ended by itself (exit 3), the console goes on; `make run` again for a new one; see "
    )
    assert len(said) == 2


def test_a_demo_that_was_killed_is_not_said_to_be_over(stack: Stack, said: list[str]) -> None:
    stack.spawn(Recipe("demo", ["sh", "-c", "kill -9 $$"]))
    wait_for_death(stack)
    Watch(stack).look(stack.children[0], time.monotonic())
    assert said[0].startswith("the demo was killed (signal 9), the console goes on; ")


def test_the_last_words_of_a_demo_are_said_though_it_died_since_the_last_look(stack: Stack, said: list[str]) -> None:
    stack.spawn(Recipe("demo", ["echo", "demo: goodbye"]))
    wait_for_death(stack)
    Watch(stack).look(stack.children[0], time.monotonic())
    assert said[0] == "demo: goodbye"


def test_a_child_that_cannot_be_started_now_is_tried_again(stack: Stack, said: list[str], tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nsleep 600\n")
    program.chmod(0o700)
    stack.spawn(Recipe("program", [str(program)]))
    first = stack.children[0]
    program.rename(tmp_path / "away")
    first.kill()
    wait_for_death(stack)
    watch, now = Watch(stack), time.monotonic()
    watch.look(first, now)
    assert "program cannot be started" in said[1]
    (tmp_path / "away").rename(program)
    watch.look(first, now + 20)
    assert stack.children[0].is_running()


class AskedToStop:
    """Popen's own lock; somebody asks us to stop just when it is taken."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def acquire(self, blocking: bool = True) -> bool:
        is_taken = self.lock.acquire(blocking)
        raise_signal(SIGTERM)
        return is_taken

    def release(self) -> None:
        self.lock.release()

    def __enter__(self) -> None:
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


def test_whoever_is_asked_to_stop_while_looking_at_a_child_can_still_stop_it(stack: Stack) -> None:
    before = {signum: getsignal(signum) for signum in STOP_SIGNALS}
    stop_on_signals()
    try:
        stack.spawn(Recipe("sleeper", ["sleep", "600"]))
        child = stack.children[0]
        asked = AskedToStop()
        child.process._waitpid_lock = asked  # type: ignore[attr-defined]
        with suppress(Stopped):
            assert child.is_running()
            child.ask_to_stop()
        assert not asked.lock.locked()
        assert child.exit_code() == -SIGTERM
        assert not child.is_running()
    finally:
        for signum, handler in before.items():
            signal(signum, handler)


def test_a_child_that_somebody_else_waited_for_is_over(stack: Stack) -> None:
    """As a stop signal leaves it that raises after the child was waited for and before its code was noted."""
    stack.spawn(Recipe("broken", ["false"]))
    os.waitpid(stack.children[0].pid, 0)
    assert not stack.children[0].is_running()
    stack.children[0].stop()
