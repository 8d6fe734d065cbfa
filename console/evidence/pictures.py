"""The incident's pictures as SVG files that need nothing else: the grid of ranks, who stood still when, the lanes of flows.

The page draws them on canvases in the reader's browser; these are drawn on the server, on white, from the same values, so that
a ticket or a mail can hold them. Every name in them comes from outside and is escaped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from console.incidents.pictures.grid import STATES, Grid
from console.incidents.pictures.lanes import Lane, Lanes
from console.incidents.rows import iso_from_ns
from rca.hang.standing import BETWEEN, GONE, MOVES, NOT_VISIBLE, STOPPED, UNHEARD, Span, Standing

SECOND: Final = 1_000_000_000
WIDTH: Final = 1200
LABEL: Final = 210
CELLS_GAPPED_MAX: Final = 16_384
CELLS_NAMED_MAX: Final = 512
TICKS: Final = 8
TITLE_CHARS: Final = 110
STATE_COLOUR: Final = {
    "ok": "#b5d8cb", "waiting": "#b9d3ea", "culprit": "#d55e00", "silent": "#efc84f", "dead": "#d98bb3", "unknown": "#e3e7ea",
    "not_visible": "#ffffff",
}  # fmt: skip
STATE_WORD: Final = {
    "ok": "makes progress", "waiting": "waits for another rank", "culprit": "culprit: where it started", "silent": "silent",
    "dead": "its process ended", "unknown": "unknown", "not_visible": "not visible: works inside the node",
}  # fmt: skip
DOING: Final = {
    MOVES: ("#b5d8cb", "its op moves"), BETWEEN: ("#eef0f2", "in no op"), NOT_VISIBLE: ("#ffffff", "not visible"),
    STOPPED: ("#d55e00", "its process is stopped"), GONE: ("#d98bb3", "gone"), UNHEARD: ("url(#unknown)", "nothing heard"),
    "not_started": ("#cc79a7", "①=②=③=0 not started"), "not_transmitted": ("#56b4e9", "①>② not transmitted"),
    "not_delivered": ("#0072b2", "②>③ not delivered"), "gpu_not_ready": ("#e69f00", "①=②=③>0 GPU not ready"),
}  # fmt: skip
PATTERNS: Final = (
    '<defs><pattern id="unknown" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="#f3f4f6"/><rect width="2" height="6" fill="#a9b2bb"/></pattern>'
    '<pattern id="culprit" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="#d55e00"/><rect width="2" height="6" fill="#8f3f00"/></pattern>'
    '<pattern id="stands" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    '<rect width="6" height="6" fill="#fdeadd"/><rect width="2" height="6" fill="#f0bd98"/></pattern></defs>'
)


def grid_svg(grid: Grid, title: str) -> str:
    """One cell per rank in the order of ranks, a row for as many as fit, with its number where there is room."""
    n = len(grid.rank)
    size = 36 if n <= CELLS_NAMED_MAX else 12 if n <= 4096 else 8 if n <= CELLS_GAPPED_MAX else 4
    per_row = max(8, (WIDTH - 20) // size // 8 * 8)
    gap = 1 if n <= CELLS_GAPPED_MAX else 0
    n_rows = -(-n // per_row)
    shapes = [shape for row in range(n_rows) for shape in _cells(grid.state, row, per_row, size, gap)]
    shapes += [_named(grid, at, per_row, size) for at in range(n)] if n <= CELLS_NAMED_MAX else []
    counts = Counter(grid.states[state] for state in grid.state)
    legend = [(_fill(state), f"{STATE_WORD[state]}: {counts[state]:,}") for state in STATES if counts[state]]
    below = 66 + n_rows * size
    said = f"{n:,} ranks in order, {per_row} to a row, at {grid.at}"
    return as_svg(below + 20 * len(legend) + 20, title, said, [*shapes, *_legend(legend, below)])


def _named(grid: Grid, at: int, per_row: int, size: int) -> str:
    """The rank's number in its cell, and its node for who points at it."""
    node = grid.nodes[grid.node[at]] if grid.node[at] >= 0 else "unknown node"
    x, y = 10 + at % per_row * size + 4, 56 + at // per_row * size + size / 2 + 4
    told = escape(f"rank {grid.rank[at]} on {node}. {grid.note[at]}")
    paint = ' fill="#ffffff" font-weight="700"' if grid.states[grid.state[at]] == "culprit" else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{paint}>{grid.rank[at]}<title>{told}</title></text>'


def _cells(states: Sequence[int], row: int, per_row: int, size: int, gap: int) -> Iterable[str]:
    line = states[row * per_row : (row + 1) * per_row]
    start = 0
    for at in range(1, len(line) + 1):
        if at < len(line) and line[at] == line[start] and not gap:
            continue
        yield _rect(
            10 + start * size, 56 + row * size, (at - start) * size - gap, size - gap, _fill(STATES[line[start]])
        )
        start = at


def _fill(state: str) -> str:
    return {"culprit": "url(#culprit)", "unknown": "url(#unknown)"}.get(state, STATE_COLOUR[state])


def standing_svg(standing: Standing, title: str, nodes: dict[int, str]) -> str:
    """A row per rank: what it did, and in which condition of Table 4 it stood still."""
    height_of = {rank: 60 + 16 * at for at, rank in enumerate(standing.ranks)}
    x = _Axis(standing.from_ns, standing.to_ns)
    shapes = [text_svg(10, y + 11, f"rank {rank} {nodes.get(rank, '')}") for rank, y in height_of.items()]
    shapes += [_span(span, x(span.from_ns), x(span.to_ns), height_of[span.rank]) for span in standing.spans]
    below = 76 + 16 * len(standing.ranks)
    shapes += _ticks(x, standing.from_ns, standing.to_ns, below - 6)
    used = {span.doing for span in standing.spans}
    legend = [pair for doing, pair in DOING.items() if doing in used]
    left = f"; {standing.omitted:,} ranks left out" if standing.omitted else ""
    said = f"{_at(standing.from_ns)} to {_at(standing.to_ns)}{left}"
    return as_svg(below + 20 * len(legend) + 20, title, said, [*shapes, *_legend(legend, below + 8)])


def _span(span: Span, left: float, right: float, top: int) -> str:
    colour, word = DOING.get(span.doing, ("#e3e7ea", span.doing))
    verdict = f", {span.verdict}" if span.verdict else ""
    return _rect(left, top, max(right - left, 0.5), 12, colour, f"rank {span.rank}: {word}{verdict}")


def lanes_svg(lanes: Lanes, title: str) -> str:
    """A row per flow: the share of its op's chunks that were ready, transmitted and done; hatched where it stands."""
    x = _Axis(lanes.from_ns, lanes.to_ns)
    shapes: list[str] = []
    for at, lane in enumerate(lanes.lanes):
        top = 60 + 22 * at
        shapes.append(text_svg(10, top + 13, f"{lane.rank} {'→' if lane.direction == 'send' else '←'} {lane.peer_rank}  "
                                          f"{lane.comm_name} ch {lane.channel}"))  # fmt: skip
        shapes += _lane(lane, x, top)
    below = 74 + 22 * len(lanes.lanes)
    shapes += _ticks(x, lanes.from_ns, lanes.to_ns, below - 6)
    for at_ns, word in ((lanes.first_symptom_ns, "first symptom"), (lanes.triggered_ns, "trigger")):
        if at_ns and lanes.from_ns <= at_ns <= lanes.to_ns:
            shapes.append(f'<path d="M{x(at_ns):.1f} 54V{below}" stroke="#b23c00" stroke-dasharray="4 3"/>')
            is_left = x(at_ns) > WIDTH - 80 or (
                word != "trigger" and 0 <= (lanes.triggered_ns or 0) - at_ns < 90 / x.scale
            )
            shapes.append(text_svg(x(at_ns) + (-3 if is_left else 3), 53, word, "end" if is_left else "start"))
    legend = [("#d3e4f3", "ready"), ("#94bfe3", "transmitted"), ("#3a7db5", "done, as shares of the op's chunks"),
              ("url(#stands)", "has not moved for 500 ms"), ("#ffffff", "nothing is known of that time")]  # fmt: skip
    left = f"; {lanes.omitted:,} flows left out" if lanes.omitted else ""
    said = f"{_at(lanes.from_ns)} to {_at(lanes.to_ns)}{left}"
    return as_svg(below + 120, title, said, [*shapes, *_legend(legend, below + 10)])


def _lane(lane: Lane, x: _Axis, top: int) -> Iterable[str]:
    still = [at for at, ms in enumerate(lane.stuck_ms) if ms > 500]
    for first, last in _runs(still):
        began = lane.t_ns[first] - lane.stuck_ms[first] * 1_000_000
        yield _rect(
            x(max(began, lane.t_ns[0])),
            top,
            max(x(lane.t_ns[last]) - x(max(began, lane.t_ns[0])), 1),
            18,
            "url(#stands)",
        )
    total = max(lane.total_chunks, 1)
    for counts, colour in ((lane.ready, "#d3e4f3"), (lane.transmitted, "#94bfe3"), (lane.done, "#3a7db5")):
        points = [(x(at), 18 * min(n / total, 1.0)) for at, n in zip(lane.t_ns, counts, strict=True)]
        line = "".join(f"L{left:.1f} {top + 18 - height:.1f}" for left, height in points)
        yield (f'<path d="M{points[0][0]:.1f} {top + 18}{line}L{points[-1][0]:.1f} {top + 18}Z" fill="{colour}"'
               ' fill-opacity="0.85"/>')  # fmt: skip


def _runs(places: Sequence[int]) -> list[tuple[int, int]]:
    """(first, last) of numbers that follow each other."""
    runs: list[tuple[int, int]] = []
    for at in places:
        if runs and runs[-1][1] == at - 1:
            runs[-1] = runs[-1][0], at
        else:
            runs.append((at, at))
    return runs


class _Axis:
    """Unix ns to pixels."""

    def __init__(self, from_ns: int, to_ns: int) -> None:
        self.from_ns, self.scale = from_ns, (WIDTH - LABEL - 10) / max(to_ns - from_ns, 1)

    def __call__(self, at_ns: int) -> float:
        return LABEL + (at_ns - self.from_ns) * self.scale


def _ticks(x: _Axis, from_ns: int, to_ns: int, top: float) -> Iterable[str]:
    """Times of day below the rows, at whole seconds."""
    step_ns = max((to_ns - from_ns) // TICKS // SECOND, 1) * SECOND
    for at_ns in range(-(-from_ns // step_ns) * step_ns, to_ns, step_ns):
        yield f'<path d="M{x(at_ns):.1f} 56V{top - 8:.0f}" stroke="#dce0e4" stroke-width="0.5"/>'
        yield text_svg(x(at_ns) - 18, top + 2, _at(at_ns)[11:19])


def _at(ns: int) -> str:
    return iso_from_ns(ns) or "unknown"


def _rect(x: float, y: float, width: float, height: float, fill: str, title: str = "") -> str:
    inner = f"<title>{escape(title)}</title>" if title else ""
    edge = ' stroke="#a9b2bb" stroke-width="0.5"' if fill == "#ffffff" else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"{edge}>{inner}</rect>'


def text_svg(x: float, y: float, text: str, anchor: str = "start") -> str:
    held = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{held}>{escape(text)}</text>'


def _legend(pairs: Sequence[tuple[str, str]], top: float) -> list[str]:
    return [shape for at, (fill, word) in enumerate(pairs)
            for shape in (_rect(10, top + 20 * at, 14, 14, fill), text_svg(32, top + 11 + 20 * at, word))]  # fmt: skip


def as_svg(height: float, title: str, said: str, shapes: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}"'
        ' font-family="system-ui, sans-serif" font-size="11" fill="#14191f">'
    )
    size = 15 if len(title) <= TITLE_CHARS else 12
    words = f'<text x="10" y="20" font-size="{size}" font-weight="600">{escape(title)}</text>{text_svg(10, 36, said)}'
    paper = f'<rect width="{WIDTH}" height="{height:.0f}" fill="#ffffff"/>'
    return "".join((head, PATTERNS, paper, words, *shapes, "</svg>\n"))
