"""What an incident's pictures are made of: paper, letters, legends, hatches and a time axis, as SVG that needs nothing else.

The page draws its pictures in the reader's browser; these are drawn on the server, on white, from the same values and in the
page's colours (its light theme, frontend/src/styles/tokens.css; a test compares them), so that who has the ticket and who has
the page speak of the same. Every name in a picture comes from outside and is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from console.incidents.rows import iso_from_ns
from rca.findings import Diagnosis

SECOND: Final = 1_000_000_000
WIDTH: Final = 1200
LABEL: Final = 310
"""The labels of rows stand left of it."""
TICKS: Final = 8
TITLE_CHARS: Final = 110
HEADING: Final = 26
COLOUR: Final = {
    "card": "#ffffff", "ink": "#14191f", "ink-3": "#5d6873", "line": "#dce0e4", "line-2": "#e9ecef", "line-strong": "#87919b",
    "open": "#b23c00",
    "rank-ok": "#b5d8cb", "rank-waiting": "#b9d3ea",
    "rank-culprit": "#d55e00", "rank-culprit-mark": "#8f3f00", "rank-culprit-ring": "#d55e00",
    "rank-suspect": "#f7d3b5", "rank-suspect-mark": "#d5813f",
    "rank-silent": "#efc84f", "rank-silent-mark": "#b98d12", "rank-dead": "#d98bb3", "rank-dead-mark": "#9c4674",
    "rank-unknown": "#e3e7ea", "rank-unknown-mark": "#a9b2bb",
    "rank-not-visible": "#eef0f2", "rank-not-visible-mark": "#9aa4ae",
    "class-1": "#d55e00", "class-2": "#3a7db5", "class-2-mark": "#1c4f7c", "class-3": "#d98bb3", "class-3-mark": "#9c4674",
    "class-4": "#efc84f", "class-4-mark": "#a67c0a", "class-6": "#8467b8", "class-6-mark": "#4d3481",
    "lane-ready": "#d3e4f3", "lane-transmitted": "#94bfe3", "lane-done": "#3a7db5", "lane-stall": "#fdeadd",
    "lane-stall-mark": "#f0bd98", "lane-wait": "#eef4fa", "lane-wait-mark": "#c3d9ee", "lane-first": "#b23c00",
    "lane-trigger": "#5d6873",
}  # fmt: skip
HATCHES: Final = {
    "rising": "M-1 7L7 -1M-1 1L1 -1M5 7L7 5", "falling": "M-1 -1L7 7M5 -1L7 1M-1 5L1 7",
    "cross": "M-1 7L7 -1M-1 1L1 -1M5 7L7 5M-1 -1L7 7M5 -1L7 1M-1 5L1 7",
}  # fmt: skip
HATCHED: Final = {
    "rank-culprit": "rising", "rank-suspect": "rising", "rank-unknown": "falling", "rank-silent": "falling", "rank-dead": "cross",
    "rank-not-visible": "dots", "lane-stall": "rising", "lane-wait": "falling",
    "class-2": "falling", "class-3": "falling", "class-4": "falling", "class-6": "falling",
}  # fmt: skip
"""Colours that are hatched, each in its own mark: state is never colour alone."""


def hatched(name: str) -> str:
    """The fill of a colour with its hatch."""
    return f"url(#{name})"


def over(name: str) -> str:
    """The hatch alone, to lie over what was drawn before."""
    return f"url(#{name}-over)"


def _patterns() -> str:
    made = (
        f'<pattern id="{name}{suffix}" width="6" height="6" patternUnits="userSpaceOnUse">{ground}{_hatch(name, kind)}</pattern>'
        for name, kind in HATCHED.items()
        for suffix, ground in (("", f'<rect width="6" height="6" fill="{COLOUR[name]}"/>'), ("-over", ""))
    )
    return f"<defs>{''.join(made)}</defs>"


def _hatch(name: str, kind: str) -> str:
    mark = COLOUR[f"{name}-mark"]
    if kind == "dots":
        return f'<circle cx="3" cy="3" r="1" fill="{mark}"/>'
    return f'<path d="{HATCHES[kind]}" stroke="{mark}" stroke-width="1.25" fill="none"/>'


class Axis:
    """Unix ns to pixels, right of the labels."""

    def __init__(self, from_ns: int, to_ns: int) -> None:
        self.from_ns, self.to_ns = from_ns, to_ns
        self.scale = (WIDTH - LABEL - 10) / max(to_ns - from_ns, 1)

    def __call__(self, at_ns: int) -> float:
        return LABEL + (min(max(at_ns, self.from_ns), self.to_ns) - self.from_ns) * self.scale

    def holds(self, at_ns: int) -> bool:
        return self.from_ns <= at_ns <= self.to_ns


def ticks(x: Axis, top: float, bottom: float) -> Iterable[str]:
    """Times of day below the rows, at whole seconds, and a thin line at each."""
    step_ns = max((x.to_ns - x.from_ns) // TICKS // SECOND, 1) * SECOND
    for at_ns in range(-(-x.from_ns // step_ns) * step_ns, x.to_ns, step_ns):
        yield f'<path d="M{x(at_ns):.1f} {top:.0f}V{bottom:.0f}" stroke="{COLOUR["line"]}" stroke-width="0.5"/>'
        if LABEL + 20 < x(at_ns) < WIDTH - 30:
            yield text_svg(x(at_ns), bottom + 14, at_words(at_ns)[11:19], "middle")


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment all rows share."""

    word: str
    at_ns: int
    colour: str
    dash: str
    width: float


def moments(diagnosis: Diagnosis | None, first_symptom_ns: int, triggered_ns: int) -> list[Moment]:
    """When it began by the evidence, was first seen and noticed; 0 is unknown and left out.

    What is sampled may be seen at the culprit only after others were seen to wait: then it did not begin there.
    """
    began_ns = diagnosis.findings[0].began_ns if diagnosis and diagnosis.findings else 0
    began = "seen at culprit" if first_symptom_ns and began_ns > first_symptom_ns else "fault began"
    made = [
        Moment(began, began_ns, "rank-culprit-ring", "", 2.5),
        Moment("first symptom", first_symptom_ns, "lane-first", "7 3", 1.5),
        Moment("triggered", triggered_ns, "lane-trigger", "3 3", 1.5),
    ]
    return [one for one in made if one.at_ns]


def marks(x: Axis, shown: Iterable[Moment], top: float, bottom: float) -> Iterable[str]:
    """Lines through the rows; words above: of what came first to the left, of the trigger to the right, none on another."""
    for row, one in enumerate(moment for moment in shown if x.holds(moment.at_ns)):
        at, level = x(one.at_ns), top - 6 - 13 * (row % 3)
        dash = f' stroke-dasharray="{one.dash}"' if one.dash else ""
        yield (f'<path d="M{at:.1f} {level - 4:.1f}V{bottom:.0f}" stroke="{COLOUR[one.colour]}"'
               f' stroke-width="{one.width}"{dash}/>')  # fmt: skip
        is_left = at > WIDTH - 100 or (one.word != "triggered" and at > LABEL + 90)
        yield text_svg(at + (-4 if is_left else 4), level, one.word, "end" if is_left else "start", COLOUR[one.colour])


MARKS_HEIGHT: Final = 44


def heading(role: str, top: float) -> str:
    """Above the rows of one role; culprits' in the colour of what is open."""
    colour = COLOUR["open" if role in ("culprit", "suspect") else "ink-3"]
    return f'<text x="10" y="{top + HEADING - 8:.0f}" font-weight="600" fill="{colour}">{ROLE[role]}</text>'


ROLE: Final = {"culprit": "Started it", "suspect": "One of them started it", "victim": "Only wait", "other": "Others"}


def roles(ranks: Iterable[int], diagnosis: Diagnosis | None) -> dict[int, str]:
    """rank → a name of ROLE."""
    if diagnosis is None:
        return dict.fromkeys(ranks, "other")
    role = dict.fromkeys(diagnosis.victims, "victim") | dict.fromkeys(diagnosis.suspects, "suspect")
    role |= dict.fromkeys(diagnosis.culprits, "culprit")
    return {rank: role.get(rank, "other") for rank in ranks}


def at_words(ns: int) -> str:
    return iso_from_ns(ns) or "unknown"


def range_words(from_ns: int, to_ns: int) -> str:
    """ "2026-11-23 14:19:51 to 14:20:51 UTC", with the second day where there are two."""
    first, last = at_words(from_ns)[:19].replace("T", " "), at_words(to_ns)[:19].replace("T", " ")
    return f"{first} to {last[11:] if last[:10] == first[:10] else last} UTC"


def rect_svg(x: float, y: float, width: float, height: float, fill: str, title: str = "", opacity: float = 1.0) -> str:
    inner = f"<title>{escape(title)}</title>" if title else ""
    edge = f' stroke="{COLOUR["rank-unknown-mark"]}" stroke-width="0.5"' if fill == COLOUR["card"] else ""
    pale = f' opacity="{opacity}"' if opacity < 1 else ""
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{fill}"{edge}{pale}>{inner}</rect>'


def text_svg(x: float, y: float, text: str, anchor: str = "start", fill: str = "", weight: int = 0) -> str:
    held = "" if anchor == "start" else f' text-anchor="{anchor}"'
    paint = (f' fill="{fill}"' if fill else "") + (f' font-weight="{weight}"' if weight else "")
    return f'<text x="{x:.1f}" y="{y:.1f}"{held}{paint}>{escape(text)}</text>'


def legend(pairs: Sequence[tuple[str, str]], top: float) -> list[str]:
    """(fill, words) below each other, 20 pixels each."""
    return [shape for at, (fill, word) in enumerate(pairs)
            for shape in (rect_svg(10, top + 20 * at, 14, 14, fill), text_svg(32, top + 11 + 20 * at, word))]  # fmt: skip


def as_svg(height: float, title: str, said: str, shapes: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}" viewBox="0 0 {WIDTH} {height:.0f}"'
        f' font-family="system-ui, sans-serif" font-size="11" fill="{COLOUR["ink"]}">'
    )
    size = 15 if len(title) <= TITLE_CHARS else 12
    words = f'<text x="10" y="20" font-size="{size}" font-weight="600">{escape(title)}</text>{text_svg(10, 36, said)}'
    paper = f'<rect width="{WIDTH}" height="{height:.0f}" fill="{COLOUR["card"]}"/>'
    return "".join((head, _patterns(), paper, words, *shapes, "</svg>\n"))
