"""What a ticket has become in somebody else's system: what a look at it is told, and what it answers. Plain values.

A look asks one ticket, politely: with the mark of the last answer where the system knows marks (ETag), comments only where
something changed, and as little of everything as there is to ask for.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, Literal, Protocol

from django.utils.dateparse import parse_datetime

from console.tickets.message import Answer, Config, Post, Refused, checked

State = Literal["open", "closed", "moved", "gone"]
REMARKS_MAX: Final = 30
TEXT_CHARS_MAX: Final = 1000
NAME_CHARS_MAX: Final = 100
SPARE_SHARE: Final = 0.1
"""Of the requests a system allows an hour, what is left to people and to messages."""


class Moved(Refused):
    """It is somewhere else now: `to`, as the answer says."""

    def __init__(self, to: str, status: int) -> None:
        super().__init__("it was moved", status)
        self.to = to


@dataclass(frozen=True, slots=True)
class Known:
    """What is known of a ticket before the look. etag: mark of the last answer; since: when its newest known comment was made."""

    external_id: str
    etag: str = ""
    changed_at: str = ""
    since: str = ""


@dataclass(frozen=True, slots=True)
class Remark:
    """A comment somebody made there. at: ISO 8601."""

    id: str
    at: str
    author: str
    text: str


@dataclass(frozen=True, slots=True)
class Look:
    """How the ticket stands there. word: their name of its state; by: who closed it, where that is said.

    is_same: nothing has changed since the last look, and nothing else here means anything. external_id, url: empty when they
    stay as they were. has_more: there are more comments than were read. wait_s: how long the system is better left alone.
    """

    state: State = "open"
    word: str = ""
    assignee: str = ""
    changed_at: str = ""
    by: str = ""
    external_id: str = ""
    url: str = ""
    etag: str = ""
    remarks: tuple[Remark, ...] = ()
    has_more: bool = False
    is_same: bool = False
    wait_s: float = 0.0


class LookAt(Protocol):
    """One system's way to look. Raises Again and Refused."""

    def __call__(self, known: Known, config: Config, post: Post) -> Look: ...


class Reader:
    """GET requests to one place. wait_s: how long its limits ask to be left alone, after the answers so far."""

    def __init__(self, base: str, headers: Mapping[str, str], post: Post) -> None:
        self.base = base
        self.wait_s = 0.0
        self._headers = dict(headers)
        self._post = post

    def read(self, path: str, etag: str = "") -> Answer | None:
        """The answer; None when nothing has changed since the one with that mark. Raises Moved, Again and Refused."""
        return self.read_at(self.base + path, etag)

    def read_at(self, url: str, etag: str = "") -> Answer | None:
        answer = self._post("GET", url, b"", {**self._headers, **({"If-None-Match": etag} if etag else {})})
        self.wait_s = max(self.wait_s, spare_s(answer.headers, datetime.now(UTC).timestamp()))
        if answer.status == 304:
            return None
        if answer.status in (301, 302, 307, 308) and answer.headers.get("location"):
            raise Moved(answer.headers["location"], answer.status)
        return checked(answer)

    def rows(self, path: str) -> Any:
        """What is there, as JSON."""
        answer = self.read(path)
        return answer.json() if answer else []


def spare_s(headers: Mapping[str, str], now_s: float) -> float:
    """Seconds until a system counts anew, when most of what it allows is used up (GitHub's and GitLab's headers)."""
    for prefix in ("x-ratelimit-", "ratelimit-"):
        given = [headers.get(prefix + name, "") for name in ("limit", "remaining", "reset")]
        if all(one.isascii() and one.isdigit() and len(one) < 12 for one in given):
            limit, remaining, reset = map(int, given)
            return max(reset - now_s, 0.0) if remaining < limit * SPARE_SHARE else 0.0
    return 0.0


def state_of(word: Any, closed: Collection[str], opened: Collection[str] | None = None) -> State:
    """Open or closed by their word. Raises ValueError for one that says neither: what is not understood is unknown."""
    if word in closed:
        return "closed"
    if not (isinstance(word, str) and word) or (opened is not None and word not in opened):
        raise ValueError("no state")
    return "open"


def read_remarks(found: Iterable[Remark], since: str) -> tuple[tuple[Remark, ...], bool]:
    """Those not older than `since`, oldest first; and whether even the oldest was new, so that there may be more."""
    given = sorted(found, key=lambda one: one.at)
    fresh = tuple(one for one in given if not since or one.at >= since)
    return fresh, len(given) >= REMARKS_MAX and len(fresh) == len(given)


def moment(given: Any) -> str:
    """A time as ISO 8601 in UTC; empty when it is none. ServiceNow's have no zone and are UTC."""
    text = str(given or "").strip()
    if len(text) > 5 and text[-5] in "+-" and text[-4:].isdigit():  # Jira's +0000
        text = f"{text[:-2]}:{text[-2:]}"
    try:
        at = parse_datetime(text)
    except ValueError:
        return ""
    if at is None:
        return ""
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC).isoformat(timespec="milliseconds")


def plain(given: Any, chars_max: int = NAME_CHARS_MAX) -> str:
    """Text from outside that can be stored: no zeros, no halves of surrogate pairs, not too long."""
    text = str(given or "").replace("\0", "").encode(errors="replace").decode().strip()
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"


def names(given: Iterable[Any]) -> str:
    """Up to three names, and how many more."""
    found = [plain(one) for one in given if one]
    return ", ".join(found[:3]) + (f" and {len(found) - 3} more" if len(found) > 3 else "")
