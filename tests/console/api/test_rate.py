"""How often one caller may ask: beyond it 429 with Retry-After, counted, and nobody else is held up."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from redis.exceptions import ConnectionError as Away

from console.accounts import rate
from console.operations.metrics import API_REFUSED
from tests.console.conftest import Persona

pytestmark = pytest.mark.usefixtures("valkey")


@pytest.fixture(autouse=True)
def few(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.API_REQUESTS_PER_MINUTE = 3
    monkeypatch.setattr(rate.time, "time", lambda: 1_800_000_015.0)


def ask(who: Persona) -> Any:
    return who.browser.get("/api/v1/session")


def test_who_asks_too_often_waits_for_the_next_minute(viewer: Persona, monkeypatch: pytest.MonkeyPatch) -> None:
    before = API_REFUSED._value.get()
    assert [ask(viewer).status_code for _ in range(3)] == [200, 200, 200]
    refused = ask(viewer)
    assert (refused.status_code, refused.json()["code"], refused.headers["Retry-After"]) == (429, "throttled", "45")
    assert API_REFUSED._value.get() == before + 1
    monkeypatch.setattr(rate.time, "time", lambda: 1_800_000_060.0)
    assert ask(viewer).status_code == 200


def test_one_callers_haste_holds_nobody_else_up(viewer: Persona, responder: Persona) -> None:
    assert [ask(viewer).status_code for _ in range(5)][-1] == 429
    assert ask(responder).status_code == 200


def test_while_the_cache_is_away_nobody_is_refused(viewer: Persona, monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*args: Any) -> None:
        raise Away

    monkeypatch.setattr(cache, "add", away)
    assert [ask(viewer).status_code for _ in range(5)] == [200] * 5
