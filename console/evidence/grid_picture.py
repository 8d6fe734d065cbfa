"""The incident's ranks as a picture: one cell per rank in the order of ranks, a row for as many as fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from html import escape
from typing import Final

from console.evidence.svg import COLOUR, HATCHED, WIDTH, as_svg, hatched, legend, rect_svg
from console.incidents.pictures.grid import STATES, Grid

CELLS_GAPPED_MAX: Final = 16_384
CELLS_NAMED_MAX: Final = 512
STATE_WORD: Final = {
    "ok": "makes progress", "waiting": "waits for another rank", "culprit": "culprit: where it started",
    "suspect": "suspect: one of these started it", "silent": "silent", "dead": "its process ended", "unknown": "unknown",
    "not_visible": "not visible: works inside the node",
}  # fmt: skip


def grid_svg(grid: Grid, title: str) -> str:
    """A cell has its rank's number where there is room."""
    n = len(grid.rank)
    size = 36 if n <= CELLS_NAMED_MAX else 12 if n <= 4096 else 8 if n <= CELLS_GAPPED_MAX else 4
    per_row = max(8, (WIDTH - 20) // size // 8 * 8)
    gap = 1 if n <= CELLS_GAPPED_MAX else 0
    n_rows = -(-n // per_row)
    shapes = [shape for row in range(n_rows) for shape in _cells(grid.state, row, per_row, size, gap)]
    shapes += [_named(grid, at, per_row, size) for at in range(n)] if n <= CELLS_NAMED_MAX else []
    counts = Counter(grid.states[state] for state in grid.state)
    words = [(_fill(state), f"{STATE_WORD[state]}: {counts[state]:,}") for state in STATES if counts[state]]
    below = 66 + n_rows * size
    said = f"{n:,} ranks in order, {per_row} to a row, at {grid.at}"
    return as_svg(below + 20 * len(words) + 20, title, said, [*shapes, *legend(words, below)])


def _named(grid: Grid, at: int, per_row: int, size: int) -> str:
    """The rank's number in its cell, and its node for who points at it; a plain patch where a hatch would cross it."""
    node = grid.nodes[grid.node[at]] if grid.node[at] >= 0 else "unknown node"
    x, y = 10 + at % per_row * size, 56 + at // per_row * size
    told = escape(f"rank {grid.rank[at]} on {node}. {grid.note[at]}")
    state, number = grid.states[grid.state[at]], str(grid.rank[at])
    name = _name(state)
    ink = COLOUR["card"] if state == "culprit" else COLOUR["ink"]
    wide = 7 * len(number) + 5
    plate = rect_svg(x + (size - 1 - wide) / 2, y + 9, wide, 17, COLOUR[name]) if name in HATCHED else ""
    weight = ' font-weight="700"' if state == "culprit" else ""
    return (f'{plate}<text x="{x + (size - 1) / 2:.1f}" y="{y + size / 2 + 4:.1f}" text-anchor="middle" fill="{ink}"{weight}>'
            f"{number}<title>{told}</title></text>")  # fmt: skip


def _cells(states: Sequence[int], row: int, per_row: int, size: int, gap: int) -> Iterable[str]:
    line = states[row * per_row : (row + 1) * per_row]
    start = 0
    for at in range(1, len(line) + 1):
        if at < len(line) and line[at] == line[start] and not gap:
            continue
        yield rect_svg(
            10 + start * size, 56 + row * size, (at - start) * size - gap, size - gap, _fill(STATES[line[start]])
        )
        start = at


def _name(state: str) -> str:
    return f"rank-{state.replace('_', '-')}"


def _fill(state: str) -> str:
    name = _name(state)
    return hatched(name) if name in HATCHED else COLOUR[name]
