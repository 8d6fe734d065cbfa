"""Rate curves of ranks or flows as one plotly figure: a strip for each, one above the other on the same time, with where
ops begin and end and, of a pipeline, which microbatch is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

from console.dashboard.figures import BARE, COLOURS, as_figure
from console.network.curves import Curve, Floats, Ints
from console.network.microbatches import Mark

STRIP_PIXELS: Final = 74
EDGES_PIXELS: Final = 96
GAP: Final = 0.18  # of a strip
BOUNDS_MAX: Final = 400
MARKS_MAX: Final = 200
HEADROOM: Final = 1.08
MARKED_HEADROOM: Final = 1.45
BEGIN, END, RATE, MARKED = COLOURS[2], COLOURS[5], COLOURS[0], COLOURS[1]


@dataclass(frozen=True, slots=True)
class Strip:
    """name: whose curve. begins_ns, ends_ns: (n,) of the ops in it, as they were cut on the node."""

    name: str
    curve: Curve
    begins_ns: Ints
    ends_ns: Ints
    marks: Sequence[Mark] = ()


def epochs_figure(strips: Sequence[Strip], zero_ns: int, from_ns: int, until_ns: int, text: str) -> dict[str, Any]:
    """zero_ns: what the axis counts from, in milliseconds."""
    zero = datetime.fromtimestamp(zero_ns / 1e9, UTC).strftime("%H:%M:%S.%f")[:-3]
    peak = max((float(strip.curve.peak.max(initial=0.0)) for strip in strips), default=0.0) / 1e9 or 1.0
    figure = go.Figure(layout={**BARE, "uirevision": f"{from_ns} {until_ns}", "hovermode": "closest"})
    figure.update_layout(
        height=EDGES_PIXELS + STRIP_PIXELS * max(len(strips), 1), dragmode="zoom", showlegend=True,
        xaxis={
            "type": "linear", "title": {"text": f"ms since {zero} UTC"}, "range": [_ms(from_ns, zero_ns), _ms(until_ns, zero_ns)],
            "anchor": f"y{len(strips)}" if len(strips) > 1 else "y",
        },
    )  # fmt: skip
    height = peak * (MARKED_HEADROOM if any(strip.marks for strip in strips) else HEADROOM)
    for number, strip in enumerate(strips):
        figure.layout[f"yaxis{number + 1}" if number else "yaxis"] = _axis(strip.name, number, len(strips), height)
        _draw(figure, strip, f"y{number + 1}" if number else "y", zero_ns, peak)
    _name_once(figure)
    return as_figure(figure, text)


def _name_once(figure: go.Figure) -> None:
    """What all strips have is in the legend once."""
    named: set[str] = set()
    for trace in figure.data:
        trace.showlegend = trace.name not in named
        trace.legendgroup = trace.name
        named.add(trace.name)


def _axis(name: str, number: int, n: int, height: float) -> dict[str, Any]:
    top = 1.0 - number / n
    return {
        "domain": [top - (1.0 - GAP) / n, top], "range": [0.0, height], "fixedrange": True, "nticks": 3, "zeroline": False,
        "title": {"text": name, "standoff": 4},
    }  # fmt: skip


def _draw(figure: go.Figure, strip: Strip, axis: str, zero_ns: int, peak: float) -> None:
    curve = strip.curve
    if curve.epochs > 1:
        x, y = _stepped(curve.edges_ns, curve.peak, zero_ns)
        figure.add_scatter(
            x=x, y=y, yaxis=axis, name="fullest epoch of it", mode="lines",
            line={"color": "rgba(0,0,0,0)", "shape": "hv"}, fill="tozeroy", fillcolor="rgba(128,136,144,0.35)", hoverinfo="skip",
        )  # fmt: skip
    x, y = _stepped(curve.edges_ns, curve.mean, zero_ns)
    figure.add_scatter(
        x=x, y=y, yaxis=axis, name="rate, GB/s", mode="lines",
        line={"color": RATE, "width": 1, "shape": "hv"}, fill="tozeroy", fillcolor="rgba(86,180,233,0.45)",
        hovertemplate=f"{strip.name}: %{{y:.3g}} GB/s<br>%{{x:.3f}} ms<extra></extra>",
    )  # fmt: skip
    _bounds(figure, strip, axis, zero_ns, peak)
    _marks(figure, strip, axis, zero_ns, peak)


def _bounds(figure: go.Figure, strip: Strip, axis: str, zero_ns: int, peak: float) -> None:
    for name, times, color, dash in (
        ("op begins", strip.begins_ns, BEGIN, "dot"),
        ("op ends", strip.ends_ns, END, "dash"),
    ):
        x: list[float | None] = []
        y: list[float | None] = []
        if not len(times):
            continue
        for at_ns in times.tolist()[:BOUNDS_MAX]:
            x += [_ms(at_ns, zero_ns), _ms(at_ns, zero_ns), None]
            y += [0.0, round(peak, 4), None]
        figure.add_scatter(
            x=x, y=y, yaxis=axis, name=name, mode="lines", hoverinfo="skip",
            line={"color": color, "width": 1.2, "dash": dash},
        )  # fmt: skip


def _marks(figure: go.Figure, strip: Strip, axis: str, zero_ns: int, peak: float) -> None:
    """A bar above the curve from a microbatch's begin to its end, its name in the middle."""
    x: list[float | None] = []
    y: list[float | None] = []
    names: list[tuple[float, float, str]] = []
    height = {"F": 1.12, "B": 1.2}
    for mark in strip.marks[:MARKS_MAX]:
        begin, end = _ms(mark.begins_ns, zero_ns), _ms(mark.ends_ns, zero_ns)
        level = round(peak * height[mark.word[0]], 4)
        x += [begin, end, None]
        y += [level, level, None]
        names.append((round((begin + end) / 2, 6), level, mark.word))
    if not names:
        return
    figure.add_scatter(
        x=x,
        y=y,
        yaxis=axis,
        name="microbatch computed",
        mode="lines",
        hoverinfo="skip",
        line={"color": MARKED, "width": 2},
    )
    figure.add_scatter(
        x=[at for at, _, _ in names], y=[level for _, level, _ in names], text=[word for _, _, word in names], yaxis=axis,
        name="microbatch computed", mode="text", textposition="top center", textfont={"size": 10}, hoverinfo="skip",
    )  # fmt: skip


def _stepped(edges_ns: Ints, rate: Floats, zero_ns: int) -> tuple[list[float], list[float]]:
    """Where the rate changes, and to what, in GB/s; down to 0 at the end."""
    values = np.append(np.round(rate / 1e9, 4), 0.0)
    changes = np.flatnonzero(np.diff(values, prepend=np.nan) != 0)
    at = np.union1d(changes, [len(values) - 1])
    return [_ms(int(one), zero_ns) for one in edges_ns[at].tolist()], values[at].tolist()


def _ms(at_ns: int, zero_ns: int) -> float:
    return round((at_ns - zero_ns) / 1e6, 6)
