"""Matchers: what they fit, and what they must never fit."""

from __future__ import annotations

from typing import Any

import pytest

from console.silences.matching import BadMatcher, fits, matchers_to_json, read_matchers, stored_matchers

SAID = {
    "job": ("llama-70b",), "node": ("r1n3", "r1n4"), "rack": ("r1",), "cluster": (), "symptom": ("failure",),
    "component": (), "incident": ("12",),
}  # fmt: skip


def one(field: str, *values: str, is_not: bool = False) -> dict[str, Any]:
    return {"field": field, "values": list(values), "is_not": is_not}


@pytest.mark.parametrize(
    ("raw", "is_covered"),
    [
        ([one("node", "r1n3")], False),  # the other blamed node is not silenced
        ([one("component", "nic")], False),  # nobody knows the component
        ([one("component", "nic", is_not=True), one("job", "llama*")], False),
        ([one("job", "llama")], False),
        ([one("job", "llama-70b"), one("symptom", "straggler")], False),
        ([one("node", "r1*"), one("node", "r1n4", is_not=True)], False),
        ([one("cluster", "*"), one("rack", "r1")], False),  # nobody knows the cluster
        ([one("rack", "r2")], False),
        ([one("rack", "r1", "r2")], True),
        ([one("node", "r1n3", "r1n4")], True),
        ([one("node", "r1n*")], True),
        ([one("job", "llama-*"), one("symptom", "straggler", is_not=True)], True),
        ([one("incident", "12")], True),
        ([one("job", "*"), one("symptom", "failure")], True),
        ([one("incident", "1")], False),
    ],
)
def test_a_silence_covers_what_every_matcher_fits(raw: list[dict[str, Any]], is_covered: bool) -> None:
    assert fits(read_matchers(raw), SAID) is is_covered


def test_of_the_signs_only_the_star_means_something() -> None:
    matchers = read_matchers([one("job", "llama[1]?")])
    assert fits(matchers, {"job": ("llama[1]?",)})
    assert not fits(matchers, {"job": ("llama12",)})


@pytest.mark.parametrize(
    "raw",
    [
        [],
        "job=llama",
        [one("job")],
        [one("room", "r1")],
        [one("symptom", "hang")],
        [one("job", "x"), one("component", "nics*")],
        [one("job", "llama", is_not=True)],
        [one("job", "*")],
        [one("job", "**")],
        [one("job", "llama", "*")],
        [one("job", "*"), one("symptom", "***")],
        [one("job", "*"), one("symptom", "idle", is_not=True)],
        [one("job", " ")],
        [one("job", "a\nb")],
        [one("job", "*a*b*c*d*e*f")],
        [{"field": "job", "values": ["a"], "regex": True}],
        [{"field": "job", "values": ["a"], "is_not": "yes"}],
        [one("job", "a")] * 11,
    ],
)
def test_what_cannot_be_understood_or_would_silence_everything_is_refused(raw: Any) -> None:
    with pytest.raises(BadMatcher):
        read_matchers(raw)


def test_what_was_stored_by_an_earlier_rule_is_read_all_the_same() -> None:
    assert [matcher.words for matcher in stored_matchers([one("job", "**")])] == ["job is **"]


def test_matchers_survive_being_stored() -> None:
    matchers = read_matchers([one("node", "r1n3", "r2*"), one("symptom", "idle", is_not=True)])
    assert stored_matchers(matchers_to_json(matchers)) == matchers
