"""A rule with a mistake in it costs the diagnosis what that rule would have said, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from rca import asked, diagnose
from rca.asked import Asking
from rca.settings import DEFAULT
from rca.slow import diagnose as slow
from rca.triggers.look import look
from rca.triggers.normal import Normal
from tests.rca.test_slowdown import diagnosed, recorded
from tests.windows import make_window


class TimeIsOver(Exception):
    """As a worker's limit is told."""


def broken(*_: Any) -> Any:
    return [][1]


def slow_rule(*_: Any) -> Any:
    raise TimeIsOver


def test_the_other_rules_are_heard_and_the_one_that_failed_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    window = make_window(nic_down=3)
    symptom = look(window, Normal(), DEFAULT).symptoms[0]
    whole = diagnose.diagnose(window, symptom)
    monkeypatch.setattr(asked, "fails_loudly", False)
    monkeypatch.setattr(diagnose, "RULES", (broken, *diagnose.RULES))
    found = diagnose.diagnose(window, symptom)
    assert found.culprits == whole.culprits == (3,) and found.findings == whole.findings
    assert set(found.missing) - set(whole.missing) == {
        "The rule test_asked failed (IndexError) and was not heard; the log says more."
    }


def test_in_tests_a_mistake_is_a_failure() -> None:
    with pytest.raises(IndexError):
        Asking().ask(broken)


def test_that_time_is_over_is_no_mistake_of_the_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asked, "fails_loudly", False)
    with pytest.raises(TimeIsOver):
        Asking().ask(slow_rule)


def test_rules_of_slowdowns_are_asked_the_same_way(monkeypatch: pytest.MonkeyPatch) -> None:
    window = recorded("nic_limit_1")
    whole = diagnosed(window)
    monkeypatch.setattr(asked, "fails_loudly", False)
    monkeypatch.setattr(slow, "RULES", ((broken, *slow.RULES[0]), *slow.RULES[1:]))
    found = diagnosed(window)
    assert found.culprits == whole.culprits == (1,)
    assert any(said.startswith("The rule test_asked failed") for said in found.missing)
