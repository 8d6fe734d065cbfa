"""The webhook of Prometheus' Alertmanager, version 4: what many tools take as it is.

groupKey and fingerprint are the incident's and never change with its diagnosis, so a receiver updates the same alert.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

from console.tickets.message import JSON_TYPE, Config, Kind, Message, Post, Sent, Setting, Verb, as_json, checked
from console.tickets.wording import lines_of

NEVER: Final = "0001-01-01T00:00:00Z"  # Go's zero time: has not ended
SEVERITY: Final = {"high": "critical", "medium": "error", "low": "warning"}
BARE: Final = frozenset[Verb]({"comment", "acknowledge", "unacknowledge"})


def body_of(message: Message, receiver: str) -> dict[str, Any]:
    """Version 4 with one alert."""
    status = "resolved" if message.is_over or message.is_test else "firing"
    grouped = {"alertname": "DiogenesTest" if message.is_test else "DiogenesIncident", "job": message.job}
    labels = {
        **grouped, "attempt": str(message.attempt), "symptom": message.symptom, "incident": str(message.number),
        "severity": SEVERITY.get(message.severity, "critical"),
    }  # fmt: skip
    annotations = {"summary": message.title, "description": "\n".join(lines_of(message))}
    alert = {
        "status": status, "labels": labels, "annotations": annotations, "startsAt": message.opened_at,
        "endsAt": (message.resolved_at or message.at) if status == "resolved" else NEVER, "generatorURL": message.url,
        "fingerprint": hashlib.sha256(message.dedup_key.encode()).hexdigest()[:16],
    }  # fmt: skip
    return {
        "version": "4", "groupKey": message.dedup_key, "truncatedAlerts": 0, "status": status, "receiver": receiver,
        "groupLabels": grouped, "commonLabels": labels, "commonAnnotations": annotations,
        "externalURL": message.url.partition("/incidents/")[0], "alerts": [alert],
    }  # fmt: skip


def send(message: Message, config: Config, post: Post) -> Sent:
    if message.verb in BARE:
        return Sent(said="an Alertmanager alert only fires and is resolved")
    token = config.secrets.get("token")
    headers = {"Content-Type": JSON_TYPE, **({"Authorization": f"Bearer {token}"} if token else {})}
    body = as_json(body_of(message, config.settings.get("receiver") or "diogenes"))
    return Sent(checked(post("POST", config.settings["url"], body, headers)).status)


KIND: Final = Kind(
    "alertmanager",
    "Alertmanager webhook",
    (
        Setting("url", "Address", is_address=True),
        Setting("receiver", "Name of the receiver", is_needed=False, usual="diogenes"),
        Setting("token", "Bearer token", is_secret=True, is_needed=False),
    ),
    send,
    bare=BARE,
)
