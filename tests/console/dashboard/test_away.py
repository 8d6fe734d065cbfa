"""While the database is away, pages and scripts are told so."""

from __future__ import annotations

import pytest
from django.db import DataError, OperationalError
from django.test import Client

from tests.console.conftest import Persona


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> Exception:
    """The database dies when a view needs it."""
    error = OperationalError("the connection is lost")

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("console.dashboard.api.caller_of", fail)
    monkeypatch.setattr("django.contrib.sessions.backends.db.SessionStore.load", fail)
    return error


def test_a_script_gets_503_and_a_sentence(responder: Persona, broken: Exception) -> None:
    answer = responder.browser.get("/api/v1/jobs")
    assert (answer.status_code, answer["Retry-After"]) == (503, "5")
    assert answer.json()["code"] == "database_away"
    assert "does not answer" in answer.json()["error"]


def test_a_page_says_it_and_asks_again(responder: Persona, broken: Exception) -> None:
    browser = Client()
    browser.cookies["sessionid"] = "a" * 32
    answer = browser.get("/")
    assert answer.status_code == 503
    shown = answer.content.decode()
    assert 'http-equiv="refresh" content="5"' in shown
    assert "does not answer" in shown
    assert 'class="brand" href="/"' in shown
    assert "signin.css" in shown, "it looks like the other pages that the server draws"


def test_a_bug_is_not_called_an_outage(responder: Persona, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise DataError("a bug of ours")

    monkeypatch.setattr("console.dashboard.api.caller_of", fail)
    with pytest.raises(DataError):
        responder.browser.get("/api/v1/jobs")
