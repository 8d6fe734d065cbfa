"""PagerDuty, Events API v2: an incident is one alert, found again by its deduplication key.

Told of opening, news, acknowledgement and end; a comment has no place there. What is resolved there never reopens: a later
trigger with the same key is a new PagerDuty incident, which is what a regressed incident should be.
"""

from __future__ import annotations

import re
from typing import Any, Final

from console.tickets.message import JSON_TYPE, Config, Kind, Message, Post, Refused, Sent, Setting, as_json, checked

URL: Final = "https://events.pagerduty.com/v2/enqueue"
SEVERITY: Final = {"high": "critical", "medium": "error", "low": "warning"}
ACTION: Final = {"acknowledge": "acknowledge", "resolve": "resolve"}
SUMMARY_CHARS_MAX: Final = 1024
DEDUP_CHARS_MAX: Final = 255


def body_of(message: Message, routing_key: str) -> dict[str, Any]:
    """The event, as PagerDuty documents it: acknowledge and resolve carry the key alone."""
    action = ACTION.get(message.verb, "trigger")
    named = {"routing_key": routing_key, "event_action": action, "dedup_key": message.dedup_key[:DEDUP_CHARS_MAX]}
    if action != "trigger":
        return named
    text = "Diogenes" if message.is_test else f"Incident {message.number}"
    links = [{"href": message.url, "text": text}] if message.url else []
    return {**named, "payload": _payload(message), "links": links, "client": "Diogenes", "client_url": message.url}


def _payload(message: Message) -> dict[str, Any]:
    return {
        "summary": message.title[:SUMMARY_CHARS_MAX],
        "source": message.job,
        "severity": SEVERITY.get(message.severity, "critical"),
        "timestamp": message.opened_at,
        "component": message.component,
        "group": message.job,
        "class": message.symptom,
        "custom_details": {
            "incident": message.number, "attempt": message.attempt, "culprits": list(message.culprits),
            "suspects": list(message.suspects), "n_suspects": message.n_suspects,
            "nodes": list(message.nodes), "grade": message.grade, "n_victims": message.n_victims,
            "places": list(message.places), "evidence": list(message.evidence), "advice": message.advice,
        },
    }  # fmt: skip


def send(message: Message, config: Config, post: Post) -> Sent:
    body = as_json(body_of(message, config.secrets["routing_key"]))
    url = config.settings.get("url") or URL
    answer = checked(post("POST", url, body, {"Content-Type": JSON_TYPE}))
    if message.is_test:  # a test must not wake anybody for longer than it takes to close it
        close = {**body_of(message, config.secrets["routing_key"]), "event_action": "resolve"}
        checked(post("POST", url, as_json({name: close[name] for name in _KEY}), {"Content-Type": JSON_TYPE}))
    return Sent(answer.status, external_id=message.dedup_key[:200])


_KEY: Final = ("routing_key", "event_action", "dedup_key")


def check(config: Config) -> None:
    if not re.fullmatch(r"[A-Za-z0-9]{32}", config.secrets.get("routing_key", "")):
        raise Refused("an integration key has 32 letters and digits")


KIND: Final = Kind(
    "pagerduty",
    "PagerDuty",
    (
        Setting("routing_key", "Integration key (Events API v2)", is_secret=True),
        Setting("url", "Address", is_needed=False, usual=URL, is_address=True),
        Setting(
            "hook_secret",
            "Secret of a webhook (v3) that tells Diogenes what people do there",
            is_secret=True,
            is_needed=False,
        ),
    ),
    send,
    check,
    calls_back=True,
    bare=frozenset({"acknowledge", "resolve"}),
    untold={"comment": "PagerDuty's events take no comments"},
)
