"""GET /ingest/orders: which dumps a node is asked for, for agents whose batches take another road; its own team's only."""

from __future__ import annotations

from datetime import timedelta

from asgiref.sync import sync_to_async
from django.utils import timezone

from ingest.models import Attempt, DumpRequest
from tests.builders import make_batch
from tests.ingest.conftest import Ingest, make_ingest


async def orders(
    ingest: Ingest, token: str, query: str = "job=llama&node=node-0", method: str = "GET"
) -> tuple[int, object]:
    scope_path = "/ingest/orders"
    headers = {"authorization": f"Bearer {token}"}
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    scope = {
        "type": "http", "method": method, "path": scope_path, "query_string": query.encode(), "headers": raw,
        "client": ("10.0.0.1", 1),
    }  # fmt: skip
    said: list[dict[str, object]] = []

    async def send(message: dict[str, object]) -> None:
        said.append(message)

    await ingest.application(scope, None, send)  # type: ignore[arg-type]
    return int(str(said[0]["status"])), said[1]["body"]


async def test_a_node_is_told_what_its_own_team_asks_of_it(ingest: Ingest) -> None:
    await ingest.send(make_batch())
    attempt = await Attempt.objects.aget()
    asked = await DumpRequest.objects.acreate(
        attempt=attempt, kinds=["stacks"], asked_at=timezone.now(), expires_at=timezone.now() + timedelta(minutes=1)
    )
    server = await ingest.application.server()
    await server.read_orders()
    status, body = await orders(ingest, ingest.token)
    assert status == 200 and f'"request": {asked.pk}'.encode() in bytes(body)  # type: ignore[arg-type]
    others = await make_ingest(ingest.application, "others")
    assert await orders(ingest, others.token) == (200, b"{}")
    assert await orders(ingest, ingest.token, "job=llama") == (200, body)  # a node nobody knows has not answered either
    assert await orders(ingest, ingest.token, "") == (200, b"{}")


async def test_strangers_and_other_methods_are_refused(ingest: Ingest) -> None:
    await sync_to_async(lambda: None)()
    assert (await orders(ingest, "dga_guessed"))[0] == 401
    assert (await orders(ingest, ingest.token, method="POST"))[0] == 405
