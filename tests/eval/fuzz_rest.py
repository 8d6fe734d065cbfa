"""Random JSON to the console's REST API by a responder's token, odd addresses and odd sign-ins: never a 5xx.

Every address of the API is tried with every method; bodies are JSON of the wrong shape, of the right shape with odd
values, deeply nested, huge, and no JSON at all.
"""

from __future__ import annotations

import http.client
import json
import random
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import quote, urlencode

ODD: Final[tuple[Any, ...]] = (
    None, True, -1, 0, 1, 2**31, 2**63, 2**64, 10**30, 1e308, -0.0, "", "a", "\0", "\ud800", "x" * 5000, "'; DROP TABLE x",
    "\u202e", [], {}, [[]], [1, 2], {"a": None}, "1", "NaN", "∞", "0" * 400, "-1", "1e5", "😀" * 300,
)  # fmt: skip
NAMES: Final = (
    "version",
    "note",
    "reason",
    "text",
    "label",
    "team",
    "from_ns",
    "to_ns",
    "ranks",
    "seconds",
    "cursor",
    "q",
    "job",
    "state",
    "changes",
    "minutes",
    "since",
    "matchers",
    "targets",
    "verb",
    "assignee",
    "root",
    "alarm",
    "verdict",
    "culprits",
    "days",
)
PATHS: Final = (
    "session", "now", "incidents", "incidents/{n}", "incidents/{n}/diagnoses/{n}", "incidents/{n}/grid", "incidents/{n}/lanes",
    "incidents/{n}/window", "incidents/{n}/acknowledge", "incidents/{n}/unacknowledge", "incidents/{n}/resolve",
    "incidents/{n}/reopen", "incidents/{n}/comments", "incidents/{n}/diagnose", "incidents/{n}/assign", "incidents/{n}/attach",
    "incidents/{n}/detach", "incidents/{n}/review", "incidents/{n}/neighbours", "incidents/acts", "silences", "silences/{n}",
    "silences/preview", "views", "views/{n}", "scorecard", "jobs/{n}/settings", "jobs/{n}/pause",
    "jobs/{n}/triggers", "jobs", "jobs/{n}", "jobs/{n}/grid", "jobs/{n}/figures/throughput", "nodes",
    "tokens", "tokens/{n}", "schema", "docs", "nothing", "",
)  # fmt: skip
NUMBERS: Final = ("0", "1", "2", "3", "-1", "9223372036854775807", "9223372036854775808", "1" * 60, "x", "1%00", "٣")


def run_rest(port: int, token: str, seed: int, n_inputs: int) -> tuple[Counter[int], list[str]]:
    """Statuses, and what was sent when it was 500 or more, or when no answer came."""
    draw, said, errors = random.Random(seed), Counter[int](), []
    for _ in range(n_inputs):
        method, path, body, headers = rest_request(draw, token)
        try:
            status, answer = _exchange(port, method, path, body, headers)
        except (OSError, http.client.HTTPException) as error:
            status, answer = -1, repr(error).encode()
        said[status] += 1
        if (status >= 500 or status == -1) and len(errors) < 50:
            errors.append(f"{status} {method} {path[:150]} {body[:150]!r}: {answer[:200]!r}")
    return said, errors


def rest_request(
    draw: random.Random, token: str, numbers: Sequence[str] = NUMBERS
) -> tuple[str, str, bytes, dict[str, str]]:
    """Method, path, body and headers of an odd request. numbers: what stands for ids in addresses."""
    headers = {"Authorization": f"Token {token}", "Content-Type": "application/json"}
    if draw.random() < 0.1:
        headers["Authorization"] = draw.choice(("Token ", "Token \xff", "Bearer x", "Token " + "y" * 3000, "Token a b"))
    if draw.random() < 0.1:
        headers["Cookie"] = draw.choice(
            ("sessionid=x", "sessionid=" + "y" * 2000, "csrftoken=\xff", "; ;=", "sessionid=a\x7f")
        )
    if draw.random() < 0.2:
        headers["Idempotency-Key"] = draw.choice(("k", "x" * 300, "\xfc", "a b"))
    if draw.random() < 0.1:
        headers["Content-Type"] = draw.choice(
            ("text/plain", "multipart/form-data", "application/json; charset=utf-99", "")
        )
    if draw.random() < 0.1:
        return _sign_in(draw)
    path = "/api/v1/" + draw.choice(PATHS).replace("{n}", draw.choice(numbers))
    path = quote(path, safe="/%")
    if draw.random() < 0.4:
        given = {draw.choice(NAMES): draw.choice(ODD) for _ in range(draw.randint(1, 3))}
        path += "?" + urlencode({name: _plain(value) for name, value in given.items()})
    method = draw.choice(("GET", "GET", "POST", "POST", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"))
    return method, path, _body(draw), headers


def _sign_in(draw: random.Random) -> tuple[str, str, bytes, dict[str, str]]:
    """Forms without a CSRF token are refused; links and pages are not forms."""
    path = (
        "/signin/" + draw.choice(("x", "a" * 300, "%00", "%ff", "..", "%2e%2e")) if draw.random() < 0.5 else "/signin"
    )
    path += draw.choice(("", "?next=//evil.example", "?next=javascript:x", "?next=%00", "?next=" + "a" * 3000))
    fields = urlencode({"username": _plain(draw.choice(ODD)), "password": _plain(draw.choice(ODD))}).encode()
    headers = {
        "Content-Type": "application/x-www-form-urlencoded",
        "Cookie": f"csrftoken={'a' * 32}",
        "X-CSRFToken": "a" * 32,
    }
    return draw.choice(("GET", "POST")), path, fields, headers


def _body(draw: random.Random) -> bytes:
    what = draw.randrange(8)
    if what == 0:
        return draw.randbytes(draw.randint(0, 200))
    if what == 1:
        return b"[" * draw.choice((100, 5000, 100_000))
    if what == 2:
        return b'{"version":' + b"9" * draw.choice((20, 5000)) + b"}"
    if what == 3:
        return json.dumps({"note": "x" * draw.choice((10**5, 3 * 10**5))}).encode()
    if what == 4:
        return json.dumps(draw.choice(ODD)).encode()
    return json.dumps({draw.choice(NAMES): draw.choice(ODD) for _ in range(draw.randint(0, 5))}).encode()


def _plain(value: Any) -> str:
    return str(value).encode("utf-8", "replace").decode()


def _exchange(port: int, method: str, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        raw = {name: value.encode("latin-1") for name, value in headers.items()}
        link.request(method, path, body, raw)
        answer = link.getresponse()
        return answer.status, answer.read(1000)
    finally:
        link.close()
