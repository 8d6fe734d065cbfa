"""Jira Cloud: an incident is one issue, found again by a label that only this ticket has.

Creating an issue has no idempotency key of its own: after a timeout nobody knows whether it exists. So the label goes
with the issue, and whoever tries again searches for it first; the search lags behind by seconds, so the first retry waits.
"""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import quote, urlencode

from console.tickets.message import (
    JSON_TYPE,
    PICTURES_SETTING,
    Config,
    Desk,
    Kind,
    Message,
    Post,
    Refused,
    Sent,
    Setting,
    basic,
    check_pictures,
    id_of,
    multipart,
)
from console.tickets.wording import lines_of, what_happened

SUMMARY_CHARS_MAX: Final = 255
DONE: Final = "done"


def document_of(lines: list[str]) -> dict[str, Any]:
    """Plain lines in Atlassian's document format."""
    content = [{"type": "paragraph", "content": [{"type": "text", "text": line}]} for line in lines if line]
    return {"type": "doc", "version": 1, "content": content}


def label_of(message: Message) -> str:
    return f"ti-{message.ticket}"


def issue_of(message: Message, config: Config) -> dict[str, Any]:
    """The body that creates the issue."""
    fields = {
        "project": {"key": config.settings["project"]},
        "issuetype": {"name": config.settings.get("issue_type") or "Task"},
        "summary": " ".join(message.title.split())[:SUMMARY_CHARS_MAX],
        "labels": ["diogenes", label_of(message)],
        "description": document_of(lines_of(message)),
    }
    return {"fields": fields}


def send(message: Message, config: Config, post: Post) -> Sent:
    desk = _desk_of(config, post)
    if message.is_test:
        found = desk.ask("GET", f"/rest/api/3/project/{quote(config.settings['project'], safe='')}")
        return Sent(found.status, said="the project is there; nothing was created")
    key, created = _issue(message, desk, config)
    if message.verb == "pictures":
        body, kind = multipart("file", message.pictures)
        path = f"/rest/api/3/issue/{key}/attachments"
        attached = desk.upload(path, body, {"Content-Type": kind, "X-Atlassian-Token": "no-check"})
        return Sent(attached.status, key, f"{desk.base}/browse/{key}")
    remark = ""
    if created is None:
        said = {"body": document_of([what_happened(message)])}
        remark = id_of(desk.ask("POST", f"/rest/api/3/issue/{key}/comment", said))
    elif message.url:
        desk.ask("POST", f"/rest/api/3/issue/{key}/remotelink", _link_of(message))
    if message.verb == "resolve":
        _close(key, desk, config)
    return Sent(created, key, f"{desk.base}/browse/{key}", remark_id=remark)


def _desk_of(config: Config, post: Post) -> Desk:
    """Requests to one site."""
    signed = basic(config.settings["email"], config.secrets["token"])
    return Desk(config.settings["url"].rstrip("/"), {"Authorization": signed, "Accept": JSON_TYPE}, post)


def _issue(message: Message, desk: Desk, config: Config) -> tuple[str, int | None]:
    """The issue's key, and the status if it has just been created."""
    if message.external_id:
        return message.external_id, None
    asked = urlencode({"jql": f'labels = "{label_of(message)}"', "fields": "summary", "maxResults": 1})
    found = desk.ask("GET", f"/rest/api/3/search/jql?{asked}").json().get("issues") or []
    if found:
        return str(found[0]["key"]), None
    created = desk.ask("POST", "/rest/api/3/issue", issue_of(message, config))
    return str(created.json()["key"]), created.status


def _link_of(message: Message) -> dict[str, Any]:
    return {
        "globalId": label_of(message),
        "object": {"url": message.url, "title": f"Diogenes incident {message.number}"},
    }


def _close(key: str, desk: Desk, config: Config) -> None:
    """Use the transition that is named in the settings, or the first that leads to a state of the category done."""
    path = f"/rest/api/3/issue/{key}/transitions"
    wanted = config.settings.get("done", "").lower()
    for one in desk.ask("GET", path).json().get("transitions", []):
        category = one.get("to", {}).get("statusCategory", {}).get("key")
        if (one.get("name", "").lower() == wanted) if wanted else category == DONE:
            desk.ask("POST", path, {"transition": {"id": one["id"]}})
            return


def check(config: Config) -> None:
    check_pictures(config)
    if not config.settings.get("project", "").replace("_", "").isalnum():
        raise Refused("a project's key has letters, digits and underscores")


KIND: Final = Kind(
    "jira",
    "Jira Cloud",
    (
        Setting("url", "Site, such as https://name.atlassian.net", is_address=True),
        Setting("email", "E-mail address of the account"),
        Setting("token", "API token", is_secret=True),
        Setting("project", "Key of the project"),
        Setting("issue_type", "Type of issue", is_needed=False, usual="Task"),
        Setting("done", "Transition that closes", is_needed=False, usual="the first into a done status"),
        PICTURES_SETTING,
    ),
    send,
    check,
    takes_pictures=True,
    writes_once=True,
)
