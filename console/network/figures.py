"""The pictures of the wire as plotly figures, each with the same facts in words: how long ops lasted and how long bytes moved,
rates over time, the rate of every path, and who sent how much to whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import plotly.graph_objects as go

from console.dashboard.figures import COLOURS, as_figure, layout_of
from console.incidents.rows import iso_from_ns
from rca.flows.pictures import Floats, OpTimes, Paths

RANKS_DRAWN_MAX: Final = 64
LINES_MAX: Final = 8
DASHES: Final = ("solid", "dash", "dot", "dashdot")
UPPER: Final = 0.75
APART: Final = 1.25
ALIKE: Final = 1.1
"""Times the median rank: a rank with more stands out."""


def times_figure(times: OpTimes, since_ns: int, n_ranks: int) -> dict[str, Any]:
    """Of every rank the median time its ops lasted, and in which bytes moved. n_ranks: of the group, measured or not."""
    ranks, actual, lasted = _medians(times, since_ns)
    shown = _shown(ranks, actual)
    figure = go.Figure(layout=layout_of("ms of an op", "rank", "category", "network-times"))
    figure.update_layout(barmode="overlay", bargap=0.15)
    x = [str(ranks[at]) for at in shown]
    figure.add_bar(
        x=x, y=[_ms(lasted[at]) for at in shown], name="lasted", marker={"color": "rgba(128,136,144,0.35)"},
        hovertemplate="rank %{x}: lasted %{y:.2f} ms<extra></extra>",
    )  # fmt: skip
    figure.add_bar(
        x=x, y=[_ms(actual[at]) for at in shown], name="bytes moved", width=0.5,
        marker={"color": COLOURS[4], "pattern": {"shape": "/", "fillmode": "overlay", "size": 6, "solidity": 0.2}},
        hovertemplate="rank %{x}: bytes moved for %{y:.2f} ms<extra></extra>",
    )  # fmt: skip
    return as_figure(figure, _times_text(ranks, actual, lasted, len(shown), n_ranks))


def rates_figure(times: OpTimes, ranks: Sequence[int]) -> dict[str, Any]:
    """Bytes per second of these ranks while bytes moved, from each op's first byte to its last; the edges are the ops'."""
    figure = go.Figure(layout=layout_of("GB/s while bytes moved", "UTC", "date", "network-rates"))
    rate = times.rate() / 1e9
    for number, rank in enumerate(ranks[:LINES_MAX]):
        mine = np.flatnonzero(times.rank == rank)
        x: list[str | None] = []
        y: list[float | None] = []
        for at in mine:
            begin, end = iso_from_ns(int(times.start_ns[at])), iso_from_ns(int(times.end_ns[at]))
            value = None if np.isnan(rate[at]) else round(float(rate[at]), 4)
            x += [begin, begin, end, end]
            y += [0.0, value, value, 0.0]
        line = {
            "color": COLOURS[number % len(COLOURS)],
            "dash": DASHES[number // len(COLOURS) % len(DASHES)],
            "width": 1.5,
        }
        figure.add_scatter(x=x, y=y, name=f"rank {rank}", mode="lines", line=line)
    return as_figure(figure, _rates_text(times, ranks[:LINES_MAX]))


def paths_figure(paths: Paths, n_ranks: int, *, by_peer: bool) -> dict[str, Any]:
    """The rate of every rank on every channel, or to every peer: a dark cell is a slow NIC or link. n_ranks: of the group."""
    figure = go.Figure(layout=layout_of("rank", "sends to rank" if by_peer else "channel", "category", "network-paths"))
    figure.update_layout(
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False}, xaxis={"showgrid": False}
    )
    shown = _shown_paths(paths)
    rate, channel = paths.rate[shown] / 1e9, "" if by_peer else "channel %{x}, "
    figure.add_heatmap(
        x=[str(one) for one in paths.column.tolist()], y=[str(one) for one in paths.rank[shown].tolist()],
        z=_cells(rate), customdata=_peers(paths.peer[shown]), zmin=0.0, zmax=_largest(rate), xgap=1, ygap=1,
        colorscale=[[0.0, "rgba(120,20,60,1)"], [0.5, "rgba(213,94,0,0.75)"], [1.0, "rgba(86,180,233,0.25)"]],
        colorbar={"orientation": "h", "x": 0.0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "len": 0.6, "thickness": 8},
        hovertemplate=f"rank %{{y}}, {channel}to rank %{{customdata}}: %{{z:.3f}} GB/s<extra></extra>",
    )  # fmt: skip
    return as_figure(figure, _paths_text(paths, n_ranks, by_peer=by_peer))


def matrix_figure(paths: Paths) -> dict[str, Any]:
    """Who sent how much to whom in all: hot experts are bright columns."""
    figure = go.Figure(layout=layout_of("from rank", "to rank", "category", "network-matrix"))
    figure.update_layout(
        yaxis={"type": "category", "autorange": "reversed", "showgrid": False}, xaxis={"showgrid": False}
    )
    shown = _shown_paths(paths)
    figure.add_heatmap(
        x=[str(one) for one in paths.column.tolist()], y=[str(one) for one in paths.rank[shown].tolist()],
        z=_cells(paths.n_bytes[shown] / 1e6), zmin=0.0, zmax=_largest(paths.n_bytes[shown] / 1e6), xgap=1, ygap=1,
        colorscale=[[0.0, "rgba(128,136,144,0.12)"], [1.0, "rgba(0,158,115,1)"]],
        colorbar={"orientation": "h", "x": 0.0, "xanchor": "left", "y": 1.02, "yanchor": "bottom", "len": 0.6, "thickness": 8},
        hovertemplate="rank %{y} to rank %{x}: %{z:.2f} MB<extra></extra>",
    )  # fmt: skip
    return as_figure(figure, _matrix_text(paths))


def rank_rows(times: OpTimes, since_ns: int, unfinished: Mapping[int, int]) -> list[dict[str, Any]]:
    """The table beside the figures: a row per rank, the slowest on the wire first, then those of which no op has ended.

    unfinished: rank → ops it is in that do not end.
    """
    ranks, actual, lasted = _medians(times, since_ns)
    middle = float(np.median(actual)) if len(actual) else 0.0
    rows = []
    for at in np.argsort(-actual, kind="stable").tolist():
        mine = (times.rank == ranks[at]) & (times.start_ns >= since_ns)
        rate = times.rate()[mine]
        rows.append(
            {
                "rank": int(ranks[at]), "n_ops": int(mine.sum()), "actual_ms": _ms(actual[at]), "lasted_ms": _ms(lasted[at]),
                "gb_per_s": None if np.isnan(rate).all() else round(float(np.nanmedian(rate)) / 1e9, 4),
                "times_median": round(float(actual[at]) / middle, 3) if middle else None,
                "unfinished": max(int((~times.is_finished[mine]).sum()), unfinished.get(int(ranks[at]), 0)),
            }
        )  # fmt: skip
    return rows + [_only_unfinished(rank, n) for rank, n in sorted(unfinished.items()) if rank not in ranks]


def _only_unfinished(rank: int, n: int) -> dict[str, Any]:
    nothing = {"actual_ms": None, "lasted_ms": None, "gb_per_s": None, "times_median": None}
    return {"rank": rank, "n_ops": 0, **nothing, "unfinished": n}


def drawn_ranks(times: OpTimes, focus: int, since_ns: int) -> list[int]:
    """Whose rates are drawn: the rank one came with, then those whose bytes move longest and shortest."""
    ranks, actual, _ = _medians(times, since_ns)
    order = ranks[np.argsort(-actual, kind="stable")].tolist()
    ends = [rank for pair in zip(order, reversed(order), strict=True) for rank in pair]
    own = [focus] if focus in order else []
    return list(dict.fromkeys([*own, *ends]))[:LINES_MAX]


def _medians(times: OpTimes, since_ns: int) -> tuple[Any, Floats, Floats]:
    """Ranks, and the medians of their ops since then."""
    kept = times.only(times.start_ns >= since_ns)
    ranks = np.unique(kept.rank)
    actual = np.array([np.median(kept.actual_ns[kept.rank == rank]) for rank in ranks])
    lasted = np.array([np.median(kept.lasted_ns[kept.rank == rank]) for rank in ranks])
    return ranks, actual, lasted


def _shown(ranks: Any, actual: Floats) -> list[int]:
    """Positions of the ranks that are drawn: of too many those farthest from the median."""
    if len(ranks) <= RANKS_DRAWN_MAX:
        return list(range(len(ranks)))
    far = np.argsort(-np.abs(actual - np.median(actual)), kind="stable")[:RANKS_DRAWN_MAX]
    return sorted(far.tolist())


def _shown_paths(paths: Paths) -> list[int]:
    if len(paths.rank) <= RANKS_DRAWN_MAX:
        return list(range(len(paths.rank)))
    worst = np.nanmin(np.where(np.isnan(paths.rate), np.inf, paths.rate), axis=1)
    return sorted(np.argsort(worst, kind="stable")[:RANKS_DRAWN_MAX].tolist())


def _largest(values: Floats) -> float:
    return float(np.nanmax(values)) if np.isfinite(values).any() else 1.0


def _cells(values: Floats) -> list[list[float | None]]:
    return [[None if np.isnan(one) else round(float(one), 4) for one in row] for row in values]


def _peers(peers: Any) -> list[list[str]]:
    return [["several" if one < 0 else str(one) for one in row] for row in peers.tolist()]


def _times_text(ranks: Any, actual: Floats, lasted: Floats, n_shown: int, n_ranks: int) -> str:
    if not len(ranks):
        return "No op of this group was measured in this time."
    worst, middle = int(np.argmax(actual)), float(np.median(actual))
    said = (
        f"Ops lasted {_ms(float(np.median(lasted))):g} ms at the median rank; bytes moved for {_ms(middle):g} ms of it."
    )
    if middle and actual[worst] >= APART * middle:
        said += f" Longest on rank {ranks[worst]}: {actual[worst] / 1e6:.3g} ms, {actual[worst] / middle:.1f} times the median."
    elif len(ranks) > 1 or n_ranks <= 1:
        is_alike = float(actual.max()) <= ALIKE * middle and float(actual.min()) * ALIKE >= middle
        all_of = "All ranks are alike." if len(ranks) >= n_ranks else "They are alike."
        said += f" {all_of}" if is_alike else " Nobody stands out."
    if len(ranks) < n_ranks:
        said = f"Of the {len(ranks):,} of {n_ranks:,} ranks that were measured: {said[:1].lower()}{said[1:]}"
    return (
        said if n_shown == len(ranks) else f"{said} Drawn are the {n_shown} of {len(ranks):,} ranks that differ most."
    )


def _rates_text(times: OpTimes, ranks: Sequence[int]) -> str:
    if not len(times.rank):
        return "No op of this group was measured in this time."
    n = len(np.unique(times.rank))
    return f"{len(ranks)} of {n} ranks, up to their {int(np.bincount(times.rank).max())} newest measured ops."


def _paths_text(paths: Paths, n_ranks: int, *, by_peer: bool) -> str:
    if not np.isfinite(paths.rate).any():
        return "No path of this group was measured in this time."
    usual = float(np.nanquantile(paths.rate, UPPER))  # of a small ring half the paths touch a slow NIC
    row, column = np.unravel_index(int(np.nanargmin(paths.rate)), paths.rate.shape)
    to = paths.peer[row, column]
    where = f"rank {paths.rank[row]}" + ("" if by_peer else f", channel {paths.column[column]}")
    where += f", to rank {to}" if to >= 0 else ""
    slowest = float(paths.rate[row, column])
    if slowest >= usual / APART:
        n_seen = int(np.isfinite(paths.rate).any(axis=1).sum())
        of = f" of the {n_seen:,} of {n_ranks:,} ranks that were measured" if n_seen < n_ranks else ""
        return f"All paths{of} are about as fast: {usual / 1e9:.3g} GB/s each.{_together(paths)}"
    few = f"a quarter of the paths have {usual / 1e9:.3g} GB/s or more."
    return f"Slowest: {where}, {slowest / 1e9:.3g} GB/s; {few}{_together(paths)}"


def _together(paths: Paths) -> str:
    """Why the table beside it has higher rates."""
    return " A rank's rate is that of all its paths together." if len(paths.column) > 1 else ""


def _matrix_text(paths: Paths) -> str:
    into = paths.n_bytes.sum(axis=0)
    if not len(into) or not into.sum():
        return "Nothing was sent in this time."
    most, middle = int(np.argmax(into)), float(np.median(into))
    if middle and into[most] >= APART * middle:
        times = into[most] / middle
        return f"Most is sent to rank {paths.column[most]}: {into[most] / 1e6:.3g} MB, {times:.1f} times the median."
    return "About as much is sent to every rank."


def _ms(ns: float) -> float:
    return round(float(ns) / 1e6, 3)
