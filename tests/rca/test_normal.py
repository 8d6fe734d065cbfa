"""The normal of a job: learned once per completion, quantiles within a bucket, plain JSON."""

from __future__ import annotations

import json

import numpy as np
import pytest

from rca.triggers.normal import ALL, Normal, learn, normal_from_json, normal_to_json
from tests.windows import make_window

RANKS = np.arange(8)


def test_what_was_counted_is_not_counted_again() -> None:
    window = make_window(at_ms=600)
    once = learn(Normal(), window, RANKS)
    assert once.count() > 50
    assert learn(once, window, RANKS) == once


def test_later_completions_add_to_it() -> None:
    early, late = make_window(at_ms=400), make_window(at_ms=800)
    both = learn(learn(Normal(), early, RANKS), late, RANKS)
    assert both.count() == learn(Normal(), late, RANKS).count()


def test_quantiles_lie_within_a_quarter_octave() -> None:
    normal = Normal(intervals={ALL: {80: 99, 100: 1}})
    assert normal.quantile_ns(0.5) == round(2 ** (81 / 4))
    assert normal.quantile_ns(1.0) == round(2 ** (101 / 4))


def test_an_unknown_normal_has_no_quantile() -> None:
    assert Normal().quantile_ns(0.99) is None


def test_it_survives_json() -> None:
    normal = learn(Normal(), make_window(), RANKS)
    assert normal_from_json(json.loads(json.dumps(normal_to_json(normal)))) == normal
    assert normal_from_json({}) == Normal()


@pytest.mark.parametrize(
    "raw",
    [{"intervals": 3}, {"seen_ns": []}, {"intervals": {"all": {"x": 1}}}, {"kinds": {"a": 3}}, {"kinds": {"a": []}}],
)
def test_anything_else_is_refused(raw: dict) -> None:  # type: ignore[type-arg]
    with pytest.raises(ValueError):
        normal_from_json(raw)
