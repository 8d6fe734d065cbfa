"""A look at a GitLab issue. One that was moved to another project stays behind, closed, and says so."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from console.tickets.kinds.gitlab import URL
from console.tickets.looks.look import (
    REMARKS_MAX,
    TEXT_CHARS_MAX,
    Known,
    Look,
    Reader,
    Remark,
    moment,
    names,
    plain,
    read_remarks,
    state_of,
)
from console.tickets.message import Config, Post

NEWEST = f"sort=desc&order_by=created_at&activity_filter=only_comments&per_page={REMARKS_MAX}"


def look(known: Known, config: Config, post: Post) -> Look:
    root = (config.settings.get("url") or URL).rstrip("/")
    project = quote(config.settings["project"], safe="")
    reader = Reader(f"{root}/api/v4/projects/{project}", {"PRIVATE-TOKEN": config.secrets["token"]}, post)
    answer = reader.read(f"/issues/{known.external_id}", known.etag)
    if answer is None:
        return Look(is_same=True, wait_s=reader.wait_s)
    issue = answer.json()
    found = reader.rows(f"/issues/{known.external_id}/notes?{NEWEST}") if issue.get("user_notes_count") else []
    remarks, has_more = read_remarks((_remark(one) for one in found if not one.get("system")), known.since)
    state = state_of(issue["state"], ("closed",), ("opened",))
    return Look(
        state="moved" if issue.get("moved_to_id") else state,
        word=plain(issue["state"]),
        assignee=names(one.get("username") for one in issue.get("assignees") or ()),
        changed_at=moment(issue.get("updated_at")),
        by=plain((issue.get("closed_by") or {}).get("username")),
        etag=answer.headers.get("etag", ""),
        remarks=remarks,
        has_more=has_more,
        wait_s=reader.wait_s,
    )


def _remark(one: dict[str, Any]) -> Remark:
    author = plain((one.get("author") or {}).get("username"))
    return Remark(str(one["id"]), moment(one["created_at"]), author, plain(one.get("body"), TEXT_CHARS_MAX))
