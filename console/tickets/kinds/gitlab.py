"""GitLab issues: an incident is one issue, found again by a hidden mark in its text."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote

from console.tickets.kinds.github import mark_of, quieted
from console.tickets.message import (
    PICTURES_SETTING,
    Config,
    Desk,
    Kind,
    Message,
    Post,
    Sent,
    Setting,
    check_pictures,
    id_of,
    multipart,
    upload_pictures,
)
from console.tickets.wording import lines_of, what_happened

URL: Final = "https://gitlab.com"
TITLE_CHARS_MAX: Final = 255
NEWEST: Final = 100


def without_commands(text: str) -> str:
    """GitLab runs lines that begin with a slash as commands."""
    return "\n".join("\u200b" + line if line.lstrip().startswith("/") else line for line in quieted(text).split("\n"))


def issue_of(message: Message, config: Config) -> dict[str, Any]:
    """The body that creates the issue."""
    text = "\n\n".join([*(without_commands(line) for line in lines_of(message)), mark_of(message)])
    labels = config.settings.get("labels", "")
    return {"title": message.title[:TITLE_CHARS_MAX], "description": text, "labels": labels, "confidential": True}


def send(message: Message, config: Config, post: Post) -> Sent:
    desk = _desk_of(config, post)
    if message.is_test:
        return Sent(desk.ask("GET", "").status, said="the project is there; nothing was created")
    number, url, status = _issue(message, desk, config)
    if message.verb == "pictures":
        return Sent(status, number, url, remark_id=_note_pictures(message, number, desk))
    remark = ""
    if status is None:
        remark = id_of(desk.ask("POST", f"/issues/{number}/notes", {"body": without_commands(what_happened(message))}))
    if message.verb in ("resolve", "reopen"):
        desk.ask("PUT", f"/issues/{number}", {"state_event": "close" if message.verb == "resolve" else "reopen"})
    return Sent(status, number, url, remark_id=remark)


def _note_pictures(message: Message, number: str, desk: Desk) -> str:
    """Files are uploaded to the project; a note shows them."""

    def upload(name: str, picture: bytes) -> str:
        body, kind = multipart("file", [(name, picture)])
        return str(desk.upload("/uploads", body, {"Content-Type": kind}).json()["markdown"])

    shown = [what_happened(message), *upload_pictures(message, upload)]
    return id_of(desk.ask("POST", f"/issues/{number}/notes", {"body": "\n\n".join(shown)}))


def _desk_of(config: Config, post: Post) -> Desk:
    """Requests about one project."""
    base = (config.settings.get("url") or URL).rstrip("/")
    project = quote(config.settings["project"], safe="")
    return Desk(f"{base}/api/v4/projects/{project}", {"PRIVATE-TOKEN": config.secrets["token"]}, post)


def _issue(message: Message, desk: Desk, config: Config) -> tuple[str, str, int | None]:
    """Number in the project, address, and the status if it has just been created."""
    if message.external_id:
        return message.external_id, "", None
    for one in desk.ask("GET", f"/issues?scope=all&order_by=created_at&sort=desc&per_page={NEWEST}").json():
        if mark_of(message) in (one.get("description") or ""):
            return str(one["iid"]), str(one["web_url"]), None
    created = desk.ask("POST", "/issues", issue_of(message, config))
    body = created.json()
    return str(body["iid"]), str(body["web_url"]), created.status


KIND: Final = Kind(
    "gitlab",
    "GitLab issues",
    (
        Setting("project", "Project: its number or group/name"),
        Setting("token", "Token with the scope api", is_secret=True),
        Setting("labels", "Labels, separated by commas", is_needed=False),
        Setting("url", "Address of GitLab", is_needed=False, usual=URL, is_address=True),
        PICTURES_SETTING,
    ),
    send,
    check_pictures,
    takes_pictures=True,
    writes_once=True,
)
