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
"""Times the largest of the others: a longer one would leave them less than a third of the height."""

Points = Sequence[tuple[Any, float | None]]


def with_gaps(points: Points) -> tuple[list[Any], list[float | None]]:
    """x and y of a line: (ISO time, value) in order, with a point without value where there is a gap."""
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


def spare(figure: go.Figure, series: Sequence[Sequence[float | None]]) -> int:
    """End the y axis where the others of each series do, and say so in the picture; how many values lie beyond. None do
    where they are more than one in twenty: then they are what the chart is about."""
    known = [[y for y in values if y is not None] for values in series]
    beyond = [y for values in known if values for y in values if y > BEYOND_TIMES * median(values) > 0]
    others = [y for values in known if values for y in values if not y > BEYOND_TIMES * median(values) > 0]
    n = len(beyond)
    if (
        not n
        or not others
        or n > max(1, BEYOND_SHARE * (n + len(others)))
        or max(beyond) < FLATTENS_TIMES * max(others)
    ):
        return 0
    figure.update_yaxes(range=[0, 1.15 * max(others)])
    figure.add_annotation(
        text=f"▲ {n} beyond this axis, up to {max(beyond):,.4g}", xref="paper", yref="paper", x=1, y=1, xanchor="right",
        yanchor="top", showarrow=False,
    )  # fmt: skip
    return n
