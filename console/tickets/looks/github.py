"""A look at a GitHub issue. Unchanged issues answer 304 and cost nothing of the hour's requests.

A transferred issue answers 301 with its new address, a deleted one 410, and one the token may not see 404.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from console.tickets.kinds.github import URL, VERSION
from console.tickets.looks.look import (
    REMARKS_MAX,
    TEXT_CHARS_MAX,
    Known,
    Look,
    Moved,
    Reader,
    Remark,
    moment,
    names,
    plain,
    state_of,
)
from console.tickets.message import Config, Post


def look(known: Known, config: Config, post: Post) -> Look:
    root = (config.settings.get("url") or URL).rstrip("/")
    headers = {
        "Authorization": f"Bearer {config.secrets['token']}", "Accept": "application/vnd.github+json",
        "X-GitHub-Api-Version": VERSION,
    }  # fmt: skip
    reader = Reader(f"{root}/repos/{config.settings['repository']}", headers, post)
    try:
        answer = reader.read(f"/issues/{known.external_id}", known.etag)
    except Moved as moved:
        return _moved(moved, reader, root)
    if answer is None:
        return Look(is_same=True, wait_s=reader.wait_s)
    issue = answer.json()
    remarks = _remarks(issue, known, reader)
    has_more = len(remarks) >= REMARKS_MAX  # then without a mark, so that the next look reads on
    return Look(
        state=state_of(issue["state"], ("closed",), ("open",)),
        word=plain(str(issue.get("state_reason") or issue["state"]).replace("_", " ")),
        assignee=_assignees(issue),
        changed_at=moment(issue.get("updated_at")),
        by=plain((issue.get("closed_by") or {}).get("login")),
        etag="" if has_more else answer.headers.get("etag", ""),
        remarks=remarks,
        wait_s=reader.wait_s,
    )


def _moved(moved: Moved, reader: Reader, root: str) -> Look:
    """Where it is now, asked only of the same server: nobody leads the token elsewhere."""
    answer = reader.read_at(moved.to) if moved.to.startswith(root + "/") else None
    issue = answer.json() if answer else {}
    return Look(
        state="moved", word=plain(issue.get("state")), assignee=_assignees(issue), url=plain(issue.get("html_url"), 1000),
        changed_at=moment(issue.get("updated_at")), wait_s=reader.wait_s,
    )  # fmt: skip


def _assignees(issue: dict[str, Any]) -> str:
    return names(one.get("login") for one in issue.get("assignees") or ())


def _remarks(issue: dict[str, Any], known: Known, reader: Reader) -> tuple[Remark, ...]:
    """Comments since the newest known one, oldest first."""
    if not issue.get("comments"):
        return ()
    asked = {"per_page": REMARKS_MAX, **({"since": known.since} if known.since else {})}
    return tuple(
        Remark(
            str(one["id"]), moment(one["updated_at"]), plain((one.get("user") or {}).get("login")),
            plain(one.get("body"), TEXT_CHARS_MAX),
        )
        for one in reader.rows(f"/issues/{known.external_id}/comments?{urlencode(asked)}")
    )  # fmt: skip
