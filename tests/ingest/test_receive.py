"""POST /ingest/batches: every answer it can give, and that a refused batch leaves nothing behind."""

from __future__ import annotations

import asyncio
import struct
import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from asgiref.sync import sync_to_async
from django.db import DataError, IntegrityError, connection

from ingest.door import receive
from ingest.door.arrival import Arrival
from ingest.door.tokens import make_agent_token, revoke_agent_token
from ingest.jobs.roster import Berth, find_berths
from ingest.models import AgentToken, Job, Node, Team
from ingest.traces.committer import WAITING_MAX
from ingest.traces.stores import active_store
from nccl_instrument.wire import BATCH_BYTES_MAX, decode_batch, encode_batch, promised_bytes
from tests.builders import FakeJob, make_batch, with_rows
from tests.ingest.conftest import Ingest, make_ingest

aio = sync_to_async


def n_stored() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM ingest_trace_batch")
        return int(cursor.fetchone()[0])


def one_row(query: str) -> tuple[Any, ...]:
    with connection.cursor() as cursor:
        cursor.execute(query)
        return tuple(cursor.fetchone())


async def test_a_batch_is_answered_after_it_is_stored(ingest: Ingest) -> None:
    reply = await ingest.send(make_batch())
    assert (reply.status, reply.body) == (200, {"duplicate": False})
    assert await aio(n_stored)() == 1
    node = await Node.objects.aget()
    assert (node.name, node.batches, node.rows_dropped) == ("node-0", 1, 0)


async def test_a_resent_batch_changes_nothing(ingest: Ingest) -> None:
    await ingest.send(make_batch())
    before = await Node.objects.values().aget()
    reply = await ingest.send(make_batch())
    assert (reply.status, reply.body) == (200, {"duplicate": True})
    assert await aio(n_stored)() == 1
    assert await Node.objects.values().aget() == before


async def test_the_same_batch_sent_many_times_at_once_is_stored_once(ingest: Ingest) -> None:
    body = encode_batch(make_batch())
    replies = await asyncio.gather(*(ingest.post(body) for _ in range(40)))
    assert [reply.status for reply in replies] == [200] * 40
    assert sum(not reply.body["duplicate"] for reply in replies) == 1
    assert await aio(n_stored)() == 1


async def test_two_ingest_processes_store_a_batch_once(ingest: Ingest) -> None:
    other = Ingest(type(ingest.application)(), ingest.token, ingest.team)
    body = encode_batch(make_batch())
    replies = await asyncio.gather(*(one.post(body) for one in (ingest, other) * 10))
    await other.application.stop()
    assert sum(not reply.body["duplicate"] for reply in replies) == 1
    assert await aio(n_stored)() == 1


async def test_numbers_that_come_out_of_order_are_all_stored(ingest: Ingest) -> None:
    job = FakeJob()
    for number in (5, 1, 3, 2, 1, 5):
        await ingest.send(job.batch(number=number))
    assert await aio(n_stored)() == 4


@pytest.mark.parametrize("token", ["", "dga_of-nobody", "x" * 500])
async def test_without_a_good_token_it_is_401(ingest: Ingest, token: str) -> None:
    reply = await ingest.send(make_batch(), token=token)
    assert reply.status == 401
    assert reply.headers["www-authenticate"] == "Bearer"
    assert await Job.objects.acount() == 0


async def test_a_revoked_token_stops_working_within_seconds(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (await ingest.send(make_batch())).status == 200
    await aio(revoke_agent_token)(await AgentToken.objects.aget())
    monkeypatch.setattr("ingest.door.auth.CACHE_SECONDS", 0.0)
    assert (await ingest.send(make_batch(number=1))).status == 401


async def test_guessing_tokens_is_limited_per_client_and_leaves_others_alone(ingest: Ingest) -> None:
    guesses = [(await ingest.send(make_batch(), token=f"guess{i}")).status for i in range(12)]
    assert guesses == [401] * 10 + [429] * 2
    limited = await ingest.send(make_batch(), token="guess")
    assert int(limited.headers["retry-after"]) >= 1
    assert (await ingest.send(make_batch(), client="10.0.0.2")).status == 200


async def test_a_guesser_does_not_lock_out_a_known_agent_on_its_address(ingest: Ingest) -> None:
    assert (await ingest.send(make_batch())).status == 200
    for i in range(15):
        await ingest.send(make_batch(), token=f"guess{i}")
    assert (await ingest.send(make_batch(number=1))).status == 200


async def test_another_teams_token_never_reaches_the_job(ingest: Ingest) -> None:
    await ingest.send(make_batch())
    other = await make_ingest(ingest.application, "ads")
    assert (await ingest.send(make_batch(), token=other.token)).body == {"duplicate": False}
    jobs = [(job.team.name, job.name) async for job in Job.objects.select_related("team").order_by("pk")]
    assert jobs == [("research", "llama"), ("ads", "llama")]
    assert [n.batches async for n in Node.objects.all()] == [1, 1]


@pytest.mark.parametrize("length", [None, "", "-5", "many", "9" * 30])
async def test_without_a_length_it_is_411(ingest: Ingest, length: str | None) -> None:
    assert (await ingest.send(make_batch(), length=length)).status == 411


async def test_a_length_over_the_limit_is_413_before_anything_is_read(ingest: Ingest) -> None:
    reply = await ingest.post(b"", length=BATCH_BYTES_MAX + 1)
    assert reply.status == 413


async def test_more_bytes_than_declared_is_413(ingest: Ingest) -> None:
    assert (await ingest.post(b"", length=10, parts=[b"12345", b"678901"])).status == 413


async def test_a_body_that_does_not_arrive_is_408(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive, "READ_SECONDS", 0.05)

    async def never() -> dict[str, object]:
        await asyncio.Event().wait()
        return {}

    server = await ingest.application.server()
    headers = [(b"authorization", f"Bearer {ingest.token}".encode()), (b"content-length", b"10")]
    answer = await receive.answer_batch(server, {"headers": headers, "client": ("10.0.0.1", 1)}, never)
    assert answer.status == 408
    assert server.bytes_held == 0


BROKEN = {
    "magic": (lambda body: b"XXXX" + body[4:], "magic"),
    "version": (lambda body: body[:4] + b"\x09" + body[5:], "version 9.x is not supported"),
    "checksum": (lambda body: body[:-1] + bytes([body[-1] ^ 1]), "checksum mismatch"),
    "truncated": (lambda body: body[:40], "truncated"),
    "empty": (lambda body: b"", "truncated"),
    "promised size": (lambda body: body[:8] + struct.pack("<I", 2**32 - 1) + body[12:], "too large"),
    "text": (lambda body: b"hello", "truncated"),
}


@pytest.mark.parametrize("how", BROKEN)
async def test_a_broken_structure_is_400_with_the_reason_and_nothing_stored(ingest: Ingest, how: str) -> None:
    spoil, reason = BROKEN[how]
    reply = await ingest.post(spoil(encode_batch(make_batch())))
    assert reply.status == 400
    assert reason in reply.body["error"]
    assert await Job.objects.acount() == 0
    assert await aio(n_stored)() == 0


async def test_refused_batches_are_counted_for_their_team_and_node(ingest: Ingest) -> None:
    await ingest.send(make_batch())
    body = encode_batch(make_batch(number=1))
    await ingest.post(body[:-1] + bytes([body[-1] ^ 1]))
    await ingest.post(b"hello")
    await ingest.write_ledger()
    team, node = await Team.objects.aget(), await Node.objects.aget()
    assert (team.batches_refused, node.batches_refused, node.batches) == (2, 1, 1)
    assert "truncated" in team.last_refusal
    assert team.last_refused_at is not None


@pytest.mark.parametrize("anchor", [{"mono_ns": -1}, {"mono_ns": 2**60}, {"wall_ns": -5}, {"number": 2**63}])
async def test_anchors_that_cannot_be_are_400(ingest: Ingest, anchor: dict[str, int]) -> None:
    batch = replace(make_batch(), **anchor)
    assert (await ingest.send(batch, at_ns=make_batch().wall_ns)).status == 400
    assert await aio(n_stored)() == 0


async def test_impossible_rows_are_dropped_and_counted_and_the_rest_is_kept(ingest: Ingest) -> None:
    batch = make_batch()
    flow, op = batch.rows("flow").copy(), batch.rows("op").copy()
    flow["transport"][:3] = 99
    flow["tick_ns"][5] = batch.mono_ns + 3600 * 10**9
    op["bytes"][0] = 2**63
    reply = await ingest.send(with_rows(batch, flow=flow, op=op))
    assert (reply.status, reply.body) == (200, {"duplicate": False, "rows_dropped": 5})
    assert (await Node.objects.aget()).rows_dropped == 5


@pytest.mark.parametrize("error", [ValueError("no such place"), IntegrityError("refused"), DataError("out of range")])
async def test_a_batch_nobody_can_place_is_500_and_the_others_are_stored(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def find(arrivals: Sequence[Arrival]) -> list[Berth | Exception]:
        return [error if one.batch.node == "node-1" else find_berths([one])[0] for one in arrivals]

    await ingest.send(make_batch(node=1))
    (await ingest.application.server()).committer.berths.forget_all()
    monkeypatch.setattr("ingest.jobs.berths.find_berths", find)
    ingest.clock_ns = make_batch(number=1).wall_ns
    bodies = [encode_batch(make_batch(node=node, number=1)) for node in range(4)]
    replies = await asyncio.gather(*(ingest.post(body) for body in bodies))
    assert [reply.status for reply in replies] == [200, 500, 200, 200]
    assert str(error) in caplog.text
    await ingest.write_ledger()
    assert [n.batches_refused async for n in Node.objects.order_by("name")] == [0, 1, 0, 0]
    assert (await ingest.application.server()).ledger.requests_refused == {500: 1}


async def test_a_full_queue_is_429_with_retry_after(ingest: Ingest) -> None:
    server = await ingest.application.server()
    for task in server._tasks:
        task.cancel()
    body = encode_batch(make_batch())
    waiting = [asyncio.create_task(ingest.post(body)) for _ in range(WAITING_MAX)]
    await asyncio.sleep(0)
    while server.committer.n_waiting < WAITING_MAX:
        await asyncio.sleep(0.01)
    refused = await ingest.post(body)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    assert (refused.status, refused.headers["retry-after"]) == (429, "1")
    assert server.bytes_held == 0


async def test_more_memory_than_may_be_held_is_429(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive, "BYTES_HELD_MAX", 10_000)
    assert (await ingest.send(make_batch())).status == 429
    assert (await ingest.application.server()).bytes_held == 0


async def test_one_token_cannot_hold_all_the_memory_there_is(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    server = await ingest.application.server()
    other = await make_ingest(ingest.application, "ads")
    body = encode_batch(make_batch())
    mine = await AgentToken.objects.aget(team=ingest.team)
    each = len(body) + promised_bytes(body) * receive.DECODED_COPIES
    monkeypatch.setattr(receive, "BYTES_HELD_MAX", 40 * each)
    server.bytes_held = server.bytes_held_by[mine.pk] = 30 * each
    assert [(await one.post(body)).status for one in (ingest, other)] == [429, 200]
    server.bytes_held = server.bytes_held_by[mine.pk] = 0
    assert (await ingest.post(body)).status == 200
    assert (server.bytes_held, server.bytes_held_by.total()) == (0, 0)


async def test_a_promise_of_much_inflated_data_is_not_kept(ingest: Ingest) -> None:
    flow = make_batch().rows("flow")
    body = encode_batch(make_batch(tables={"flow": flow}))
    at = body.index(b"flow\0\0\0\0")
    directory_end = at + 14 + 14 + (flow.itemsize + 7) // 8
    bomb = zlib.compress(bytes(10**7), 9)
    section = body[at : at + 8] + struct.pack("<I", len(bomb)) + body[at + 12 : directory_end] + bomb
    rest = body[16:at] + section
    reply = await ingest.post(body[:12] + struct.pack("<I", zlib.crc32(rest)) + rest)
    assert reply.status == 400
    assert "inflated size" in reply.body["error"]


async def test_sections_are_stored_as_they_came(ingest: Ingest) -> None:
    batch = make_batch()
    body = encode_batch(batch)
    assert (await ingest.post(body)).status == 200
    stored = await aio(one_row)("SELECT ops, live, flow FROM ingest_trace_batch")
    for packed in stored:
        alone = bytes(packed)
        assert alone[alone.index(batch.node.encode()) + len(batch.node) :] in body


async def test_only_the_group_that_had_impossible_rows_is_packed_anew(ingest: Ingest) -> None:
    batch = make_batch()
    flow = batch.rows("flow").copy()
    flow["direction"][3] = 9
    body = encode_batch(with_rows(batch, flow=flow))
    assert (await ingest.post(body)).body["rows_dropped"] == 1
    ops, packed = (bytes(raw) for raw in await aio(one_row)("SELECT ops, flow FROM ingest_trace_batch"))
    assert ops[ops.index(batch.node.encode()) + len(batch.node) :] in body
    assert decode_batch(packed).rows("flow").tobytes() == np.delete(flow, 3).tobytes()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/ingest/health", 200),
        ("GET", "/ingest/batches", 405),
        ("OPTIONS", "/ingest/batches", 401),
        ("POST", "/ingest/health", 405),
        ("GET", "/", 404),
    ],
)
async def test_other_requests_are_told_apart(ingest: Ingest, method: str, path: str, status: int) -> None:
    assert (await ingest.request(method, path, {}, [b""])).status == status


async def test_a_knock_tells_whether_a_token_is_good_and_counts_as_no_batch(ingest: Ingest) -> None:
    for token, status in ((ingest.token, 200), ("dgn_wrong", 401)):
        headers = {"authorization": f"Bearer {token}"}
        assert (await ingest.request("OPTIONS", "/ingest/batches", headers, [b""])).status == status
    assert (await ingest.health())["requests_refused"] == {}


async def test_health_shows_what_was_stored_and_refused(ingest: Ingest) -> None:
    await ingest.send(make_batch())
    await ingest.post(b"hello")
    health = await ingest.health()
    assert (health["status"], health["batches_stored"], health["requests_refused"]) == ("ok", 1, {"400": 1})
    assert health["store"] == (await aio(active_store)()).name


async def test_tokens_are_kept_as_hashes_and_say_when_they_were_used(ingest: Ingest) -> None:
    await ingest.send(make_batch())
    await ingest.write_ledger()
    token = await AgentToken.objects.aget()
    assert ingest.token not in str(token.__dict__)
    assert token.last_used_at is not None
    second = await aio(make_agent_token)(ingest.team, "another")
    assert (await ingest.send(make_batch(number=1), token=second)).status == 200
