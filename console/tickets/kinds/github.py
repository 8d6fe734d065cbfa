"""GitHub issues: an incident is one issue, found again by a hidden mark in its text."""

from __future__ import annotations

import re
from typing import Any, Final

from console.tickets.message import Config, Desk, Kind, Message, Post, Refused, Sent, Setting, id_of
from console.tickets.wording import lines_of, what_happened

URL: Final = "https://api.github.com"
VERSION: Final = "2022-11-28"
TITLE_CHARS_MAX: Final = 256
NEWEST: Final = 100


def mark_of(message: Message) -> str:
    return f"<!-- ti:{message.ticket} -->"


def quieted(text: str) -> str:
    """Without mentions and markup comments: a job's name must not notify people or hide text."""
    return text.replace("@", "@\u200b").replace("<!--", "&lt;!--")


def issue_of(message: Message, config: Config) -> dict[str, Any]:
    """The body that creates the issue."""
    labels = [one.strip() for one in config.settings.get("labels", "").split(",") if one.strip()]
    text = "\n\n".join([*(quieted(line) for line in lines_of(message)), mark_of(message)])
    return {"title": message.title[:TITLE_CHARS_MAX], "body": text, "labels": labels}


def send(message: Message, config: Config, post: Post) -> Sent:
    desk = _desk_of(config, post)
    if message.is_test:
        return Sent(desk.ask("GET", "").status, said="the repository is there; nothing was created")
    number, url, status = _issue(message, desk, config)
    remark = ""
    if status is None:
        remark = id_of(desk.ask("POST", f"/issues/{number}/comments", {"body": quieted(what_happened(message))}))
    if message.verb in ("resolve", "reopen"):
        desk.ask("PATCH", f"/issues/{number}", _state_of(message))
    return Sent(status, number, url, remark_id=remark)


def _state_of(message: Message) -> dict[str, str]:
    if message.verb == "resolve":
        return {"state": "closed", "state_reason": "completed"}
    return {"state": "open", "state_reason": "reopened"}


def _desk_of(config: Config, post: Post) -> Desk:
    """Requests about one repository."""
    base = (config.settings.get("url") or URL).rstrip("/")
    headers = {
        "Authorization": f"Bearer {config.secrets['token']}", "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": VERSION,
    }  # fmt: skip
    return Desk(f"{base}/repos/{config.settings['repository']}", headers, post)


def _issue(message: Message, desk: Desk, config: Config) -> tuple[str, str, int | None]:
    """Number, address, and the status if it has just been created. A lost answer is found among the newest issues."""
    if message.external_id:
        return message.external_id, "", None
    for one in desk.ask("GET", f"/issues?state=all&sort=created&direction=desc&per_page={NEWEST}").json():
        if mark_of(message) in (one.get("body") or ""):
            return str(one["number"]), str(one["html_url"]), None
    created = desk.ask("POST", "/issues", issue_of(message, config))
    body = created.json()
    return str(body["number"]), str(body["html_url"]), created.status


def check(config: Config) -> None:
    if not re.fullmatch(r"[\w.-]+/[\w.-]+", config.settings.get("repository", "")):
        raise Refused("a repository is owner/name")


KIND: Final = Kind(
    "github",
    "GitHub issues",
    (
        Setting("repository", "Repository, as owner/name"),
        Setting("token", "Token that may write issues", is_secret=True),
        Setting("labels", "Labels, separated by commas", is_needed=False),
        Setting("url", "Address of the API", is_needed=False, usual=URL, is_address=True),
    ),
    send,
    check,
    writes_once=True,
)
