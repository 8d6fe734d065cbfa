"""Slack, by an incoming webhook: one message for each thing that happened. The address is itself the secret.

Incoming webhooks answer no message number, so an earlier message cannot be changed: each message stands for itself.
"""

from __future__ import annotations

from typing import Any, Final

from console.tickets.message import JSON_TYPE, Config, Kind, Message, Post, Sent, Setting, as_json, checked
from console.tickets.wording import lines_of, what_happened

SECTION_CHARS_MAX: Final = 3000
SIGN: Final = {"high": ":red_circle:", "medium": ":large_orange_circle:", "low": ":large_yellow_circle:"}


def escaped(text: str) -> str:
    """The three letters that Slack reads as markup of its own: no <!channel> out of a job's name."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def body_of(message: Message) -> dict[str, Any]:
    """text for notifications, blocks for the channel."""
    sign = ":white_check_mark:" if message.is_over else SIGN.get(message.severity, ":red_circle:")
    title = escaped("A test of this destination" if message.is_test else message.title)
    shown = f"<{message.url}|{title}>" if message.url and not message.is_test else title
    text = f"{sign} *{shown}*\n{escaped(what_happened(message))}"
    details = "\n".join(escaped(line) for line in lines_of(message) if line != message.url)
    return {"text": f"{title} – {escaped(what_happened(message))}"[:SECTION_CHARS_MAX], "blocks": [
        {"type": "section", "text": {"type": "mrkdwn", "text": text[:SECTION_CHARS_MAX]}},
        {"type": "context", "elements": [{"type": "mrkdwn", "text": details[:SECTION_CHARS_MAX]}]},
    ]}  # fmt: skip


def send(message: Message, config: Config, post: Post) -> Sent:
    body = as_json(body_of(message))
    return Sent(checked(post("POST", config.secrets["url"], body, {"Content-Type": JSON_TYPE})).status)


KIND: Final = Kind(
    "slack",
    "Slack",
    (Setting("url", "Address of the incoming webhook", is_secret=True, is_address=True),),
    send,
)
