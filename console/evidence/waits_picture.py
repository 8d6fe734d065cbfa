"""The waiting path as a picture: who started it on the left, who waits for them right of it, who waits for those right of that.

    ┌─────────────┐       ┌──────────────────────────────┐       ┌─────────────────────────────┐
    │ rank 3      │ ◀──── │ ranks 0–2, 4                 │ ◀──── │ ranks 8–9                   │
    │ culprit     │       │ rank 3 has not entered the op │       │ rank 2 has sent nothing more │
    └─────────────┘       └──────────────────────────────┘       └─────────────────────────────┘

Ranks that wait for the same ones, and why, are one box, and a column has a few boxes; what has no room is counted. Pure.
"""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from console.evidence.svg import WIDTH, as_svg
from rca.findings import Diagnosis, WaitEdge
from rca.words import runs_of

COLUMNS_MAX: Final = 4
BOXES_MAX: Final = 8
BOX_WIDTH, GAP, TOP = 236, 12, 60
HEAD_HEIGHT, LINE_HEIGHT = 30, 14
STEP: Final = (WIDTH - 20 - BOX_WIDTH) // (COLUMNS_MAX - 1)
LINE_CHARS_MAX: Final = 36
LINES_MAX: Final = 4
"""Nobody can point at a picture in a ticket: what a box says stands there whole."""
RUNS_SHOWN: Final = 3
DIFFERENT: Final = "each for a reason of its own"


@dataclass(frozen=True, slots=True)
class Box:
    """Ranks that wait for the same boxes. why: in which communicator's op, and what is missing there."""

    column: int
    row: int
    ranks: tuple[int, ...]
    waits_for: frozenset[int]
    why: str


def waits_svg(diagnosis: Diagnosis, title: str) -> str:
    """The picture; without a path it shows the culprits alone and says so."""
    boxes, n_left = _boxes(diagnosis)
    place = {rank: box for box in boxes for rank in box.ranks}
    height = HEAD_HEIGHT + LINE_HEIGHT * max([1, *(len(_lines(box)) for box in boxes)])
    shapes = [shape for box in boxes for shape in _drawn(box, place, height)]
    below = TOP + (height + GAP) * max([1, *(box.row + 1 for box in boxes)])
    left = f"; {n_left:,} ranks left out" if n_left else ""
    who = "culprits" if diagnosis.culprits else "the ranks of which one started it"
    said = (
        f"Who waits for whom: {who} on the left" + left if boxes else "Nobody is blamed, so there is no path to draw."
    )
    return as_svg(below + 10, title, said, shapes)


def _boxes(diagnosis: Diagnosis) -> tuple[list[Box], int]:
    """Boxes by column, and how many ranks have no room."""
    waits: dict[int, list[WaitEdge]] = defaultdict(list)
    for edge in diagnosis.path:
        waits[edge.waiter].append(edge)
    ends, why = diagnosis.culprits, ""
    if not ends:
        ends, why = tuple(sorted(diagnosis.suspects)), "may be where it started"
    boxes = [Box(0, row, (rank,), frozenset(), why) for row, rank in enumerate(ends[:BOXES_MAX])]
    drawn = {rank for box in boxes for rank in box.ranks}
    seen, last = set(ends), set(ends)
    n_left = len(ends) - len(boxes)
    for column in range(1, len(waits) + 1):
        near = sorted(rank for rank in set(waits) - seen if any(edge.waits_for in last for edge in waits[rank]))
        if not near:
            break
        made = _grouped(column, near, waits, drawn) if column < COLUMNS_MAX else []
        kept = made[:BOXES_MAX]
        n_left += len(near) - sum(len(box.ranks) for box in kept)
        boxes += kept
        drawn |= {rank for box in kept for rank in box.ranks}
        seen |= set(near)
        last = set(near)
    return boxes, n_left + len(set(waits) - seen)


def _grouped(column: int, near: Sequence[int], waits: dict[int, list[WaitEdge]], drawn: set[int]) -> list[Box]:
    """Who waits for the same ranks and for the same reason, the largest group first; for any reason where those are too many."""
    edges = {rank: [edge for edge in waits[rank] if edge.waits_for in drawn] for rank in near}
    alike: dict[tuple[frozenset[int], frozenset[str]], list[int]] = defaultdict(list)
    for rank, its in edges.items():
        if its:
            alike[frozenset(edge.waits_for for edge in its), frozenset(edge.why for edge in its)].append(rank)
    found = [(ranks, on, "; ".join(sorted(whys))) for (on, whys), ranks in alike.items()]
    if len(found) > BOXES_MAX:
        found = _for_any_reason(alike)
    found.sort(key=lambda one: (-len(one[0]), one[0]))
    return [Box(column, row, tuple(ranks), on, why) for row, (ranks, on, why) in enumerate(found)]


def _for_any_reason(
    alike: Mapping[tuple[frozenset[int], frozenset[str]], list[int]],
) -> list[tuple[list[int], frozenset[int], str]]:
    """By whom they wait for alone, with the reason that all of them give, whichever rank it names."""
    ranks: dict[frozenset[int], list[int]] = defaultdict(list)
    whys: dict[frozenset[int], set[str]] = defaultdict(set)
    for (on, reasons), group in alike.items():
        ranks[on] += group
        whys[on].add("; ".join(sorted({re.sub(r"\brank \d+", "that rank", why) for why in reasons})))
    return [(sorted(ranks[on]), on, said.pop() if len(said) == 1 else DIFFERENT) for on, said in whys.items()]


def _lines(box: Box) -> list[str]:
    why = box.why or "culprit: where it started"
    return textwrap.wrap(why, LINE_CHARS_MAX, max_lines=LINES_MAX, placeholder=" …")


def _drawn(box: Box, place: dict[int, Box], height: int) -> Iterator[str]:
    x, y = _corner(box, height)
    fill, ink = ("#d55e00", "#ffffff") if box.column == 0 else ("#eaf2fa", "#14191f")
    words = escape(ranks_words(box.ranks))
    told = f"<title>{escape(', '.join(map(str, box.ranks[:200])))}</title>"
    yield (f'<rect x="{x}" y="{y}" width="{BOX_WIDTH}" height="{height}" rx="5" fill="{fill}" stroke="#5b6670">{told}'
           f'</rect><text x="{x + 10}" y="{y + 18}" fill="{ink}" font-weight="600">{words}</text>')  # fmt: skip
    for n, line in enumerate(_lines(box)):
        yield f'<text x="{x + 10}" y="{y + 34 + LINE_HEIGHT * n}" fill="{ink}">{escape(line)}</text>'
    targets = sorted({_corner(place[rank], height) for rank in box.waits_for})
    for left, top in targets:
        end, start = left + BOX_WIDTH + 2, x - 2
        level, own = top + height / 2, y + height / 2
        yield f'<path d="M{start} {own:.1f}L{end + 9} {level:.1f}" stroke="#5b6670" fill="none"/>'
        yield f'<path d="M{end} {level:.1f}L{end + 10} {level - 4:.1f}L{end + 10} {level + 4:.1f}Z" fill="#5b6670"/>'


def _corner(box: Box, height: int) -> tuple[int, int]:
    return 10 + box.column * STEP, TOP + box.row * (height + GAP)


def ranks_words(ranks: Sequence[int]) -> str:
    """ "rank 3", "ranks 0–2, 4"; of many the first runs and how many more."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    runs = runs_of(ranks)
    words = [str(first) if first == last else f"{first}–{last}" for first, last in runs[:RUNS_SHOWN]]
    n_more = sum(last - first + 1 for first, last in runs[RUNS_SHOWN:])
    return "ranks " + ", ".join(words) + (f" + {n_more}" if n_more else "")
