"""Small slowdowns by blocks: never on healthy jobs, whatever their iterations vary by, and 5 % within a stated number."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rca.settings import DEFAULT
from rca.triggers.blocks import lasting_shift
from rca.triggers.pace import Pace, learn, slowing

Floats = npt.NDArray[np.float64]
SECOND: Final = 1_000_000_000
KNOWN, BEFORE, STEP = 256, 80, 13


def jitter(random: np.random.Generator, n: int, share: float) -> Floats:
    return 1 + share * random.standard_normal(n)


def wandering(random: np.random.Generator, n: int, share: float) -> Floats:
    """Neighbours are alike: the pace wanders over some twenty iterations."""
    steps, found = random.standard_normal(n), np.zeros(n)
    for at in range(1, n):
        found[at] = 0.95 * found[at - 1] + np.sqrt(1 - 0.95**2) * steps[at]
    return np.asarray(1 + share * found)


def sometimes(share_of: float, low: float, high: float) -> Callable[[np.random.Generator, int, float], Floats]:
    """Iterations that take so many times as long, in random order."""

    def made(random: np.random.Generator, n: int, share: float) -> Floats:
        return jitter(random, n, share) * np.where(random.random(n) < share_of, random.uniform(low, high, n), 1)

    return made


def every(n_between: int, times: float, n_long: int = 1) -> Callable[[np.random.Generator, int, float], Floats]:
    def made(random: np.random.Generator, n: int, share: float) -> Floats:
        return jitter(random, n, share) * np.where(np.arange(n) % n_between >= n_between - n_long, times, 1)

    return made


HEALTHY: Final[dict[str, Callable[[np.random.Generator, int, float], Floats]]] = {
    "jitter": jitter,
    "jitter with a long tail": lambda random, n, share: 1 + share * random.standard_t(3, n),
    "skewed": lambda random, n, share: 1 + share * random.exponential(1, n),
    "wandering": wandering,
    "hiccups": sometimes(0.05, 1.5, 6),
    "many hiccups": sometimes(0.1, 1.5, 6),
    "checkpoints": every(100, 8),
    "evaluations of several iterations": every(50, 2.5, 2),
    "two kinds of steps in turn": every(2, 1.3),
    "every fourth step is long": every(4, 1.5),
    "kinds of steps in random order": sometimes(0.3, 1.4, 1.4),
    "lengths by the data": lambda random, n, share: jitter(random, n, share) * random.choice([1, 1.1, 1.25, 1.6], n),
    "collection of garbage": every(37, 1.4),
    "drift": lambda random, n, share: jitter(random, n, share) * (1 + np.arange(n) / 200_000),
    "waves": lambda random, n, share: jitter(random, n, share) * (1 + 0.03 * np.sin(np.arange(n) / 600)),
}


def made(name: str, n: int, share: float, seed: int) -> Floats:
    return np.maximum(HEALTHY[name](np.random.default_rng(seed), n, share), 0.1) * SECOND


@pytest.mark.parametrize("share", [0.003, 0.01, 0.05])
@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_is_never_slow(name: str, share: float) -> None:
    lengths = made(name, 3000, share, seed=11)
    for at in range(KNOWN + 2 * BEFORE, len(lengths), STEP):
        usual = lengths[at - BEFORE - KNOWN : at - BEFORE]
        assert lasting_shift(lengths[at - 100 : at], usual, DEFAULT) is None, at


@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(0.5, 5), min_size=1, max_size=12), st.integers(0, 2**32 - 1))
def test_more_of_the_same_is_not_slow_whatever_it_is(kinds: list[float], seed: int) -> None:
    drawn = np.random.default_rng(seed).choice(kinds, KNOWN + 100) * SECOND
    assert lasting_shift(drawn[KNOWN:], drawn[:KNOWN], DEFAULT) is None


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.floats(1, 60), st.floats(1.07, 1.9))
def test_how_long_iterations_are_does_not_matter(seed: int, seconds: float, times: float) -> None:
    drawn = jitter(np.random.default_rng(seed), KNOWN + 100, 0.01) * SECOND
    drawn[KNOWN + 60 :] *= times
    one, other = (lasting_shift(scale * drawn[KNOWN:], scale * drawn[:KNOWN], DEFAULT) for scale in (1, seconds))
    assert one is not None and other is not None
    assert one.first == other.first and abs(one.first - 60) <= 3
    assert other.now_ns / other.usual_ns == pytest.approx(times, rel=0.01)


STEADY = ("jitter", "hiccups", "checkpoints", "evaluations of several iterations", "two kinds of steps in turn",
          "every fourth step is long", "collection of garbage", "drift", "waves")  # fmt: skip


@pytest.mark.parametrize(("share", "within"), [(0.003, 40), (0.01, 40), (0.02, 90)])
@pytest.mark.parametrize("name", STEADY)
def test_five_per_cent_are_seen_within_so_many_iterations_with_their_onset(
    name: str, share: float, within: int
) -> None:
    lengths, onset = made(name, 500, share, seed=5), 380
    lengths[onset:] *= 1.05
    first = next(at for at in range(onset - 30, 500) if _shift_at(lengths, at))
    found = _shift_at(lengths, onset + within)
    assert onset < first <= onset + within
    assert found is not None and abs(onset + within - 100 + found.first - onset) <= 25


def _shift_at(lengths: Floats, at: int):  # type: ignore[no-untyped-def]
    return lasting_shift(lengths[at - 100 : at], lengths[at - BEFORE - KNOWN : at - BEFORE], DEFAULT)


@pytest.mark.parametrize("seconds", [0.2, 1.0, 12.0])
def test_a_job_followed_look_by_look_is_told_slow_by_six_per_cent_and_not_before(seconds: float) -> None:
    """Of iterations of any length; and what was slow is not usual when the job has recovered."""
    lengths = made("collection of garbage", 900, 0.012, seed=3) * seconds
    lengths[500:700] *= 1.06
    pace, slow = _followed(lengths)
    told = [at for at, one in enumerate(slow) if one]
    assert told and 500 < told[0] <= 590
    assert not any(slow[800:])
    assert np.quantile(pace.usual_ns, 0.75) < 1.03 * seconds * SECOND


def _followed(lengths: Floats) -> tuple[Pace, list[bool]]:
    """A look after every tenth iteration."""
    began = SECOND + np.append(0, np.cumsum(lengths.astype(np.int64)))
    pace, slow = Pace(), []
    for at in range(0, len(lengths), 10):
        whole = list(zip(began[at : at + 10].tolist(), lengths[at : at + 10].astype(int).tolist(), strict=True))
        pace = learn(pace, whole, DEFAULT)
        slow += [slowing(pace, DEFAULT) is not None] * 10
    return pace, slow


def test_before_the_usual_is_known_nothing_is_small() -> None:
    assert lasting_shift([1.1 * SECOND] * 100, [SECOND] * 99, DEFAULT) is None
    assert lasting_shift([], [SECOND] * KNOWN, DEFAULT) is None
    assert lasting_shift([1.1 * SECOND] * 19, [SECOND] * KNOWN, DEFAULT) is None
    assert lasting_shift([1.1 * SECOND] * 20, [SECOND] * KNOWN, DEFAULT) is not None
