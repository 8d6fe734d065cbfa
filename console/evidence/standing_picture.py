"""Who stood still when, as a picture: a row per rank, what it did, and in which condition of Table 4 it stood still.

    Started it
    rank 3 node1   not delivered, its own side    ▬▬ moves ▬▬┃███████████████
    Only wait
    rank 5 node2   GPU not ready, the other side  ▬▬ moves ▬▬▬▬┃▒▒▒▒▒▒▒▒▒▒▒▒▒

Colours, hatches and words are the page's (frontend/src/lanes/standing.ts, styles/standing.css); a test compares them. Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from console.evidence.svg import (
    COLOUR,
    HEADING,
    LABEL,
    MARKS_HEIGHT,
    ROLE,
    Axis,
    Moment,
    as_svg,
    hatched,
    heading,
    legend,
    marks,
    range_words,
    rect_svg,
    roles,
    text_svg,
    ticks,
)
from rca.findings import Diagnosis
from rca.hang.standing import BETWEEN, GONE, MOVES, NOT_VISIBLE, STOPPED, UNHEARD, Span, Standing
from rca.hang.table4 import LOCAL, REMOTE

ROW: Final = 20
OVERRULED: Final = {LOCAL: "overruled", REMOTE: "overruled-remote"}
OVERRULED_LOCAL: Final = OVERRULED[LOCAL]
AGAINST: Final = {"culprit": REMOTE, "victim": LOCAL}
CONDITION: Final = {
    "not_started": "class-6", "not_transmitted": "class-4", "not_delivered": "class-3", "gpu_not_ready": "class-2",
}  # fmt: skip
FORMULA: Final = {
    "not_started": "①=②=③=0", "not_transmitted": "①>②", "not_delivered": "②>③", "gpu_not_ready": "①=②=③>0",
}  # fmt: skip
DOING: Final = {
    "not_started": "not started", "not_transmitted": "not transmitted", "not_delivered": "not delivered",
    "gpu_not_ready": "GPU not ready", MOVES: "moves", BETWEEN: "in no op", NOT_VISIBLE: "in an op without flows",
    STOPPED: "process stopped", GONE: "process gone", UNHEARD: "nothing heard",
}  # fmt: skip
RECEIVING: Final = {
    "not_started": "nothing received", "not_transmitted": "received, not flushed",
    "not_delivered": "received, not consumed", "gpu_not_ready": "next chunk not received",
}  # fmt: skip
PALE: Final = 0.45
SIDE: Final = {LOCAL: "its own side", REMOTE: "the other side"}
_FILL: Final = {
    MOVES: COLOUR["rank-ok"], NOT_VISIBLE: hatched("rank-not-visible"), STOPPED: COLOUR["class-1"],
    GONE: hatched("rank-dead"), UNHEARD: hatched("rank-unknown"),
}  # fmt: skip


def standing_svg(
    standing: Standing, diagnosis: Diagnosis | None, title: str, nodes: Mapping[int, str], shared: Iterable[Moment] = ()
) -> str:
    """Culprits first. nodes: rank → its node's name. shared: moments drawn through all rows."""
    x, top = Axis(standing.from_ns, standing.to_ns), 44 + MARKS_HEIGHT
    spans = _by_rank(standing, diagnosis)
    rows = list(_rows(standing, diagnosis, top))
    below = max([top, *(y + (HEADING if isinstance(of, str) else ROW) for of, y in rows)])
    shapes = [*ticks(x, top, below)]
    for of, y in rows:
        shapes += [heading(of, y)] if isinstance(of, str) else _row(of, spans[of], nodes.get(of, ""), x, y, diagnosis)
    shapes += marks(x, shared, top, below)
    words = _legend([span for some in spans.values() for span in some])
    left = f"; {standing.omitted:,} ranks left out" if standing.omitted else ""
    said = f"Who stood still when: {range_words(standing.from_ns, standing.to_ns)}; the words are of its end{left}"
    return as_svg(below + 44 + 20 * len(words), title, said, [*shapes, *legend(words, below + 30)])


def _by_rank(standing: Standing, diagnosis: Diagnosis | None) -> dict[int, list[Span]]:
    """Each rank's spans; where one flow's counters speak against the verdict, which weighs all, their side is not shown."""
    role = roles(standing.ranks, diagnosis)
    spans: dict[int, list[Span]] = {rank: [] for rank in standing.ranks}
    for span in standing.spans:
        is_overruled = span.verdict == AGAINST.get(role[span.rank])
        spans[span.rank].append(dataclasses.replace(span, verdict=OVERRULED[span.verdict]) if is_overruled else span)
    return spans


def _rows(standing: Standing, diagnosis: Diagnosis | None, top: int) -> Iterator[tuple[int | str, int]]:
    """Each rank, or the role that heads the ranks below it, and how far down it stands."""
    role = roles(standing.ranks, diagnosis)
    is_headed = len(set(role.values())) > 1
    for name in ROLE:
        mine = [rank for rank in standing.ranks if role[rank] == name]
        if mine and is_headed:
            yield name, top
            top += HEADING
        for rank in mine:
            yield rank, top
            top += ROW


def _row(rank: int, spans: list[Span], node: str, x: Axis, top: int, diagnosis: Diagnosis | None) -> Iterator[str]:
    is_blamed = roles((rank,), diagnosis)[rank] == "culprit"
    if is_blamed:
        yield rect_svg(0, top, 4, ROW, COLOUR["rank-culprit"])
    yield text_svg(10, top + 14, f"rank {rank} {node}", weight=600 if is_blamed else 0)
    said = _said(spans[-1]) if spans else DOING[UNHEARD]
    ink = COLOUR["open"] if is_blamed else COLOUR["ink"]
    yield text_svg(LABEL - 10, top + 14, said, "end", ink, 600 if is_blamed else 0)
    for span in spans:
        yield from _bar(span, x, top + 3)


def _said(span: Span) -> str:
    side = SIDE.get(span.verdict, "")
    return _word(span) + (f", {side}" if side else "")


def _word(span: Span) -> str:
    """From the flow's own side, as the page words it."""
    doing = DOING.get(span.doing, span.doing)
    return RECEIVING.get(span.doing, doing) if span.direction.startswith("r") else doing


def _bar(span: Span, x: Axis, top: int) -> Iterator[str]:
    """Barred above and below: its own side. Hatched: the other side. Pale: it only waits. In no op: a line."""
    left, width, height = x(span.from_ns), max(x(span.to_ns) - x(span.from_ns), 0.5), ROW - 6
    told = f"rank {span.rank}: {_said(span)}"
    if span.doing == BETWEEN:
        yield rect_svg(left, top + height / 2, width, 1, COLOUR["line-strong"], told)
        return
    name = CONDITION.get(span.doing)
    fill = _FILL.get(span.doing, COLOUR["rank-unknown"])
    if name:
        fill = hatched(name) if span.verdict == REMOTE else COLOUR[name]
    is_overruled_local = span.verdict == OVERRULED_LOCAL
    yield rect_svg(left, top, width, height, fill, told, PALE if is_overruled_local else 1.0)
    if name and span.verdict == LOCAL:
        yield rect_svg(left, top, width, 3, COLOUR[f"{name}-mark"])
        yield rect_svg(left, top + height - 3, width, 3, COLOUR[f"{name}-mark"])


def _legend(spans: list[Span]) -> list[tuple[str, str]]:
    """Only what the picture shows. Sides are shown in the colour of a condition that has one."""
    seen = {span.doing for span in spans}
    words = [(_swatch(one), _legend_word(one, spans)) for one in DOING if one in seen]
    sides = {side: CONDITION[span.doing] for span in reversed(spans) for side in (span.verdict,) if side in SIDE}
    if LOCAL in sides:
        words.append((COLOUR[f"{sides[LOCAL]}-mark"], "a dark edge above and below: the counters say its own side"))
    if REMOTE in sides:
        words.append((hatched(sides[REMOTE]), "hatched: the other side"))
    if any(span.verdict == OVERRULED_LOCAL for span in spans):
        words.append((COLOUR["card"], "pale: it only waits, though its counters alone say its own side"))
    return words


def _swatch(doing: str) -> str:
    return COLOUR[CONDITION[doing]] if doing in CONDITION else _FILL.get(doing, COLOUR["card"])


def _legend_word(doing: str, spans: list[Span]) -> str:
    """One colour, a word for either direction that is shown."""
    if doing == BETWEEN:
        return f"{DOING[doing]} (a line)"
    mine = sorted((span for span in spans if span.doing == doing), key=lambda span: span.direction.startswith("r"))
    said = " / ".join(dict.fromkeys(_word(span) for span in mine))
    return f"{said}  {FORMULA[doing]}" if doing in FORMULA else said
