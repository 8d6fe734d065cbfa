"""A look at a ServiceNow record. It has no marks: notes are read only when `sys_updated_on` is another than before.

Notes lie in the journal, a table of its own that not every user may read: then the state is shown without them.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

from console.tickets.kinds.servicenow import TABLE
from console.tickets.looks.look import (
    REMARKS_MAX,
    TEXT_CHARS_MAX,
    Known,
    Look,
    Reader,
    Remark,
    moment,
    plain,
    read_remarks,
    state_of,
)
from console.tickets.message import JSON_TYPE, Config, Post, Refused, basic

JOURNAL = "/api/now/table/sys_journal_field"
FIELDS = "number,state,assigned_to,sys_updated_on,resolved_by,closed_by"
CLOSED = ("6", "7", "8")
"""Resolved, closed, canceled."""
HIDDEN = (401, 403, 404)


def look(known: Known, config: Config, post: Post) -> Look:
    signed = basic(config.settings["user"], config.secrets["password"])
    reader = Reader(config.settings["url"].rstrip("/"), {"Authorization": signed, "Accept": JSON_TYPE}, post)
    asked = urlencode({"sysparm_fields": FIELDS, "sysparm_display_value": "all"})
    record = reader.rows(f"{TABLE}/{quote(known.external_id, safe='')}?{asked}")["result"]
    changed_at = moment(_value(record, "sys_updated_on"))
    if changed_at and changed_at == known.changed_at:
        return Look(is_same=True, wait_s=reader.wait_s)
    remarks, has_more = read_remarks(_journal(known, config, reader), known.since)
    return Look(
        state=state_of(_value(record, "state"), CLOSED),
        word=_shown(record, "state"),
        assignee=_shown(record, "assigned_to"),
        changed_at=changed_at,
        by=_shown(record, "closed_by") or _shown(record, "resolved_by"),
        remarks=remarks,
        has_more=has_more,
        wait_s=reader.wait_s,
    )


def _journal(known: Known, config: Config, reader: Reader) -> list[Remark]:
    """The newest notes of other users: our own say nothing new."""
    query = f"element_id={known.external_id}^elementINwork_notes,comments^ORDERBYDESCsys_created_on"
    asked = {"sysparm_query": query, "sysparm_fields": "sys_id,value,sys_created_on,sys_created_by",
             "sysparm_limit": REMARKS_MAX}  # fmt: skip
    try:
        found = reader.rows(f"{JOURNAL}?{urlencode(asked)}")["result"]
    except Refused as error:
        if error.status in HIDDEN:
            return []
        raise
    return [
        Remark(str(one["sys_id"]), moment(one["sys_created_on"]), plain(one.get("sys_created_by")),
               plain(one.get("value"), TEXT_CHARS_MAX))
        for one in found
        if one.get("sys_created_by") != config.settings["user"]
    ]  # fmt: skip


def _value(record: dict[str, Any], name: str) -> str:
    return str((record.get(name) or {}).get("value") or "")


def _shown(record: dict[str, Any], name: str) -> str:
    return plain((record.get(name) or {}).get("display_value"))
