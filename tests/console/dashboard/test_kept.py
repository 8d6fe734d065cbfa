"""An answer that is kept for some seconds: one reading for all who ask, and no more than a reading when Valkey is away."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.core.cache import cache

from console.dashboard import kept
from console.dashboard.kept import Busy, kept_once
from console.operations.metrics import KEPT_ANSWERS
from tests.servers import TestServers

LIMIT_S = 60


@pytest.fixture(autouse=True)
def empty(valkey: TestServers) -> Iterator[None]:
    cache.clear()
    yield
    cache.clear()


def counted(how: str) -> float:
    return float(KEPT_ANSWERS.labels(how)._value.get())


class Slow:
    """A reading that lasts until it is let go."""

    def __init__(self) -> None:
        self.n_read, self.begun, self.go_on = 0, threading.Event(), threading.Event()

    def __call__(self) -> str:
        self.n_read += 1
        self.begun.set()
        assert self.go_on.wait(LIMIT_S)
        return "read"


@pytest.fixture
def seen_waiting(monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """Set when somebody has been told that another reads, and waits."""
    waits, real = threading.Event(), kept._waited

    def told(key: str, token: str) -> Any:
        waits.set()
        return real(key, token)

    monkeypatch.setattr(kept, "_waited", told)
    return waits


def never() -> str:
    raise AssertionError("nobody should read")


def test_who_asks_later_is_given_what_was_read_also_when_that_is_none() -> None:
    read: list[int] = []
    assert [kept_once("x", lambda: read.append(1), 60) for _ in range(3)] == [None] * 3 and len(read) == 1


def test_who_asks_while_it_is_read_waits_for_that_reading(
    seen_waiting: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept, "WAIT_SECONDS", LIMIT_S)
    slow = Slow()
    with ThreadPoolExecutor(2) as others:
        first = others.submit(kept_once, "x", slow, 60)
        assert slow.begun.wait(LIMIT_S)
        second = others.submit(kept_once, "x", slow, 60)
        assert seen_waiting.wait(LIMIT_S)
        assert not second.done()
        slow.go_on.set()
        assert (first.result(LIMIT_S), second.result(LIMIT_S)) == ("read", "read")
    assert slow.n_read == 1


def test_who_would_wait_too_long_is_told_to_come_back_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "WAIT_SECONDS", 0.0)
    cache.add("x:reading", "somebody", 60)
    before = counted("busy")
    with pytest.raises(Busy) as refused:
        kept_once("x", never, 60)
    assert (refused.value.status_code, refused.value.get_codes()) == (503, "busy")
    assert counted("busy") == before + 1


def test_no_more_wait_than_there_are_places(monkeypatch: pytest.MonkeyPatch, seen_waiting: threading.Event) -> None:
    monkeypatch.setattr(kept, "_waiters", threading.BoundedSemaphore(1))
    cache.add("x:reading", "somebody", 60)
    assert kept._waiters.acquire(blocking=False)
    with pytest.raises(Busy):
        kept_once("x", never, 60)
    assert not seen_waiting.is_set()


def test_what_is_no_longer_fresh_is_given_while_it_is_read_anew_where_that_is_allowed() -> None:
    cache.set("x", (0.0, "old"), 60)
    cache.add("x:reading", "somebody", 60)
    assert kept_once("x", never, 60, 60) == "old"
    cache.delete("x:reading")
    assert kept_once("x", lambda: "new", 60, 60) == "new" == kept_once("x", never, 60)


def test_a_reading_that_fails_leaves_the_way_free() -> None:
    with pytest.raises(AssertionError):
        kept_once("x", never, 60)
    assert kept_once("x", lambda: "now", 60) == "now"


def test_a_lock_that_ran_out_and_is_somebody_elses_by_now_is_left_to_them() -> None:
    def slower_than_its_lock() -> str:
        cache.set("x:reading", "somebody else", 60)
        return "read"

    assert kept_once("x", slower_than_its_lock, 60) == "read"
    assert cache.get("x:reading") == "somebody else"


def test_while_valkey_is_away_everybodys_answer_is_made_for_them(settings: Any) -> None:
    settings.CACHES = {"default": {**settings.CACHES["default"], "LOCATION": "redis://127.0.0.1:9/0"}}
    read: list[int] = []
    before = counted("alone")
    assert [kept_once("x", lambda: read.append(1), 60) for _ in range(2)] == [None] * 2
    assert len(read) == 2 and counted("alone") == before + 2


def test_an_answer_says_itself_for_how_long_it_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "TIMES_KEPT", -1.0)

    def fresh_s(made: str) -> float:
        return 60.0 if made == "settled" else -1.0

    assert [kept_once("x", lambda: "settled", fresh_s), kept_once("x", never, 60)] == ["settled"] * 2
    assert [kept_once("y", lambda: "moving", fresh_s), kept_once("y", lambda: "again", 60)] == ["moving", "again"]
