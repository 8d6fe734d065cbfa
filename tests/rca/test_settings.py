"""Per-job thresholds: what may be changed, within which limits, and how a refusal reads."""

from __future__ import annotations

import math

import pytest

from rca.settings import DEFAULT, SECOND_NS, BadSetting, checked, limits, settings_with


def test_without_overrides_the_papers_defaults_hold() -> None:
    assert settings_with({}) == DEFAULT
    assert (DEFAULT.delta_max_ns, DEFAULT.slow_factor, DEFAULT.sampled_ranks_max) == (10 * SECOND_NS, 2.0, 10)


def test_every_default_lies_within_its_own_limits_and_says_what_it_means() -> None:
    for name, limit in limits().items():
        assert checked(name, limit.default) == limit.default == DEFAULT.thresholds()[name]
        assert limit.about.endswith(".") and limit.unit


def test_durations_are_set_in_seconds_and_kept_in_nanoseconds() -> None:
    changed = settings_with({"delta_max_s": 2.5, "halved_iterations": 4.0, "small_share": 0.1})
    assert (changed.delta_max_ns, changed.halved_iterations, changed.small_share) == (2_500_000_000, 4, 0.1)
    assert isinstance(changed.halved_iterations, int)
    assert changed.thresholds()["delta_max_s"] == 2.5


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("delta_max_s", 0, "delta_max_s must be between 1 and 600 s, not 0."),
        ("delta_max_s", math.nan, "between 1 and 600 s"),
        ("io_bytes_per_s", 10**400, "between 1,000 and 1e+12 B/s."),
        ("halved_iterations", 2.5, "halved_iterations must be a whole number of iterations, not 2.5."),
        ("small_share", "0.1", "small_share must be a number (share)."),
        ("small_share", True, "must be a number"),
        ("findings_max", 3, "There is no setting 'findings_max' that can be changed."),
        ("delta_min_s", 20, "delta_min_s (20 s) must not be above delta_max_s (10 s)."),
    ],
)
def test_what_cannot_be_is_refused_with_a_sentence(name: str, value: object, says: str) -> None:
    with pytest.raises(BadSetting) as refused:
        settings_with({name: value})
    assert says in str(refused.value)
