"""An incident and what happens to it in plain text, as tickets, mails and chats show it: in the words of its page."""

from __future__ import annotations

from console.incidents.words import COMPONENT, CONDITION, SYMPTOM, word_of
from console.tickets.message import Message


def lines_of(message: Message) -> list[str]:
    """The incident in a few lines: what, who, where, why, what to do next, and whether it goes on."""
    if message.is_test:
        return ["This is a test of a destination. Nothing has happened.", *message.own_lines]
    if message.own_lines:
        return [line for line in message.own_lines if line]
    what = f"{symptom_of(message)}, {message.severity} severity."
    lines = [
        f"Incident {message.number} of job {message.job}, attempt {message.attempt}: {what}",
        _started_by(message),
        *message.places,
    ]
    if message.component:
        lines.append(f"Component: {component_of(message)}.")
    if message.evidence:
        lines.append(f"Evidence: {'; '.join(message.evidence)}.")
    if message.advice:
        lines.append(f"What to do next: {message.advice}")
    if message.n_victims:
        lines.append(f"{message.n_victims} {'rank only waits' if message.n_victims == 1 else 'ranks only wait'}.")
    lines.append(f"It is {message.state}, {condition_of(message)}; since {message.opened_at}.")
    return [*lines, *([message.url] if message.url else [])]


def symptom_of(message: Message) -> str:
    return word_of(SYMPTOM, message.symptom)


def condition_of(message: Message) -> str:
    return word_of(CONDITION, message.condition)


def component_of(message: Message) -> str:
    return word_of(COMPONENT, message.component)


def _started_by(message: Message) -> str:
    who, n = (message.culprits, message.n_culprits) if message.culprits else (message.suspects, message.n_suspects)
    if not who:
        return "Nobody is blamed yet."
    ranks = "rank" if len(who) == 1 else "ranks" if message.culprits else "one of ranks"
    where = f" on {', '.join(message.nodes)}" if message.nodes else ""
    more = f" and {n - len(who)} more" if n > len(who) else ""
    return f"Started by {ranks} {', '.join(map(str, who))}{more}{where} ({message.grade or 'no'} evidence)."


def what_happened(message: Message) -> str:
    """The act in a sentence, for comments and notes."""
    who, why = message.actor or "Diogenes", f": {message.note}" if message.note else "."
    verbs = {
        "open": "opened it", "update": "found out more", "acknowledge": "acknowledged it",
        "unacknowledge": "took the acknowledgement back", "resolve": "resolved it", "reopen": "reopened it",
        "comment": "commented", "pictures": "drew the ranks, who waits for whom, and the flows", "test": "sends a test",
    }  # fmt: skip
    said = f"{who} {verbs[message.verb]}{why}"
    return said if message.verb != "update" else f"{said} Now: {message.headline}"
