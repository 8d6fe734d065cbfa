"""The lanes of flows as a picture: how far each flow had come, and where it stood still; of the page's lanes the first.

    Started it
    3 → 4  world ch 0              8·5·4/16  ▁▃▅▇▁▃▅▇╱╱╱╱╱╱╱╱╱╱╱╱   light: ready, darker: transmitted, solid: done, as shares
    Transmitted but not delivered · 48 s                           of the op's chunks; hatched: nothing moved for 500 ms
    Only wait
    1 → 3  dp_1 ch 0 …

Drawn as the page's lanes are (frontend/src/lanes/paint.ts). Nobody can point at a picture in a ticket, so what a flow does stands
beside it. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from console.evidence.lanes_order import MS, STALL_MS, Row, end_ns, shown, total_of, words_of
from console.evidence.svg import (
    COLOUR,
    HEADING,
    LABEL,
    MARKS_HEIGHT,
    WIDTH,
    Axis,
    as_svg,
    at_words,
    hatched,
    heading,
    legend,
    marks,
    moments,
    over,
    range_words,
    rect_svg,
    text_svg,
    ticks,
)
from console.incidents.pictures.lanes import TICKS_MAX, Lane, Lanes
from rca.findings import Diagnosis

ROW: Final = 34
FULL: Final = 26
HOLD_NS: Final = 250 * MS
"""Ticks come every 100 ms while an op runs; after a longer silence nothing was in progress, or nothing was seen."""
END_SHOWN_NS: Final = 6000 * MS
GAP_NS: Final = 1500 * MS
CLOCK_SHOWN_NS: Final = 20 * MS


def lanes_svg(lanes: Lanes, diagnosis: Diagnosis | None, title: str, nodes: Mapping[int, str]) -> tuple[str, int]:
    """The picture, and how many of the lanes have no room in it. nodes: rank → its node's name."""
    lanes = on_one_clock(lanes, diagnosis, nodes)
    groups, n_folded = shown(lanes, diagnosis)
    n_flows = len(lanes.lanes) + lanes.omitted
    x, top = Axis(lanes.from_ns, lanes.to_ns), 44 + MARKS_HEIGHT
    first_ns = min((lane.t_ns[0] for lane in lanes.lanes if lane.t_ns), default=0)
    goes_on = lanes.newest_ns - lanes.to_ns > END_SHOWN_NS
    y, shapes = top, []
    for role, rows in groups:
        if len(groups) > 1:
            shapes.append(heading(role, y))
            y += HEADING
        for row in rows:
            shapes += _row(row, role, x, y, _not_kept_ns(row.lane, lanes.from_ns, first_ns), goes_on)
            y += ROW
    below = y
    if lanes.newest_ns < lanes.to_ns:
        left = x(lanes.newest_ns)
        shapes.append(rect_svg(left, top, x(lanes.to_ns) - left, below - top, hatched("rank-unknown")))
    shared = moments(diagnosis, lanes.first_symptom_ns or 0, lanes.triggered_ns or 0)
    shapes += [*ticks(x, top, below), *marks(x, shared, top, below)]
    n_shown = len(lanes.lanes) - n_folded
    said = (f"Flows: {range_words(lanes.from_ns, lanes.to_ns)}; the words are of {at_words(end_ns(lanes))[11:19]}; "
            f"{n_shown:,} of {n_flows:,} flow{'s' * (n_flows != 1)}, those of the verdict first") if groups else NONE  # fmt: skip
    return as_svg(below + 50 + 20 * len(LEGEND), title, said, [*shapes, *legend(LEGEND, below + 30)]), n_folded


NONE: Final = (
    "Flows are noted ten times a second, as far as they are in progress: of these ranks none was in this time."
)
LEGEND: Final = (
    (COLOUR["lane-ready"], "ready"), (COLOUR["lane-transmitted"], "transmitted"),
    (COLOUR["lane-done"], "done; height: share of the op's chunks"),
    (hatched("lane-stall"), f"culprit, suspect: nothing moved for {STALL_MS} ms"), (hatched("lane-wait"), "only waits"),
    (hatched("rank-unknown"), "nothing is stored of that time"),
)  # fmt: skip


def on_one_clock(lanes: Lanes, diagnosis: Diagnosis | None, nodes: Mapping[int, str]) -> Lanes:
    """Each node's ticks put back by what its clock is ahead, where that is known and would show."""
    clocks = diagnosis.clocks if diagnosis else ()
    ahead = {one.node: one.offset_ns for one in clocks if abs(one.offset_ns) > max(CLOCK_SHOWN_NS, one.error_ns)}
    if not ahead:
        return lanes
    by = [ahead.get(nodes.get(lane.rank, ""), 0) for lane in lanes.lanes]
    put = [
        dataclasses.replace(lane, t_ns=[at - ns for at in lane.t_ns]) for lane, ns in zip(lanes.lanes, by, strict=True)
    ]
    return dataclasses.replace(lanes, lanes=put)


def _not_kept_ns(lane: Lane, from_ns: int, first_ns: int) -> int:
    """Until when nothing is kept of a lane; 0: all is. Before the first tick of all flows nothing is known of any."""
    first = lane.t_ns[0] if len(lane.t_ns) >= TICKS_MAX else first_ns
    return first if first - from_ns > GAP_NS else 0


def _row(row: Row, role: str, x: Axis, top: int, not_kept_ns: int, goes_on: bool) -> Iterator[str]:
    """Its name, counters and words; then what it did."""
    lane, tick = row.lane, row.tick
    is_blamed = role == "culprit"
    arrow = "←" if lane.direction.startswith("r") else "→"
    if is_blamed:
        yield rect_svg(0, top, 4, ROW, COLOUR["rank-culprit"])
    name = f"{lane.rank} {arrow} {lane.peer_rank}  {lane.comm_name} ch {lane.channel}"
    yield text_svg(10, top + 14, name, weight=600)
    if tick >= 0:
        counters = "·".join(str(counts[tick]) for counts in (lane.ready, lane.transmitted, lane.done))
        said = f"{lane.func} {lane.ops[tick]}   {counters}/{lane.total_chunks}"
        yield text_svg(LABEL - 10, top + 14, said, "end", COLOUR["ink-3"])
    ink = COLOUR["ink-3"] if not row.is_stuck else COLOUR["open"] if is_blamed else COLOUR["ink"]
    yield text_svg(10, top + 28, words_of(row, goes_on), fill=ink)
    yield f'<path d="M0 {top}H{WIDTH}" stroke="{COLOUR["line-2"]}"/>'
    stands = "lane-stall" if role in ("culprit", "suspect") else "lane-wait"
    yield from _progress(lane, x, top + (ROW - FULL) // 2, stands)
    if not_kept_ns:
        yield rect_svg(x(x.from_ns), top + 4, x(not_kept_ns) - x(x.from_ns), FULL, hatched("rank-unknown"))


def _progress(lane: Lane, x: Axis, top: int, stands: str) -> Iterator[str]:
    """Steps of progress; over them the hatch, as a flow that stands with everything transmitted must not look healthy."""
    ends = [_holds_until(lane, tick) for tick in range(len(lane.t_ns))]
    still = [(x(lane.t_ns[a]), x(ends[b])) for a, b in _runs([ms >= STALL_MS for ms in lane.stuck_ms], lane, ends)]
    for left, right in still:
        yield rect_svg(left, top, max(right - left, 1), FULL, COLOUR[stands])
    for counts, name in ((lane.ready, "lane-ready"), (lane.transmitted, "lane-transmitted"), (lane.done, "lane-done")):
        yield _steps(lane, counts, ends, x, top + FULL, COLOUR[name])
    for left, right in still:
        yield rect_svg(left, top, max(right - left, 1), FULL, over(stands))


def _holds_until(lane: Lane, tick: int) -> int:
    held = lane.t_ns[tick] + HOLD_NS
    return min(held, lane.t_ns[tick + 1]) if tick + 1 < len(lane.t_ns) else held


def _runs(is_in: Sequence[bool], lane: Lane, ends: Sequence[int]) -> list[tuple[int, int]]:
    """(first, last) ticks that are in and hold until the next one comes."""
    runs: list[tuple[int, int]] = []
    for tick in (tick for tick, one in enumerate(is_in) if one):
        if runs and runs[-1][1] == tick - 1 and ends[tick - 1] == lane.t_ns[tick]:
            runs[-1] = runs[-1][0], tick
        else:
            runs.append((tick, tick))
    return runs


def _steps(lane: Lane, counts: Sequence[int], ends: Sequence[int], x: Axis, base: int, colour: str) -> str:
    """One path: up to the share, right for as long as the tick holds, and down where nothing follows."""
    path = ""
    for first, last in _runs([True] * len(counts), lane, ends):
        path += f"M{x(lane.t_ns[first]):.1f} {base}"
        height = 0.0
        for tick in range(first, last + 1):
            share = FULL * min(counts[tick] / max(total_of(lane, tick), 1), 1.0)
            if share != height or tick == first:
                path += f"H{x(lane.t_ns[tick]):.1f}V{base - share:.1f}"
                height = share
        path += f"H{x(ends[last]):.1f}V{base}Z"
    return f'<path d="{path}" fill="{colour}"/>'
