"""What others write of times, limits and comments is read, or left."""

from __future__ import annotations

from typing import Any

from console.tickets.looks.jira import text_of
from console.tickets.looks.look import moment, spare_s
from console.tickets.message import Answer, retry_after_s


def test_times_limits_and_documents_of_others_are_read_or_left() -> None:
    assert moment("2026-11-23T10:00:00.5+0200") == "2026-11-23T08:00:00.500+00:00"
    assert moment("2026-11-23 08:00:00") == "2026-11-23T08:00:00.000+00:00"
    assert [moment(odd) for odd in (None, "", "soon", "2026-13-45T00:00:00Z", 7)] == [""] * 5
    full = {"ratelimit-limit": "60", "ratelimit-remaining": "2", "ratelimit-reset": "1060"}
    assert (spare_s(full, 1000.0), spare_s({**full, "ratelimit-remaining": "30"}, 1000.0)) == (60.0, 0.0)
    assert spare_s({**full, "ratelimit-reset": "x"}, 1000.0) == 0.0
    deep: Any = {"type": "text", "text": "end"}
    for _ in range(5000):
        deep = {"type": "paragraph", "content": [deep]}
    assert text_of(deep) == ""
    assert text_of({"content": [{"type": "mention", "attrs": {"text": "@jo"}}, {"text": " hi"}, 7, None]}) == "@jo hi"
    assert retry_after_s(Answer(429, {"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, b"")) == 0.0
    assert retry_after_s(Answer(429, {"retry-after": "whenever"}, b"")) is None
