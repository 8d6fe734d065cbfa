"""The pictures of stages as plotly figures, each with the same facts in words: shares over time, one window step by step, the
ranks by stage, and what a median shows beside what the frontier shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import plotly.graph_objects as go

from console.dashboard.axes import spare
from console.dashboard.figures import COLOURS, as_figure, layout_of
from console.incidents.rows import iso_from_ns
from console.stages.models import StagePacket
from rca.frontier.words import short

PATTERNS: Final = ("", "/", ".", "\\", "x", "-", "|", "+")
RANKS_TICKED_MAX: Final = 32
ALIKE_SHARE: Final = 0.05


def shares_figure(packets: Sequence[StagePacket]) -> dict[str, Any]:
    """Of every window the exposed time of a step, divided among the stages."""
    figure = go.Figure(layout=layout_of("ms of a step", "UTC", "date", "stages-shares"))
    figure.update_layout(barmode="stack", bargap=0.04)
    at = [iso_from_ns((one.start_ns + one.end_ns) // 2) for one in packets]
    width = [max((one.end_ns - one.start_ns) / 1e6, 1.0) for one in packets]
    for number, stage in enumerate(_stages(packets)):
        shares = [one.body["report"]["shares"].get(stage, 0.0) for one in packets]
        ms = [round(share * one.step_s * 1e3, 2) for share, one in zip(shares, packets, strict=True)]
        figure.add_bar(
            x=at, y=ms, width=width, name=short(stage), marker=_marker(number),
            customdata=[[round(share * 100, 1), one.verdict] for share, one in zip(shares, packets, strict=True)],
            hovertemplate=f"{short(stage)}: %{{y:.1f}} ms, %{{customdata[0]}} %<br>%{{customdata[1]}}<extra></extra>",
        )  # fmt: skip
    moved = [one for one in packets if one.verdict in ("routed", "unlocalised")]
    if moved:
        figure.add_scatter(
            x=[iso_from_ns((one.start_ns + one.end_ns) // 2) for one in moved], y=[one.step_s * 1e3 for one in moved],
            mode="markers", name="step has moved", marker={"symbol": "triangle-down", "size": 10}, hoverinfo="skip",
        )  # fmt: skip
    beyond = spare(figure, [[one.step_s * 1e3 for one in packets]])
    return as_figure(figure, _shares_text(packets) + beyond)


def waterfall_figure(body: Mapping[str, Any]) -> dict[str, Any]:
    """Of every step of a window how far the frontier advanced in each stage, and which rank led there."""
    steps = body["steps"]
    figure = go.Figure(layout=layout_of("ms", "step", "linear", "stages-steps"))
    figure.update_layout(barmode="stack", bargap=0.0)
    for number, stage in enumerate(steps["stages"]):
        figure.add_bar(
            x=steps["step"], y=[row[number] for row in steps["advances_ms"]], name=short(stage),
            marker=_marker(number, is_wide=False),
            customdata=[[row[number], gap[number]] for row, gap in zip(steps["leader"], steps["gap_ms"], strict=True)],
            hovertemplate=(
                f"step %{{x}}, {short(stage)}: %{{y:.1f}} ms<br>rank %{{customdata[0]}} was last,"
                " %{customdata[1]:.1f} ms after the others<extra></extra>"
            ),
        )  # fmt: skip
    return as_figure(figure, _steps_text(body) + spare(figure, [[sum(row) for row in steps["advances_ms"]]]))


def ranks_figure(body: Mapping[str, Any]) -> dict[str, Any]:
    """The mean of every stage on every rank, as its difference from the median rank."""
    ranks = body["ranks"]
    order = sorted(range(len(ranks["rank"])), key=lambda at: ranks["rank"][at])
    apart = [
        [round(ms - middle, 3) for ms, middle in zip(ranks["mean_ms"][at], ranks["median_ms"], strict=True)]
        for at in order
    ]
    shown = [[ranks["mean_ms"][at][stage] for at in order] for stage in range(len(ranks["stages"]))]
    # Where all ranks are alike, what little they differ by must not look like something.
    floor = ALIKE_SHARE * body["report"]["step_s"] * 1e3 or 1.0
    largest = max([floor, *(abs(ms) for row in apart for ms in row)])
    layout = layout_of("", "rank", "category" if len(order) <= RANKS_TICKED_MAX else "linear", "stages-ranks")
    figure = go.Figure(layout=layout)
    figure.update_layout(
        xaxis={"showgrid": False}, yaxis={"autorange": "reversed", "type": "category", "showgrid": False}
    )
    figure.add_heatmap(
        x=[ranks["rank"][at] for at in order], y=[short(stage) for stage in ranks["stages"]],
        z=[list(column) for column in zip(*apart, strict=True)], customdata=shown, zmin=-largest, zmax=largest,
        colorscale=[[0.0, "rgba(0,114,178,1)"], [0.5, "rgba(128,136,144,0.16)"], [1.0, "rgba(213,94,0,1)"]], xgap=1, ygap=1,
        colorbar={"orientation": "h", "x": 0.0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "len": 0.6, "thickness": 8},
        hovertemplate="rank %{x}, %{y}: %{customdata:.1f} ms, %{z:+.1f} ms from the median rank<extra></extra>",
    )  # fmt: skip
    return as_figure(figure, _ranks_text(body))


def median_figure(body: Mapping[str, Any]) -> dict[str, Any]:
    """What a median dashboard says of each stage, beside its share of the exposed time."""
    rows = body["by_stage"]
    figure = go.Figure(layout=layout_of("share of the step, %", "", "category", "stages-median"))
    names = [short(row["stage"]) for row in rows]
    figure.update_layout(barmode="group")
    figure.add_bar(
        x=names, y=[round(row["p50_share"] * 100, 2) for row in rows], name="median (p50)", marker=_marker(7)
    )
    figure.add_bar(x=names, y=[round(row["share"] * 100, 2) for row in rows], name="frontier", marker=_marker(1))
    return as_figure(figure, _median_text(rows))


def _stages(packets: Sequence[StagePacket]) -> list[str]:
    found: dict[str, None] = {}
    for one in packets:
        found.update(
            dict.fromkeys(one.body["steps"]["stages"])
        )  # in order, which JSON objects do not keep in the database
    return list(found)


def _marker(number: int, *, is_wide: bool = True) -> dict[str, Any]:
    """A colour, and a pattern for those to whom colours say nothing, on bars that are wide enough for one."""
    marker = {"color": COLOURS[number % len(COLOURS)], "line": {"width": 0}}
    if not is_wide:
        return marker
    pattern = {"shape": PATTERNS[number % len(PATTERNS)], "fillmode": "overlay", "size": 8, "solidity": 0.15}
    return {**marker, "pattern": pattern}


def _shares_text(packets: Sequence[StagePacket]) -> str:
    if not packets:
        return "No window of stages has been closed yet."
    newest = packets[-1]
    shares = sorted(newest.body["report"]["shares"].items(), key=lambda pair: -pair[1])[:3]
    said = ", ".join(f"{short(stage)} {share:.0%}" for stage, share in shares)
    usual = f", usually {newest.usual_s * 1e3:.0f} ms" if newest.usual_s else ""
    n = len(packets)
    return f"{n} {'window' if n == 1 else 'windows'}. In the newest a step took {newest.step_s * 1e3:.0f} ms{usual}: {said}."


def _steps_text(body: Mapping[str, Any]) -> str:
    report, at = body["report"], body["report"]["at"]
    if at["leader"] is None:
        led = (
            f"No rank leaves {short(report['routing'][0])} clearly last."
            if report["routing"]
            else "Nothing is exposed."
        )
    else:
        led = f"Rank {at['leader']} leaves {short(report['routing'][0])} last, {at['lead_s'] * 1e3:.0f} ms after the others."
    return f"Steps {body['first_step']:,} to {body['last_step']:,} of {report['n_ranks']:,} ranks. {led}"


def _ranks_text(body: Mapping[str, Any]) -> str:
    ranks = body["ranks"]
    n, shown = ranks["n_ranks"], len(ranks["rank"])
    most, stage, ms = 0, "", 0.0
    for rank, means in zip(ranks["rank"], ranks["mean_ms"], strict=True):
        for name, mean, middle in zip(ranks["stages"], means, ranks["median_ms"], strict=True):
            if abs(mean - middle) > abs(ms):
                most, stage, ms = rank, name, mean - middle
    far = (
        f"Farthest from the median rank: rank {most} in {short(stage)}, {ms:+.1f} ms."
        if stage
        else "All ranks are alike."
    )
    return far if shown == n else f"{far} Shown are the {shown} of {n:,} ranks that differ most."


def _median_text(rows: Sequence[Mapping[str, Any]]) -> str:
    hidden = [row for row in rows if row["share"] >= 2 * row["p50_share"] + 0.02]
    if not hidden:
        return "The median and the frontier agree about every stage."
    worst = max(hidden, key=lambda row: row["share"] - row["p50_share"])
    return (
        f"A median dashboard shows {short(worst['stage'])} at {worst['p50_ms']:.1f} ms, {worst['p50_share']:.0%} of a step;"
        f" it is {worst['share']:.0%} of the exposed time, up to {worst['max_ms']:.0f} ms in a step."
    )
