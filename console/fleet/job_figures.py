"""A job over time: how long its steps take, how much of the time is communication, and how fast each kind of op is.

From the roll-ups (kept for weeks), the window packets of stages where the training loop records them, and else the lengths of
iterations that the trigger follows. Each figure says in words what it rests on.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from statistics import median
from typing import Any, Final

import plotly.graph_objects as go

from console.dashboard.axes import spare, with_gaps
from console.dashboard.figures import BARE, COLOURS, as_figure, begins_ns
from console.incidents.models import JobNormal
from console.incidents.rows import iso_from_ns
from console.questions.answering import STEPS_MAX, family_of
from console.stages.models import StagePacket
from ingest.models import Attempt, Communicator, Rank
from ingest.sums.summed import Asked, Summed, read_summed
from nccl_instrument.tables import FUNCS
from rca.triggers.normal import normal_from_json

SECOND: Final = 1_000_000_000
MINUTES: Final = (30, 360, 1440, 10_080)
SERIES_MAX: Final = 8
PACKETS_MAX: Final = 2000
FEW: Final = 60

Series = dict[str, list[tuple[str | None, float]]]


def job_figures(attempt: Attempt, minutes: int) -> dict[str, Any]:
    """`steps`, `communication`, `bandwidth`: figures of the newest `minutes`. Raises TooMuch."""
    newest = time.time_ns() if attempt.ended_at is None else int(attempt.ended_at.timestamp() * SECOND)
    start_ns, step_s = newest - minutes * 60 * SECOND, max(10, -(-minutes * 60 // (10 * STEPS_MAX)) * 10)
    found = read_summed(Asked(attempt.pk, start_ns, newest, step_s * SECOND))
    found = [
        one for one in found if one.at_ns + step_s * SECOND <= newest
    ]  # the step that is still filling is left out
    shown = (begins_ns(attempt, start_ns, newest), newest)
    span = f"the last {minutes} minutes" if minutes < 120 else f"the last {minutes // 60} hours"
    return {
        "steps": _steps(attempt, start_ns, shown, span),
        "communication": _communication(attempt, found, step_s, shown, span),
        "bandwidth": _bandwidth(found, shown, span),
    }


def _steps(attempt: Attempt, start_ns: int, shown: tuple[int, int], span: str) -> dict[str, Any]:
    """Of the stage recorder, else the iterations of the last minute as the trigger follows them."""
    packets = list(
        StagePacket.objects.filter(attempt=attempt, end_ns__gte=start_ns)
        .order_by("-end_ns").values_list("role", "end_ns", "step_s")[:PACKETS_MAX]
    )  # fmt: skip
    if packets:
        series: Series = {}
        for role, end_ns, step_s in reversed(packets):
            series.setdefault(role or "step", []).append((iso_from_ns(end_ns), round(step_s * 1e3, 2)))
        said = f"{len(packets):,} windows of stages in {span}, as the training loop records them."
        return _drawn(series, "ms of a step", f"{said} {_newest(series, 'ms')}", shown, markers=True)
    normal = JobNormal.objects.filter(attempt=attempt).first()
    pace = normal_from_json(normal.body).pace if normal else None
    if pace is None or not pace.recent:
        return _drawn({}, "ms of a step", "Neither a recorder of stages nor an iteration that repeats is known.")
    recent: Series = {"iteration": [(iso_from_ns(began), round(length / 1e6, 2)) for began, length in pace.recent]}
    usual = f" Usual are {median(pace.usual_ns) / 1e6:.0f} ms." if pace.usual_ns else " What is usual is not known yet."
    said = "Iterations of the last minute, read off the ops: the training loop records no stages."
    since_ns = min(began for began, _ in pace.recent)  # on a week's axis their minute would be a line
    text = f"{said}{usual} {_newest(recent, 'ms')}"
    return _drawn(recent, "ms of an iteration", text, (since_ns, shown[1]), markers=True)


def _communication(
    attempt: Attempt, found: Sequence[Summed], step_s: int, asked: tuple[int, int], span: str
) -> dict[str, Any]:
    """Time in ops per rank and second, by family of communicators: more than one second where they overlap."""
    names = dict(Communicator.objects.filter(attempt=attempt).values_list("comm_id", "name"))
    n_ranks = Rank.objects.filter(attempt=attempt, rank__gte=0, replaced=False).count() or attempt.world_size
    sums: dict[str, dict[int, int]] = {}
    for one in found:
        family = family_of(names.get(one.comm_id, "")) or "unnamed"
        of = sums.setdefault(family, {})
        of[one.at_ns] = of.get(one.at_ns, 0) + one.duration_sum_ns
    spent = {family: sum(of.values()) for family, of in sums.items()}
    series: Series = {}
    for family in sorted(spent, key=lambda one: -spent[one])[:SERIES_MAX]:
        per = max(n_ranks, 1) * step_s * SECOND
        series[family] = [(iso_from_ns(at), round(took / per, 4)) for at, took in sorted(sums[family].items())]
    said = f"Seconds that a rank spends in ops, per second, in {span}, waiting inside them included; ops side by side count each."
    return _drawn(series, "s per s of a rank", f"{said} {_newest(series, 's')}", asked)


def _bandwidth(found: Sequence[Summed], asked: tuple[int, int], span: str) -> dict[str, Any]:
    """Bus bandwidth by kind of op, over all communicators; only of those whose size is known."""
    sums: dict[int, dict[int, tuple[float, int]]] = {}
    for one in found:
        if one.bus_ns:
            of = sums.setdefault(one.func, {})
            moved, took = of.get(one.at_ns, (0.0, 0))
            of[one.at_ns] = moved + one.bus_bytes, took + one.bus_ns
    series: Series = {
        FUNCS[func]: [(iso_from_ns(at), round(moved / took, 4)) for at, (moved, took) in sorted(of.items())]
        for func, of in sorted(sums.items())[:SERIES_MAX]
    }
    said = f"Bus bandwidth by kind of op in {span}, bytes that a link carries over the time the ops took."
    return _drawn(series, "GB/s", f"{said} {_newest(series, 'GB/s')}", asked)


def _newest(series: Series, unit: str) -> str:
    """The last value of each, and of when: in a hang nothing comes any more."""
    if not series:
        return "Nothing is known."
    said: dict[str, list[str]] = {}
    for name, points in series.items():
        at, value = points[-1]
        said.setdefault((at or "unknown")[:19].replace("T", " "), []).append(f"{name} {value:g} {unit}")
    return "Newest: " + "; ".join(f"{', '.join(words)} at {at} UTC" for at, words in sorted(said.items())) + "."


def _drawn(
    series: Series, unit: str, text: str, asked: tuple[int, int] = (0, 0), *, markers: bool = False
) -> dict[str, Any]:
    """markers: of steps, which come as they are done. asked: the stretch of time that was asked for, ns; the axis is as long, so
    that a time in which nothing came is seen, and longer where something came from before."""
    axes: dict[str, Any] = {
        "xaxis": {"type": "date", "title": {"text": "UTC"}},
        "yaxis": {"rangemode": "tozero", "title": {"text": unit}},
    }
    if series:
        firsts = [points[0][0] for points in series.values() if points and points[0][0]]
        axes["xaxis"]["range"] = [min([*firsts, iso_from_ns(asked[0])], key=str), iso_from_ns(asked[1])]
    figure = go.Figure(layout={**BARE, **axes, "uirevision": unit})
    is_paced = not markers
    markers = markers or all(len(points) <= FEW for points in series.values())  # a line of one point is nothing
    for number, (name, points) in enumerate(series.items()):
        line = {"color": COLOURS[number % len(COLOURS)], "dash": ("solid", "dash", "dot")[number % 3]}
        marker = {"color": line["color"], "size": 4}
        xs, ys = with_gaps(points) if is_paced else ([at for at, _ in points], [value for _, value in points])
        mode = "lines+markers" if markers else "lines"
        figure.add_scatter(x=xs, y=ys, name=name, line=line, marker=marker, mode=mode)
    return as_figure(figure, text + spare(figure, [[value for _, value in points] for points in series.values()]))
