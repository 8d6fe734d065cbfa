"""Charts over time in which a hang lies: no line is drawn through it, and its one long step does not flatten all others.

drawn:  ▁▂▁▂▁▁        ▂▁▁▂      not:  ▁▂▁▂▁▁──────▂▁▁▂   and not  ▁▁▁▁▁▁█▁▁▁▁
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any, Final

import plotly.graph_objects as go

GAP_TIMES: Final = 3.0
"""Points so many usual steps apart have nothing between them."""
BEYOND_TIMES: Final = 8.0
"""A value so many times its series' median is one of few, if it is."""
BEYOND_SHARE: Final = 0.05
FLATTENS_TIMES: Final = 3.0
"""Times the axis of the others: a longer value would leave them less than a third of the height."""
READ_WHOLE: Final = 1000.0
"""Larger ones are written without a fraction, in thousands: nobody reads 5.185e+04 at a glance."""

Points = Sequence[tuple[Any, float | None]]


def with_gaps(points: Points) -> tuple[list[Any], list[float | None]]:
    """x and y of a line whose points come at a fixed pace: (ISO time, value) in order, with a point without value where there is
    a gap. Of points that lie as far apart as their values are long, a gap may be one that is long."""
    at = [datetime.fromisoformat(str(x)).timestamp() for x, _ in points]
    steps = [later - earlier for earlier, later in pairwise(at)]
    longest = GAP_TIMES * median(steps) if steps else 0.0
    xs, ys = list[Any](), list[float | None]()
    for number, (x, y) in enumerate(points):
        if number and steps[number - 1] > longest > 0:
            xs.append(x)
            ys.append(None)
        xs.append(x)
        ys.append(y)
    return xs, ys


def spare(figure: go.Figure, series: Sequence[Sequence[float | None]]) -> str:
    """End the y axis where the others of each series do; what lies beyond it, in a sentence after a blank, as in the picture.

    Nothing does where that is more than one value, and more than one in twenty, or the newest of a series: then it is
    what the chart is about.
    """
    known = [values for one in series if (values := [y for y in one if y is not None])]
    all_of_them = [y for values in known for y in values]
    others = [y for values in known for y in _usual(values)]
    n_odd = len(all_of_them) - len(others)
    if not others or not n_odd or n_odd > max(1, BEYOND_SHARE * len(all_of_them)) or min(all_of_them) < 0:
        return ""
    top, most = 1.15 * max(others), max(all_of_them)
    is_newest = any(values[-1] > top for values in known)
    if is_newest or not most >= FLATTENS_TIMES * top > 0:
        return ""
    beyond = sum(y > top for y in all_of_them)
    where = f"beyond this axis, up to {f'{most:,.0f}' if most >= READ_WHOLE else f'{most:.4g}'}"
    figure.update_yaxes(range=[0, top])
    figure.add_annotation(
        text=f"▲ {beyond} {where}",
        xref="paper",
        yref="paper",
        x=1,
        y=1,
        xanchor="right",
        yanchor="top",
        showarrow=False,
    )
    return f" Of its values {beyond} {'lies' if beyond == 1 else 'lie'} {where}."


def _usual(values: Sequence[float]) -> list[float]:
    """Those that are not many times the median, if that is more than nothing."""
    limit = BEYOND_TIMES * median(values)
    return [y for y in values if limit <= 0 or y <= limit]
