"""Four ticket systems as a reader meets them: the documented shapes, marks, limits, moves and deletions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from tests.console.tickets.places import Asked, Said

AT = "2026-11-23T08:00:00"
Remarks = list[tuple[str, str, str]]


@dataclass
class Issue:
    """One ticket there. version: rises with every change, as the time of it does. remarks: (id, author, text)."""

    is_closed: bool = False
    word: str = "Open"
    assignee: str = ""
    closed_by: str = ""
    version: int = 0
    remarks: Remarks = field(default_factory=list)
    moved_to: str = ""
    is_deleted: bool = False

    def change(self, **changes: Any) -> None:
        self.version += 1
        for name, value in changes.items():
            setattr(self, name, value)

    def say(self, author: str, text: str) -> str:
        self.change(remarks=[*self.remarks, (str(900 + len(self.remarks)), author, text)])
        return self.remarks[-1][0]

    def at(self, version: int) -> str:
        return f"{AT}.{version:03d}"


@dataclass
class System:
    """A ticket system with one issue. trouble: what it answers instead, while it is set. limits: headers of every answer."""

    answer_of: Callable[[System, Asked], Said]
    issue: Issue = field(default_factory=Issue)
    trouble: Said | None = None
    limits: dict[str, str] = field(default_factory=dict)
    created: list[Any] = field(default_factory=list)
    n_marked: int = 0
    hides_journal: bool = False

    def __call__(self, asked: Asked) -> Said:
        if self.trouble:
            return self.trouble
        status, headers, said = self.answer_of(self, asked)
        return status, {**self.limits, **headers}, said

    def marked(self, asked: Asked, said: Any) -> Said:
        """With a mark, and 304 for who has it."""
        mark = f'W/"{self.issue.version}"'
        if asked.headers.get("if-none-match") == mark:
            self.n_marked += 1
            return 304, {"ETag": mark}, b""
        return 200, {"ETag": mark}, said

    def own(self, text: str) -> str:
        return self.issue.say("diogenes", text)


def github(there: System, asked: Asked) -> Said:
    issue = there.issue
    path = asked.path.partition("?")[0]
    if path.endswith("/comments") and asked.method == "POST":
        return 201, {}, {"id": int(there.own(asked.json["body"]))}
    if asked.method == "PATCH":
        issue.change(is_closed=asked.json["state"] == "closed")
        return 200, {}, {}
    if path.endswith("/issues"):
        if asked.method == "GET":
            return 200, {}, there.created
        there.created.append({**asked.json, "number": 7, "html_url": "https://github.example/ops/7"})
        return 201, {}, there.created[-1]
    if issue.is_deleted:
        return 410, {}, {"message": "This issue was deleted"}
    if issue.moved_to and "/repositories/" not in path:
        return 301, {"Location": issue.moved_to}, {"message": "Moved Permanently"}
    if path.endswith("/comments"):
        since = unquote(asked.path.partition("since=")[2])[:23]
        rows: list[dict[str, Any]] = [
            {"id": int(one), "user": {"login": author}, "body": text, "updated_at": issue.at(n + 1) + "Z"}
            for n, (one, author, text) in enumerate(issue.remarks)
        ]
        return 200, {}, [row for row in rows if not since or row["updated_at"] >= since][:30]
    said = {
        "number": 7, "state": "closed" if issue.is_closed else "open", "state_reason": issue.word.lower(),
        "assignees": [{"login": issue.assignee}] if issue.assignee else [], "comments": len(issue.remarks),
        "updated_at": issue.at(issue.version) + "Z", "html_url": "https://github.example/new/7",
        "closed_by": {"login": issue.closed_by} if issue.closed_by else None,
    }  # fmt: skip
    return there.marked(asked, said)


def gitlab(there: System, asked: Asked) -> Said:
    issue = there.issue
    path = asked.path.partition("?")[0]
    if path.endswith("/notes") and asked.method == "POST":
        return 201, {}, {"id": int(there.own(asked.json["body"]))}
    if asked.method == "PUT":
        issue.change(is_closed=asked.json["state_event"] == "close")
        return 200, {}, {}
    if path.endswith("/issues"):
        if asked.method == "GET":
            return 200, {}, there.created
        there.created.append({**asked.json, "iid": 7, "web_url": "https://gitlab.example/ops/7"})
        return 201, {}, there.created[-1]
    if issue.is_deleted:
        return 404, {}, {"message": "404 Not found"}
    if path.endswith("/notes"):
        rows = [
            {"id": int(one), "author": {"username": author}, "body": text, "system": False,
             "created_at": issue.at(n + 1) + "Z"}
            for n, (one, author, text) in enumerate(issue.remarks)
        ]  # fmt: skip
        system = {"id": 1, "author": {"username": "x"}, "body": "changed the description", "system": True,
                  "created_at": issue.at(0) + "Z"}  # fmt: skip
        return 200, {}, [*rows[::-1], system][:30]
    said = {
        "iid": 7, "state": "closed" if issue.is_closed else "opened", "user_notes_count": len(issue.remarks),
        "assignees": [{"username": issue.assignee}] if issue.assignee else [], "updated_at": issue.at(issue.version) + "Z",
        "moved_to_id": 99 if issue.moved_to else None,
        "closed_by": {"username": issue.closed_by} if issue.closed_by else None,
    }  # fmt: skip
    return there.marked(asked, said)


def jira(there: System, asked: Asked) -> Said:
    issue = there.issue
    path = asked.path.partition("?")[0]
    if path.endswith("/comment") and asked.method == "POST":
        text = asked.json["body"]["content"][0]["content"][0]["text"]
        return 201, {}, {"id": there.own(text)}
    if "/search/jql" in path:
        return 200, {}, {"issues": there.created}
    if path.endswith("/transitions"):
        if asked.method == "GET":
            return 200, {}, {"transitions": [{"id": "31", "name": "Done", "to": {"statusCategory": {"key": "done"}}}]}
        issue.change(is_closed=True, word="Done")
        return 204, {}, b""
    if path.endswith("/issue"):
        there.created.append({"key": "OPS-7"})
        return 201, {}, {"key": "OPS-7"}
    if asked.method == "POST":
        return 200, {}, {}
    if issue.is_deleted:
        return 404, {}, {"errorMessages": ["Issue does not exist or you do not have permission to see it."]}
    if path.endswith("/comment"):
        rows = [
            {"id": one, "author": {"displayName": author}, "created": issue.at(n + 1) + "+0000",
             "body": {"type": "doc", "version": 1, "content": [
                 {"type": "paragraph", "content": [{"type": "text", "text": text}]}]}}
            for n, (one, author, text) in enumerate(issue.remarks)
        ]  # fmt: skip
        return 200, {}, {"comments": rows[::-1][:30], "total": len(rows)}
    status = {"name": issue.word, "statusCategory": {"key": "done" if issue.is_closed else "indeterminate"}}
    assignee = {"displayName": issue.assignee} if issue.assignee else None
    fields = {"status": status, "assignee": assignee, "updated": issue.at(issue.version) + "+0000"}
    return 200, {}, {"key": issue.moved_to or "OPS-7", "fields": fields}


def servicenow(there: System, asked: Asked) -> Said:
    issue = there.issue
    path = asked.path.partition("?")[0]
    if path.endswith("/sys_journal_field"):
        if there.hides_journal:
            return 403, {}, {"error": {"message": "Operation Failed"}}
        rows = [
            {"sys_id": one, "value": text, "sys_created_by": author, "sys_created_on": f"2026-11-23 08:00:{n + 1:02d}"}
            for n, (one, author, text) in enumerate(issue.remarks)
        ]
        return 200, {}, {"result": rows[::-1][:30]}
    if asked.method == "POST":
        there.created.append({"sys_id": "a1b2"})
        return 201, {}, {"result": there.created[-1]}
    if asked.method == "PATCH":
        there.own(asked.json["work_notes"])
        if "state" in asked.json:
            issue.change(is_closed=asked.json["state"] == "6")
        return 200, {}, {"result": {}}
    if "correlation_id" in asked.path:
        return 200, {}, {"result": there.created}
    if issue.is_deleted:
        return 404, {}, {"error": {"message": "No Record found"}}
    pairs = {
        "state": ("6" if issue.is_closed else "2", issue.word), "assigned_to": ("u1", issue.assignee), "number": ("INC7",) * 2,
        "sys_updated_on": (f"2026-11-23 08:01:{issue.version:02d}", "somewhere"), "resolved_by": ("u2", issue.closed_by),
    }  # fmt: skip
    return (
        200,
        {},
        {"result": {name: {"value": value, "display_value": shown} for name, (value, shown) in pairs.items()}},
    )


SETTINGS: dict[str, dict[str, str]] = {
    "github": {"repository": "ops/train", "token": "t"},
    "gitlab": {"project": "ops/train", "token": "t"},
    "jira": {"email": "a@b.example", "token": "t", "project": "OPS"},
    "servicenow": {"user": "diogenes", "password": "t"},
}
ANSWERS: dict[str, Callable[[System, Asked], Said]] = {
    "github": github, "gitlab": gitlab, "jira": jira, "servicenow": servicenow,
}  # fmt: skip
