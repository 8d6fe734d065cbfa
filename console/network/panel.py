"""A job's parallelism as its ops show it: what each kind costs an iteration, microbatch by microbatch, the bubble, the layout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any, Final

import plotly.graph_objects as go

from console.dashboard.figures import BARE, COLOURS, as_figure
from console.network.volumes import volumes_of
from ingest.window import Window
from rca.flows.algorithms import algorithms_in
from rca.flows.bubble import NO_PIPELINE, Bubble
from rca.flows.layout import GroupLayout
from rca.flows.panel import Communication, Panel, StageTimes, panel_of

GROUPS_SHOWN_MAX: Final = 64
STAGES_SHOWN_MAX: Final = 16


def panel_answer(window: Window) -> dict[str, Any]:
    """The panel as the page takes it. What is not known is None, never 0."""
    panel = panel_of(window)
    layout = panel.layout[:GROUPS_SHOWN_MAX]
    return {
        "iteration_ms": _ms(panel.iteration_ns), "bubble": _bubble(panel.bubble),
        "communication": [_kind(one) for one in panel.communication], "layout": [_group(one) for one in layout],
        "omitted": len(panel.layout) - len(layout), "says": _says(panel),
        "doubts": [one.disagreement for one in panel.layout if one.disagreement]
        + [one.sentence for one in algorithms_in(window) if one.sentence]
        + [f"{one.name}: {says}" for one in layout if (says := volumes_of(window, one.comm_id).says)],
        "microbatches": _microbatches(panel.stages) if panel.stages else None,
    }  # fmt: skip


def _kind(one: Communication) -> dict[str, Any]:
    return {
        "parallelism": str(one.parallelism), "ms": _ms(one.ns), "actual_ms": _ms(one.actual_ns),
        "n_ops": round(one.n_ops, 2), "mb": round(one.n_bytes / 1e6, 3),
    }  # fmt: skip


def _group(one: GroupLayout) -> dict[str, Any]:
    return {
        "comm_id": f"{one.comm_id:016x}", "name": one.name, "n_ranks": one.n_ranks, "ranks": list(one.ranks[:GROUPS_SHOWN_MAX]),
        "parallelism": str(one.parallelism), "evidence": [str(which) for which in one.evidence],
        "disagreement": one.disagreement,
    }  # fmt: skip


def _microbatches(stages: Sequence[StageTimes]) -> dict[str, Any]:
    """A bar per microbatch, forward and backward, a row per stage, on the time since the iteration began."""
    figure = go.Figure(layout={**BARE, "barmode": "overlay", "bargap": 0.3, "uirevision": "microbatches"})
    figure.update_layout(
        xaxis={"title": {"text": "ms since the iteration began"}, "rangemode": "tozero"},
        yaxis={"title": {"text": "stage"}, "type": "category", "autorange": "reversed"},
    )
    shown = stages[:STAGES_SHOWN_MAX]
    for number, (word, letter) in enumerate((("forward", "F"), ("backward", "B"))):
        bars = [bar for stage in shown for bar in _bars(stage, word, letter)]
        pattern = {"shape": ("", "/")[number], "fillmode": "overlay", "size": 6, "solidity": 0.25}
        figure.add_bar(
            orientation="h", name=word, y=[stage for stage, _, _, _ in bars], base=[begin for _, begin, _, _ in bars],
            x=[length for _, _, length, _ in bars], text=[name for _, _, _, name in bars], textposition="inside",
            marker={"color": COLOURS[(0, 1)[number]], "pattern": pattern},
            hovertemplate="stage %{y}, %{text}: %{x:.2f} ms<extra></extra>",
        )  # fmt: skip
    return as_figure(figure, _microbatch_text(stages))


def _bars(stage: StageTimes, word: str, letter: str) -> list[tuple[str, float, float, str]]:
    lengths = getattr(stage, f"{word}_ns")
    begins = getattr(stage, f"{word}_began_ns")
    return [
        (str(stage.stage), round(begin / 1e6, 3), round(length / 1e6, 3), f"{letter}{at}")
        for at, (begin, length) in enumerate(zip(begins, lengths, strict=True))
        if isfinite(begin) and isfinite(length)
    ]


def span_words(mean_ns: Mapping[int, float]) -> str:
    """From the shortest stage to the longest, or once what is the same on all as far as it is shown."""
    longest = max(mean_ns, key=mean_ns.__getitem__)
    least, most = (f"{one / 1e6:.3g}" for one in (min(mean_ns.values()), mean_ns[longest]))
    if least == most:
        return f"{most} ms" + (" on each of them" if len(mean_ns) > 1 else "")
    return f"{least} to {most} ms, longest on stage {longest}"


def _microbatch_text(stages: Sequence[StageTimes]) -> str:
    means = {
        word: {
            stage.stage: sum(known) / len(known) for stage in stages if (known := _finite(getattr(stage, f"{word}_ns")))
        }
        for word in ("forward", "backward")
    }
    said = []
    for word, of in means.items():
        if of:
            said.append(f"{word} takes {span_words(of)}")
    of_all = (
        f"{len(stages)} stages" if len(stages) <= STAGES_SHOWN_MAX else f"{STAGES_SHOWN_MAX} of {len(stages)} stages"
    )
    return f"{of_all}: {'; '.join(said) or 'no microbatch could be told'}."


def _says(panel: Panel) -> str:
    if not isfinite(panel.iteration_ns):
        return "The job's ops do not repeat themselves in this time, so nothing is told of an iteration."
    kinds = [f"{one.parallelism} {one.ns / 1e6:.3g} ms" for one in panel.communication if isfinite(one.ns)]
    return (
        f"An iteration takes {panel.iteration_ns / 1e6:.3g} ms. In ops: {', '.join(kinds) or 'nothing known'}."
        f"{_bubble_said(panel.bubble)}"
    )


def _bubble(one: Bubble) -> dict[str, Any]:
    return {
        "at_least": _known(one.at_least, 4), "at_most": _known(one.at_most, 4), "reason": one.reason,
        "n_told": one.n_told, "n": one.n,
    }  # fmt: skip


def _bubble_said(one: Bubble) -> str:
    """A job without pipelines has none, and nothing is said."""
    if one.reason:
        return "" if one.reason == NO_PIPELINE else f" What of the pipeline's time is bubble is unknown: {one.reason}."
    least, most = f"{one.at_least:.0%}", f"{one.at_most:.0%}"
    share = least if least == most else f"at least {least}, at most {most}"
    told = "" if one.n_told == one.n else f" (told in {one.n_told:,} of {one.n:,} iterations of a pipeline)"
    return f" Of the pipeline's time {share} is bubble{told}."


def _finite(values: Sequence[float]) -> list[float]:
    return [value for value in values if isfinite(value)]


def _ms(ns: float) -> float | None:
    return _known(ns / 1e6, 3)


def _known(value: float, digits: int) -> float | None:
    return round(value, digits) if isfinite(value) else None
