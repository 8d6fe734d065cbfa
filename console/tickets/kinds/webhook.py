"""Any HTTPS address, signed as Standard Webhooks describes: the receiver can tell that it is us, and repeated deliveries.

The identifier stays the same over all tries; the time is that of the try. Several secrets, separated by blanks, are all
signed with, so that a receiver can change over.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import time
from typing import Any, Final

from console.tickets.message import JSON_TYPE, Config, Kind, Message, Post, Refused, Sent, Setting, as_json, checked

PREFIX: Final = "whsec_"
SECRET_BYTES_MIN, SECRET_BYTES_MAX = 24, 64
GONE: Final = 410
TYPE: Final = {
    "open": "incident.opened", "update": "incident.updated", "acknowledge": "incident.acknowledged",
    "unacknowledge": "incident.unacknowledged", "resolve": "incident.resolved", "reopen": "incident.reopened",
    "comment": "incident.commented", "test": "destination.tested",
}  # fmt: skip
NOTE_CHARS_MAX: Final = 4000


def body_of(message: Message) -> dict[str, Any]:
    """The message: type, timestamp, data. Below 20 kB, as the standard asks."""
    incident = {
        "number": message.number, "key": message.dedup_key, "headline": message.headline, "state": message.state,
        "condition": message.condition, "severity": message.severity, "symptom": message.symptom,
        "component": message.component, "grade": message.grade, "job": message.job, "attempt": message.attempt,
        "culprits": list(message.culprits), "suspects": list(message.suspects), "n_suspects": message.n_suspects,
        "nodes": list(message.nodes), "n_victims": message.n_victims,
        "places": list(message.places), "evidence": list(message.evidence), "advice": message.advice,
        "opened_at": message.opened_at, "resolved_at": message.resolved_at or None, "url": message.url or None,
    }  # fmt: skip
    act = {"actor": message.actor, "note": message.note[:NOTE_CHARS_MAX]}
    return {"type": TYPE[message.verb], "timestamp": message.at, "data": {"incident": incident, "act": act}}


def signature_of(secrets: str, identifier: str, sent_s: int, body: bytes) -> str:
    """`v1,<base64>` for each secret. Raises Refused for a secret of another form."""
    signed = f"{identifier}.{sent_s}.".encode() + body
    made = [hmac.new(_key_of(secret), signed, hashlib.sha256).digest() for secret in secrets.split()]
    return " ".join("v1," + base64.b64encode(one).decode() for one in made)


def _key_of(secret: str) -> bytes:
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except binascii.Error as error:
        raise Refused("a secret is whsec_ and base64") from error
    if not secret.startswith(PREFIX) or not SECRET_BYTES_MIN <= len(key) <= SECRET_BYTES_MAX:
        raise Refused(f"a secret is whsec_ and {SECRET_BYTES_MIN} to {SECRET_BYTES_MAX} bytes in base64")
    return key


def send(message: Message, config: Config, post: Post) -> Sent:
    body, now_s = as_json(body_of(message)), int(time.time())
    signature = signature_of(config.secrets["secret"], message.delivery, now_s, body)
    headers = {"webhook-id": message.delivery, "webhook-timestamp": str(now_s), "webhook-signature": signature}
    answer = post("POST", config.settings["url"], body, {"Content-Type": JSON_TYPE, **headers})
    if answer.status == GONE:
        raise Refused("answered 410: it wants no more messages", GONE, is_gone=True)
    return Sent(checked(answer).status)


def check(config: Config) -> None:
    if not config.secrets.get("secret", "").split():
        raise Refused("a secret is needed")
    signature_of(config.secrets["secret"], "", 0, b"")


KIND: Final = Kind(
    "webhook",
    "Webhook (signed)",
    (
        Setting("url", "Address", is_address=True),
        Setting("secret", "Secret: whsec_ and base64; several separated by blanks", is_secret=True),
    ),
    send,
    check,
)
