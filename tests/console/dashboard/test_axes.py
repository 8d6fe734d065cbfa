"""Charts over a hang: nothing is drawn where nothing was, and one long step leaves the others to be seen."""

from __future__ import annotations

from itertools import pairwise

import plotly.graph_objects as go
import pytest

from console.dashboard.axes import spare, with_gaps


def at(second: float) -> str:
    return f"2026-11-29T00:{int(second) // 60:02}:{int(second) % 60:02}+00:00"


def test_a_line_ends_where_a_hang_begins() -> None:
    points = [(at(s), 1.0) for s in (0, 1, 2, 3, 60, 61, 62)]
    xs, ys = with_gaps(points)
    assert ys == [1.0] * 4 + [None] + [1.0] * 3
    assert xs == sorted(xs) and all(earlier <= later for earlier, later in pairwise(xs))


@pytest.mark.parametrize("seconds", [(), (5,), (0, 50), (0, 1, 3, 4, 6)])
def test_points_that_come_as_they_usually_do_are_joined(seconds: tuple[int, ...]) -> None:
    assert with_gaps([(at(s), 2.0) for s in seconds]) == ([at(s) for s in seconds], [2.0] * len(seconds))


def test_one_long_step_is_told_and_not_drawn_to() -> None:
    figure = go.Figure()
    assert (
        spare(figure, [[1.0, 1.2, 60.0] + [0.9, 1.1] * 20, [3.0, None, 3.2]])
        == " Of its values 1 lies beyond this axis, up to 60."
    )
    assert figure.layout.yaxis.range == pytest.approx((0, 1.15 * 3.2))
    assert figure.layout.annotations[0].text == "▲ 1 beyond this axis, up to 60"


@pytest.mark.parametrize(
    "series",
    [
        [],
        [[]],
        [[None]],
        [[0.0, 0.0, 5.0]],  # nothing to compare with
        [[1.0] * 20 + [60.0] * 5],  # what the chart is about
        [[1.0] * 20, [100.0] * 2],  # a kind that is long
        [[9.0] + [1.0] * 30, [10.0] * 10],  # less than what is drawn anyway
        [[1.0] * 40 + [60.0]],  # the newest
        [[-1.0] + [1.0] * 20 + [60.0, 1.0]],
    ],
)
def test_what_flattens_nothing_or_is_usual_is_drawn_whole(series: list[list[float | None]]) -> None:
    figure = go.Figure()
    assert spare(figure, series) == ""
    assert figure.layout.yaxis.range is None and not figure.layout.annotations


def test_a_large_value_is_written_in_thousands() -> None:
    assert spare(go.Figure(), [[51_854.5] + [1.0] * 40]).endswith("up to 51,854.")
    assert spare(go.Figure(), [[61.25] + [1.0] * 40]).endswith("up to 61.25.")


def test_only_what_lies_beyond_the_axis_is_counted() -> None:
    said = spare(go.Figure(), [[9.0, 60.0] + [1.0] * 100, [10.0] * 10])
    assert said == " Of its values 1 lies beyond this axis, up to 60."
