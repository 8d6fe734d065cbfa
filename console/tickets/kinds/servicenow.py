"""ServiceNow: an incident is one record of the incident table, found again by its correlation number.

What happens later is written to work_notes, which append on write; the caller does not see them.
"""

from __future__ import annotations

from functools import partial
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
    Sent,
    Setting,
    basic,
    check_pictures,
    upload_pictures,
)
from console.tickets.wording import lines_of, what_happened

TABLE: Final = "/api/now/table/incident"
ATTACHMENTS: Final = "/api/now/attachment/file"
LEVEL: Final = {"high": "1", "medium": "2", "low": "3"}
SHORT_CHARS_MAX: Final = 160
RESOLVED, IN_PROGRESS = "6", "2"


def record_of(message: Message, config: Config) -> dict[str, Any]:
    """The body that creates the record."""
    level = LEVEL.get(message.severity, "1")
    made = {
        "short_description": message.title[:SHORT_CHARS_MAX],
        "description": "\n".join(lines_of(message)),
        "urgency": level,
        "impact": level,
        "category": config.settings.get("category") or "hardware",
        "correlation_id": f"ti-{message.ticket}",
        "correlation_display": "Diogenes",
    }
    group = config.settings.get("assignment_group")
    return {**made, "assignment_group": group} if group else made


def change_of(message: Message, config: Config) -> dict[str, Any]:
    """The body that tells an existing record what happened."""
    said = {"work_notes": what_happened(message)}
    if message.verb == "resolve":
        code = config.settings.get("close_code") or "Solved (Permanently)"
        return {
            **said,
            "state": RESOLVED,
            "close_code": code,
            "close_notes": message.resolution or message.note or "Over.",
        }
    return {**said, "state": IN_PROGRESS} if message.verb == "reopen" else said


def send(message: Message, config: Config, post: Post) -> Sent:
    desk = _desk_of(config, post)
    if message.is_test:
        found = desk.ask("GET", f"{TABLE}?sysparm_limit=1&sysparm_fields=sys_id")
        return Sent(found.status, said="the table is there; nothing was created")
    name, status = _record(message, desk, config)
    if message.verb == "pictures":
        upload_pictures(message, partial(_attach, desk, name))
    elif status is None or message.verb == "resolve":
        desk.ask("PATCH", f"{TABLE}/{quote(name, safe='')}", change_of(message, config))
    return Sent(status, name, f"{desk.base}/nav_to.do?uri=incident.do?sys_id={name}")


def _attach(desk: Desk, record: str, file: str, body: bytes) -> str:
    """Attach a picture to the record."""
    asked = urlencode({"table_name": "incident", "table_sys_id": record, "file_name": file})
    desk.upload(f"{ATTACHMENTS}?{asked}", body, {"Content-Type": "image/png"})
    return file


def _desk_of(config: Config, post: Post) -> Desk:
    """Requests to one instance."""
    signed = basic(config.settings["user"], config.secrets["password"])
    return Desk(config.settings["url"].rstrip("/"), {"Authorization": signed, "Accept": JSON_TYPE}, post)


def _record(message: Message, desk: Desk, config: Config) -> tuple[str, int | None]:
    """The record's sys_id, and the status if it has just been created."""
    if message.external_id:
        return message.external_id, None
    asked = urlencode({"sysparm_query": f"correlation_id=ti-{message.ticket}", "sysparm_limit": 1})
    found = desk.ask("GET", f"{TABLE}?{asked}").json().get("result") or []
    if found:
        return str(found[0]["sys_id"]), None
    created = desk.ask("POST", TABLE, record_of(message, config))
    return str(created.json()["result"]["sys_id"]), created.status


KIND: Final = Kind(
    "servicenow",
    "ServiceNow",
    (
        Setting("url", "Instance, such as https://name.service-now.com", is_address=True),
        Setting("user", "User"),
        Setting("password", "Password", is_secret=True),
        Setting("assignment_group", "Assignment group", is_needed=False),
        Setting("category", "Category", is_needed=False, usual="hardware"),
        Setting("close_code", "Resolution code", is_needed=False, usual="Solved (Permanently)"),
        PICTURES_SETTING,
    ),
    send,
    check_pictures,
    takes_pictures=True,
    writes_once=True,
)
