"""Titles and bodies of tickets as a team wants them: plain text with names in braces, and nothing that could do anything.

    [{severity}] {job}: {headline}          →   [high] llama-70b: Rank 3 has not entered op 812.

A name stands for a value of the message; there are no attributes, conditions, loops or calls, so a template can reach nothing.
A line whose names are all empty is left out, so that "Nodes: {nodes}" is not said where no node is known. Braces that should
stand are doubled.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from typing import Final

from console.tickets.message import LINE_KINDS, Message, Refused
from console.tickets.wording import component_of, condition_of, symptom_of

TITLE_CHARS_MAX: Final = 300
BODY_CHARS_MAX: Final = 4000
RENDERED_CHARS_MAX: Final = 8000
TITLE_USUAL: Final = "[{job}] {headline}"
BODY_USUAL: Final = """Incident {number} of job {job}, attempt {attempt}: {symptom}, {severity} severity.
Started by rank {ranks} on {nodes} ({grade} evidence).
{places}
Component: {component}.
Evidence: {evidence}.
What to do next: {advice}
{n_waiting} ranks only wait.
It is {state}, {condition}; since {opened_at}.
{url}"""

VALUES: Final[dict[str, tuple[str, Callable[[Message], str]]]] = {
    "number": ("the incident's number", lambda message: str(message.number)),
    "headline": ("the verdict in a sentence", lambda message: message.headline),
    "job": ("the job", lambda message: message.job),
    "attempt": ("which start of the job", lambda message: str(message.attempt)),
    "symptom": ("what the trigger saw", symptom_of),
    "severity": ("low, medium or high", lambda message: message.severity),
    "component": ("where the fault sits", lambda message: component_of(message) if message.component else ""),
    "grade": ("how far the evidence carries", lambda message: message.grade),
    "ranks": (
        "who started it; of a tie, who may have",
        lambda message: ", ".join(map(str, message.culprits)) or " or ".join(map(str, message.suspects)),
    ),
    "nodes": ("where they run", lambda message: ", ".join(message.nodes)),
    "places": ("node, GPU, NIC and process of the first of them", lambda message: "; ".join(message.places)),
    "evidence": ("the first facts against them", lambda message: "; ".join(message.evidence)),
    "advice": ("what to do next", lambda message: message.advice),
    "n_waiting": ("how many ranks only wait", lambda message: str(message.n_victims) if message.n_victims else ""),
    "state": ("what people did", lambda message: message.state),
    "condition": ("what the machine sees", condition_of),
    "opened_at": ("when it opened", lambda message: message.opened_at),
    "at": ("when this happened", lambda message: message.at),
    "actor": ("who did this", lambda message: message.actor),
    "note": ("what they said", lambda message: message.note),
    "resolution": ("why it was resolved", lambda message: message.resolution),
    "url": ("the incident's page", lambda message: message.url),
}
"""Name → what it stands for, and its value."""
_PIECE: Final = re.compile(r"\{\{|\}\}|\{([^{}\n]*)\}|[{}]")


def check_template(what: str, text: str, chars_max: int) -> None:
    """Raises Refused for a name that does not exist, a brace that stands alone, or too much text."""
    if len(text) > chars_max or "\0" in text:
        raise Refused(f"{what}: at most {chars_max} characters")
    for found in _PIECE.finditer(text):
        if found[0] in ("{", "}"):
            raise Refused(f"{what}: a brace stands alone; doubled it is text")
        if found[1] is not None and found[1] not in VALUES:
            raise Refused(f"{what}: there is no {{{found[1][:40]}}}; there are {', '.join(VALUES)}")


def with_templates(message: Message, title: str, body: str) -> Message:
    """The message with its own title and lines, where a template is given; empty ones leave it as it is."""
    said = _lines(title, message)
    return dataclasses.replace(
        message,
        own_title=" ".join(said)[:TITLE_CHARS_MAX] if title.strip() else "",
        own_lines=tuple(_bounded(_lines(body, message))) if body.strip() else (),
    )


def parts_of(kind: str) -> list[str]:
    """Which of title and body a kind of destination shows."""
    return list(LINE_KINDS.get(kind, ("title", "body")))


def _lines(template: str, message: Message) -> list[str]:
    lines = (_line(line, message) for line in template.splitlines())
    return [line for line in lines if line is not None]


def _line(template: str, message: Message) -> str | None:
    """None where it names values and all of them are empty. A value is one line, whatever it holds."""
    names = [found[1] for found in _PIECE.finditer(template) if found[1] is not None]
    values = {name: " ".join(VALUES[name][1](message).split()) for name in names if name in VALUES}
    if names and not any(values.values()):
        return None
    return _PIECE.sub(lambda found: found[0][0] if found[1] is None else values.get(found[1], ""), template).rstrip()


def _bounded(lines: list[str]) -> list[str]:
    left, kept = RENDERED_CHARS_MAX, []
    for line in lines:
        if left <= 0:
            kept.append("… cut off")
            break
        kept.append(line[:left])
        left -= len(line) + 1
    return kept
