"""A look at a Jira Cloud issue. It has no marks: comments are read only when `updated` is another than before.

An issue that was moved to another project answers under its old key, with the new one.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

from console.tickets.kinds.jira import DONE
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
from console.tickets.message import JSON_TYPE, Config, Post, basic

FIELDS = "fields=status,assignee,updated"
NEWEST = f"orderBy=-created&maxResults={REMARKS_MAX}"
DEPTH_MAX = 20


def look(known: Known, config: Config, post: Post) -> Look:
    signed = basic(config.settings["email"], config.secrets["token"])
    base = config.settings["url"].rstrip("/")
    reader = Reader(base, {"Authorization": signed, "Accept": JSON_TYPE}, post)
    path = f"/rest/api/3/issue/{quote(known.external_id, safe='')}"
    issue = reader.rows(f"{path}?{FIELDS}")
    fields = issue["fields"]
    changed_at = moment(fields.get("updated"))
    if changed_at and changed_at == known.changed_at:
        return Look(is_same=True, wait_s=reader.wait_s)
    found = reader.rows(f"{path}/comment?{NEWEST}").get("comments") or []
    remarks, has_more = read_remarks(map(_remark, found), known.since)
    status = fields["status"]
    key = plain(issue.get("key"))
    return Look(
        state=state_of(status["statusCategory"]["key"], (DONE,)),
        word=plain(status.get("name")),
        assignee=plain((fields.get("assignee") or {}).get("displayName")),
        changed_at=changed_at,
        external_id=key,
        url=f"{base}/browse/{key}" if key else "",
        remarks=remarks,
        has_more=has_more,
        wait_s=reader.wait_s,
    )


def _remark(one: dict[str, Any]) -> Remark:
    author = plain((one.get("author") or {}).get("displayName"))
    return Remark(str(one["id"]), moment(one["created"]), author, plain(text_of(one.get("body")), TEXT_CHARS_MAX))


def text_of(document: Any) -> str:
    """Atlassian's document format as plain text, a line for each paragraph."""
    return "".join(_pieces(document, 0)).strip()


def _pieces(node: Any, depth: int) -> Iterator[str]:
    if not isinstance(node, dict) or depth > DEPTH_MAX:
        return
    yield str(node.get("text") or (node.get("attrs") or {}).get("text") or "")
    for inner in node.get("content") or ():
        yield from _pieces(inner, depth + 1)
    if node.get("type") in ("paragraph", "heading", "codeBlock", "listItem", "hardBreak"):
        yield "\n"
