"""Summary charts as plotly figures built here and drawn in the browser, each with the same facts as a text.

No template (it would weigh more than the chart) and no colours of paper or text: the page's theme sets those.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

import plotly.graph_objects as go

from ingest.models import Attempt
from ingest.read import RollupPoint, read_rollups
from nccl_instrument.tables import FUNCS

MINUTES: Final = 30
BUCKET_SECONDS: Final = 10
SECOND: Final = 1_000_000_000
# Okabe and Ito's colours: told apart by everyone, on dark and on light.
COLOURS: Final = ("#56b4e9", "#e69f00", "#009e73", "#cc79a7", "#0072b2", "#d55e00", "#f0e442", "#999999")
BARE: Final = {
    "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "margin": {"l": 56, "r": 16, "t": 40, "b": 40},
    "legend": {"orientation": "h"},
}  # fmt: skip
CONFIG: Final = {"displaylogo": False, "showSendToCloud": False, "responsive": True}


def throughput_figure(job: str, attempt: Attempt | None, now_ns: int | None = None) -> dict[str, Any]:
    """Ops completed per second by kind, of the last half hour."""
    end_ns = now_ns or time.time_ns()
    start_ns = end_ns - MINUTES * 60 * SECOND
    points = read_rollups(attempt.pk, start_ns, end_ns) if attempt else []
    rates = _rates(points, start_ns, end_ns)
    shown_ns = min([begins_ns(attempt, start_ns, end_ns), *(one.bucket_ns for one in points)]) if attempt else start_ns
    figure = go.Figure(layout=_layout(f"Ops completed per second, {job}", shown_ns, end_ns))
    for number, (func, series) in enumerate(sorted(rates.items())):
        line = {"color": COLOURS[number % len(COLOURS)], "shape": "hv", "dash": ("solid", "dash", "dot")[number % 3]}
        figure.add_scatter(x=[_at(at) for at in series], y=list(series.values()), name=FUNCS[func], line=line)
    return as_figure(figure, _text(job, rates))


def begins_ns(attempt: Attempt, start_ns: int, end_ns: int) -> int:
    """Where an axis begins that may reach back to start_ns: a young job's with the job, or most of it would be empty."""
    started_ns = int(attempt.started_at.timestamp() * SECOND)
    if not start_ns < started_ns < end_ns:
        return start_ns
    return max(start_ns, started_ns - (end_ns - started_ns) // 20)


def layout_of(ylabel: str, xlabel: str, kind: str, revision: str) -> dict[str, Any]:
    """A layout without a title. kind: of the x axis; revision: while it stays the same, what the reader zoomed stays."""
    axes = {"xaxis": {"type": kind, "title": {"text": xlabel}}, "yaxis": {"title": {"text": ylabel}}}
    return {**BARE, **axes, "uirevision": revision}


def as_figure(figure: go.Figure, text: str) -> dict[str, Any]:
    """What the browser draws, and the same facts in words."""
    drawn = json.loads(figure.to_json())
    drawn["layout"].pop("template", None)
    return {"data": drawn["data"], "layout": drawn["layout"], "config": dict(CONFIG), "text": text}


def _rates(points: Sequence[RollupPoint], start_ns: int, end_ns: int) -> dict[int, dict[int, float]]:
    """func → bucket → ops per second. Buckets without ops are zero between the first and the last that had some."""
    counts: dict[int, dict[int, int]] = {}
    for point in points:
        series = counts.setdefault(point.func, {})
        series[point.bucket_ns] = series.get(point.bucket_ns, 0) + point.n_ops
    if not counts:
        return {}
    step = BUCKET_SECONDS * SECOND
    first = min(min(series) for series in counts.values())
    last = end_ns // step * step  # the bucket that is still filling is left out
    return {
        func: {bucket: round(series.get(bucket, 0) / BUCKET_SECONDS, 2) for bucket in range(first, last, step)}
        for func, series in counts.items()
    }


def _text(job: str, rates: dict[int, dict[int, float]]) -> str:
    if not any(rates.values()):
        return f"No completed ops of {job} are known in the last {MINUTES} minutes."
    sentences = [f"Ops completed per second by {job} in the last {MINUTES} minutes, counted at every rank."]
    for func, series in sorted(rates.items()):
        values = list(series.values())
        latest, mean = values[-1], sum(values) / len(values)
        sentences.append(f"{FUNCS[func]}: {latest:g} in the newest ten seconds, {round(mean, 2):g} on average.")
    return " ".join(sentences)


def _layout(title: str, start_ns: int, end_ns: int) -> dict[str, Any]:
    clear = "rgba(0,0,0,0)"
    return {
        "title": {"text": title},
        "paper_bgcolor": clear,
        "plot_bgcolor": clear,
        "margin": {"l": 56, "r": 16, "t": 40, "b": 40},
        "xaxis": {"type": "date", "title": {"text": "UTC"}, "range": [_at(start_ns), _at(end_ns)]},
        "yaxis": {"rangemode": "tozero", "title": {"text": "ops per second"}},
        "legend": {"orientation": "h", "y": -0.2},
        "uirevision": "throughput",
    }


def _at(bucket_ns: int) -> str:
    return datetime.fromtimestamp(bucket_ns / SECOND, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
