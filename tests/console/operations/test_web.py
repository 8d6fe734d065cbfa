"""The web process' port: probes answered before Django, requests counted and named."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from prometheus_client import REGISTRY

from console.asgi import application
from ingest import process


async def get(path: str, host: str = "10.1.2.3:8000", **headers: str) -> tuple[int, dict[str, str], bytes]:
    answer: list[Any] = []
    raw = [(b"host", host.encode())]
    raw += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"", "headers": raw,
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 8000), "scheme": "http", "http_version": "1.1",
        "root_path": "", "asgi": {"version": "3.0"},
    }  # fmt: skip

    body = [{"type": "http.request", "body": b"", "more_body": False}]

    async def receive() -> dict[str, Any]:
        return body.pop() if body else await asyncio.Event().wait()  # type: ignore[return-value]

    async def send(message: Any) -> None:
        answer.append(message)

    await application(scope, receive, send)
    names = {name.decode().lower(): value.decode() for name, value in answer[0]["headers"]}
    return answer[0]["status"], names, b"".join(part.get("body", b"") for part in answer[1:])


@pytest.fixture(autouse=True)
def lively(settings: Any) -> None:
    settings.METRICS_TOKEN = "s3cret"
    process.tick()


async def test_probes_may_call_us_by_any_address() -> None:
    status, headers, body = await get("/healthz")
    assert (status, json.loads(body)["status"]) == (200, "ok")
    assert len(headers["x-request-id"]) == 16


async def test_metrics_and_what_readiness_found_are_not_for_passers_by(transactional_db: None, valkey: object) -> None:
    assert (await get("/metrics"))[0] == 401
    assert "checks" not in json.loads((await get("/readyz"))[2])
    status, headers, body = await get("/metrics", authorization="Bearer s3cret")
    assert status == 200
    assert headers["content-type"].startswith("text/plain")
    assert b"diogenes_http_requests_total" in body
    checks = json.loads((await get("/readyz", authorization="Bearer s3cret"))[2])["checks"]
    assert {name for name, check in checks.items() if check["ok"]} >= {"database", "migrations", "valkey"}
    assert not checks["worker"]["ok"], "nobody runs one here"


async def test_a_request_is_counted_by_method_and_status_and_keeps_its_id(transactional_db: None) -> None:
    def refused() -> float:
        return REGISTRY.get_sample_value("diogenes_http_requests_total", {"method": "GET", "status": "401"}) or 0.0

    before = refused()
    status, headers, _ = await get("/api/v1/now", host="localhost", x_request_id="from-a-script-1")
    assert (status, headers["x-request-id"]) == (401, "from-a-script-1")
    assert refused() == before + 1
