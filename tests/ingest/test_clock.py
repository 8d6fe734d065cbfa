"""Late or wrong: what the monotonic clock says of a batch whose wall time is far from its arrival."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ingest.door.clock import BootClock, Placement, place_batch
from tests.builders import MONO_NS, SECOND, WALL_NS

SYNC = WALL_NS - MONO_NS


def send(clock: BootClock, cut_s: float, wall_off_s: float, delay_s: float, age: bool = False) -> Placement:
    """A batch cut at cut_s by a node whose wall clock is wall_off_s ahead, received delay_s later."""
    cut = int(cut_s * SECOND)
    received = WALL_NS + cut + int(delay_s * SECOND)
    age_ns = int(delay_s * SECOND) if age else None
    return place_batch(clock, WALL_NS + cut + int(wall_off_s * SECOND), MONO_NS + cut, received, age_ns)


def send_all(batches: list[tuple[float, float, float]], age: bool = False) -> list[Placement]:
    clock, placed = BootClock(), []
    for cut_s, wall_off_s, delay_s in batches:
        placed.append(send(clock, cut_s, wall_off_s, delay_s, age))
        clock = placed[-1].clock
    return placed


def test_a_right_clock_is_used_as_it_is() -> None:
    placed = send_all([(0, 0.3, 0.01), (1, 0.3, 0.02)])
    assert [p.shift_ns for p in placed] == [SYNC + 300_000_000] * 2
    assert not any(p.wrong_clock or p.catching_up for p in placed)


def test_a_clock_an_hour_ahead_is_wrong_from_the_first_batch() -> None:
    (placed,) = send_all([(0, 3600, 0.01)])
    assert placed.wrong_clock and not placed.catching_up
    assert placed.shift_ns == SYNC + 10_000_000  # placed by receive time
    assert abs(placed.offset_ns - 3600 * SECOND) < SECOND


def test_a_clock_an_hour_behind_is_wrong_once_batches_come_as_they_are_cut() -> None:
    placed = send_all([(i, -3600, 0.01) for i in range(6)])
    assert [p.wrong_clock for p in placed] == [False, False, False, True, True, True]
    assert placed[-1].shift_ns == SYNC + 10_000_000
    assert not placed[-1].catching_up


def test_a_clock_behind_is_known_at_once_when_the_node_says_how_old_the_batch_is() -> None:
    (placed,) = send_all([(0, -3600, 0.01)], age=True)
    assert placed.wrong_clock and placed.shift_ns == SYNC


def test_a_spool_that_drains_is_late_and_not_a_wrong_clock() -> None:
    fresh = [(float(i), 0.0, 0.01) for i in range(5)]
    spool = [(5.0 + i, 0.0, 300.0 - 0.9 * i) for i in range(200)]
    placed = send_all([*fresh, *spool])
    assert not any(p.wrong_clock for p in placed)
    assert all(p.shift_ns == SYNC for p in placed)
    assert all(p.catching_up for p in placed[5:])


def test_a_spool_is_not_a_wrong_clock_even_when_nothing_fresh_ever_came() -> None:
    placed = send_all([(float(i), 0.0, 300.0 - 0.95 * i) for i in range(200)])
    assert not any(p.wrong_clock for p in placed)
    assert all(p.catching_up for p in placed)


def test_fresh_batches_between_late_ones_are_not_late() -> None:
    placed = send_all([(0, 0, 0.01), (300, 0, 0.01), (1, 0, 300), (301, 0, 0.01), (2, 0, 300)])
    assert [p.catching_up for p in placed] == [False, False, True, False, True]


def test_a_late_batch_of_a_wrong_clock_lands_where_it_was_cut() -> None:
    placed = send_all([*[(float(i), 3600.0, 0.01) for i in range(5)], (5.0, 3600.0, 120.0)])
    assert placed[-1].wrong_clock and placed[-1].catching_up
    assert placed[-1].shift_ns - placed[0].shift_ns < SECOND


def test_a_clock_that_steps_is_wrong_after_the_step_and_data_stays_in_order() -> None:
    for step_s in (3600.0, -3600.0):
        placed = send_all([(float(i), 0.0 if i < 5 else step_s, 0.01) for i in range(10)])
        assert [p.wrong_clock for p in placed] == [False] * 5 + [True] * 5
        times = [i * SECOND + p.shift_ns for i, p in enumerate(placed)]
        assert times == sorted(times)


def test_a_clock_that_is_put_right_is_trusted_again() -> None:
    placed = send_all([(float(i), 3600.0 if i < 5 else 0.0, 0.01) for i in range(10)])
    assert [p.wrong_clock for p in placed] == [True] * 5 + [False] * 5


def test_oscillators_that_drift_apart_for_days_are_not_a_wrong_clock() -> None:
    """The node's monotonic clock runs 100 ppm slow and its wall clock is kept right from outside."""
    clock = BootClock()
    for i in range(0, 5 * 86_400, 60):
        mono = MONO_NS + int(i * SECOND * (1 - 100e-6))
        placed = place_batch(clock, WALL_NS + i * SECOND, mono, WALL_NS + i * SECOND + 10_000_000)
        clock = placed.clock
        assert not placed.wrong_clock


@given(
    st.lists(st.tuples(st.floats(0, 1000), st.floats(-4, 4), st.floats(0, 0.9)), min_size=1, max_size=30),
)
def test_no_order_of_fresh_batches_makes_a_right_clock_wrong(batches: list[tuple[float, float, float]]) -> None:
    assert not any(p.wrong_clock or p.catching_up for p in send_all(batches))
