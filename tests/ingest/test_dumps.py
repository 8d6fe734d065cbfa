"""Dumps asked for, told in answers to batches, taken once, kept within limits, and refused with a reason when they are wrong."""

from __future__ import annotations

import random
from dataclasses import replace
from datetime import timedelta

import pytest
from asgiref.sync import sync_to_async
from django.utils import timezone

from ingest.door import limits
from ingest.door.dumps import TooSoon, ask_dumps, bytes_of, parts_of, progress_of, requests_of, why_not
from ingest.door.marks import take_dumped
from ingest.models import Attempt, DumpRequest, PinnedWindow, StoredDump
from ingest.traces.let_go import read_let_go
from ingest.traces.retention import dump_age, keep_house
from nccl_instrument.dumps import BODY_BYTES_MAX, EPOCHS, RECORDER, STACKS, Dumps, Part, encode_dumps
from tests.builders import FakeJob, boot_id
from tests.ingest.conftest import Ingest, Reply, make_ingest

JOB = FakeJob(ranks=4, nodes=2)
aio = sync_to_async
ask, progress = aio(ask_dumps), aio(progress_of)
parts, requests = aio(parts_of), aio(requests_of)


async def started(ingest: Ingest) -> int:
    """The attempt of a job that has sent its first second."""
    for node in range(2):
        await ingest.send(JOB.batch(node))
    take_dumped()
    return (await Attempt.objects.aget()).pk


async def told(ingest: Ingest, node: int, number: int) -> list[dict[str, object]]:
    """What the node is asked for in the answer to this batch."""
    await (await ingest.application.server()).read_orders()
    found: list[dict[str, object]] = (await ingest.send(JOB.batch(node, number))).body.get("dumps", [])
    return found


def part(rank: int, kind: str = STACKS, raw: bytes = b"[]", silent: str = "") -> Part:
    return Part(kind, rank, JOB.pid(rank), 0, "python train.py", 5, silent, "py-spy").holding(raw)


def answer(request: int, node: int, look: int = 1, *held: Part) -> Dumps:
    made = held or tuple(part(rank) for rank in JOB.ranks_of(node))
    return Dumps(JOB.name, f"node-{node}", boot_id(node).hex(), request, look, made)


async def post(ingest: Ingest, body: Dumps | bytes, token: str = "") -> Reply:
    raw = body if isinstance(body, bytes) else encode_dumps(body)
    headers = {"authorization": f"Bearer {token or ingest.token}", "content-length": str(len(raw))}
    return await ingest.request("POST", "/ingest/dumps", headers, [raw])


async def test_a_node_is_asked_until_it_has_answered_every_look(ingest: Ingest) -> None:
    attempt = await started(ingest)
    assert await told(ingest, 0, 1) == []
    request = await ask(attempt, [STACKS, RECORDER], [0, 3], looks=2, asked_by="ada")
    order = {"request": request.pk, "kinds": ["recorder", "stacks"], "ranks": [0, 3], "looks": 2, "apart_s": 2.0}
    assert await told(ingest, 0, 2) == [order]
    assert (await post(ingest, answer(request.pk, 0, 1))).body == {"duplicate": False}
    assert await told(ingest, 0, 3) == [order]
    await post(ingest, answer(request.pk, 0, 2))
    assert await told(ingest, 0, 4) == []
    assert await told(ingest, 1, 2) == [order]


async def test_what_came_is_read_back_and_counted(ingest: Ingest) -> None:
    attempt = await started(ingest)
    request = await ask(attempt, [STACKS], looks=1)
    await post(ingest, answer(request.pk, 0, 1, part(0, raw=b"stacks of 0"), part(1, raw=b"", silent="not permitted")))
    assert [(one.rank, one.raw, one.silent, one.node) for one in await parts([request.pk])] == [
        (0, b"stacks of 0", "", "node-0"), (1, b"", "not permitted", "node-0"),
    ]  # fmt: skip
    found = await progress(request.pk)
    assert (found.nodes_expected, found.nodes_answered, found.ranks_answered, found.silent_count) == (2, 1, 1, 3)
    assert [(one.rank, one.node, one.why) for one in found.silent] == [
        (1, "node-0", "not permitted"), (2, "node-1", "its node has not answered"), (3, "node-1", "its node has not answered"),
    ]  # fmt: skip
    assert await aio(take_dumped)() == {request.pk}


async def test_a_request_closes_when_all_nodes_of_its_ranks_have_answered(ingest: Ingest) -> None:
    attempt = await started(ingest)
    request = await ask(attempt, [STACKS], [2], looks=1)
    await post(ingest, answer(request.pk, 1))
    await told(ingest, 0, 1)
    assert (await requests(attempt))[0].state == DumpRequest.State.ANSWERED
    assert (await progress(request.pk)).nodes_expected == 1


async def test_a_request_that_nobody_answers_expires_and_is_told_no_more(ingest: Ingest) -> None:
    attempt = await started(ingest)
    request = await ask(attempt)
    await DumpRequest.objects.aupdate(expires_at=timezone.now() - timedelta(seconds=1))
    assert await told(ingest, 0, 1) == []
    assert (await requests(attempt))[0].state == DumpRequest.State.EXPIRED
    assert (await post(ingest, answer(request.pk, 0))).status == 200  # it was on the way
    await DumpRequest.objects.aupdate(expires_at=timezone.now() - timedelta(minutes=2))
    late = await post(ingest, answer(request.pk, 1))
    assert (late.status, late.body["error"]) == (410, "nobody asked this node for these dumps, or it was too long ago")


async def test_one_request_at_a_time_and_for_the_program_one_a_minute(ingest: Ingest) -> None:
    attempt = await started(ingest)
    await ask(attempt)
    with pytest.raises(TooSoon, match="under way"):
        await ask(attempt, asked_by="ada")
    await DumpRequest.objects.aupdate(state=DumpRequest.State.ANSWERED)
    with pytest.raises(TooSoon, match="ago"):
        await ask(attempt)
    await ask(attempt, asked_by="ada")
    await Attempt.objects.aupdate(state=Attempt.State.ENDED, ended_at=timezone.now())
    assert "ended" in await aio(why_not)(attempt, by_person=True)


@pytest.mark.parametrize(
    ("kinds", "ranks", "looks"), [([], None, 1), (["core"], None, 1), ([STACKS], [], 1), ([STACKS], [-1], 1), ([STACKS], None, 3)]
)  # fmt: skip
async def test_what_cannot_be_asked_is_said(
    ingest: Ingest, kinds: list[str], ranks: list[int] | None, looks: int
) -> None:
    attempt = await started(ingest)
    with pytest.raises(ValueError, match=r"kinds are|name 1 to"):
        await ask(attempt, kinds, ranks, looks=looks)


async def test_an_answer_that_comes_twice_is_kept_once(ingest: Ingest) -> None:
    request = await ask(await started(ingest), looks=2)
    assert [(await post(ingest, answer(request.pk, 0))).body for _ in range(2)] == [
        {"duplicate": False},
        {"duplicate": True},
    ]
    assert await StoredDump.objects.acount() == 2
    other_life = replace(answer(request.pk, 0), boot=boot_id(0, life=1).hex())
    assert (await post(ingest, other_life)).body == {"duplicate": False}


async def test_only_the_team_job_and_nodes_that_were_asked_may_answer(ingest: Ingest) -> None:
    request = await ask(await started(ingest), looks=1)
    other = await make_ingest(ingest.application, "others")
    asked = answer(request.pk, 0)
    assert (await post(ingest, asked, token=other.token)).status == 410
    for wrong in (replace(asked, job="other"), replace(asked, node="node-9"), replace(asked, look=2)):
        assert (await post(ingest, wrong)).status == 410
    assert (await post(ingest, asked, token="guessed")).status == 401
    assert await StoredDump.objects.acount() == 0


async def test_bodies_that_are_wrong_are_refused_before_anything_is_kept(ingest: Ingest) -> None:
    request = await ask(await started(ingest), looks=1)
    good = encode_dumps(answer(request.pk, 0))
    for wrong, status in (
        (b"", 400),
        (b"DGTB" + good[4:], 400),
        (good[:-2], 400),
        (good[:40] + b"\0" * 9 + good[49:], 400),
    ):
        reply = await post(ingest, wrong)
        assert (reply.status, bool(reply.body["error"])) == (status, True)
    headers = {"authorization": f"Bearer {ingest.token}"}
    assert (await ingest.request("POST", "/ingest/dumps", headers, [good])).status == 411
    large = headers | {"content-length": str(BODY_BYTES_MAX + 1)}
    assert (await ingest.request("POST", "/ingest/dumps", large, [good])).status == 413
    longer = headers | {"content-length": "10"}
    assert (await ingest.request("POST", "/ingest/dumps", longer, [good])).status == 413
    assert (await ingest.request("GET", "/ingest/dumps", headers, [b""])).status == 405
    assert await StoredDump.objects.acount() == 0


async def test_the_agents_of_sixty_four_ranks_on_a_node_answer_at_once(ingest: Ingest) -> None:
    request = await ask(await started(ingest), looks=1)
    held = tuple(
        replace(part(0, kind, raw=b"x" * 1000), rank=rank) for rank in range(64) for kind in (STACKS, RECORDER)
    )
    assert (await post(ingest, answer(request.pk, 0, 1, *held))).status == 200
    assert (await progress(request.pk)).ranks_answered == 64


async def test_beyond_its_size_a_request_keeps_the_reason_and_then_nothing(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DUMP_REQUEST_BYTES_MAX", 5000)
    request = await ask(await started(ingest), looks=2)
    noise = random.Random(2).randbytes(2000)
    first = (part(0, raw=noise), part(1, raw=noise))
    assert (await post(ingest, answer(request.pk, 0, 1, *first))).status == 200
    assert [(one.length, one.silent[:8]) for one in await parts([request.pk])] == [(2000, ""), (0, "left out")]
    many = (part(0, raw=b""),) * 10
    full = await post(ingest, answer(request.pk, 0, 2, *many))
    assert (full.status, "no more are kept" in full.body["error"]) == (413, True)
    assert (await DumpRequest.objects.aget()).left_out == 1


async def test_epochs_leave_room_for_the_stacks_of_nodes_that_answer_late(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DUMP_REQUEST_BYTES_MAX", 20_000)
    monkeypatch.setattr(limits, "DUMP_EPOCHS_BYTES_MAX", 9_000)
    request = await ask(await started(ingest), [STACKS, EPOCHS], looks=1)
    noise = random.Random(2).randbytes(2000)
    for node in range(2):
        held = [part(rank, kind, noise) for kind in (STACKS, EPOCHS) for rank in JOB.ranks_of(node)]
        assert (await post(ingest, answer(request.pk, node, 1, *held))).status == 200
    stored = await parts([request.pk], kinds=[STACKS, EPOCHS])
    assert [one.length for one in stored if one.kind == STACKS] == [2000] * 4
    assert [one.length for one in stored if one.kind == EPOCHS] == [2000, 0, 0, 0]
    assert await aio(bytes_of)([request.pk]) == sum(len(one.packed) for one in stored if one.kind == STACKS)


async def test_the_oldest_requests_of_a_team_make_room_and_old_ones_go(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempt = await started(ingest)
    request = await ask(attempt, looks=1)
    await post(ingest, answer(request.pk, 0))
    await DumpRequest.objects.aupdate(state=DumpRequest.State.ANSWERED)
    before = (await aio(read_let_go)())["dumps"]
    monkeypatch.setattr(limits, "DUMP_TEAM_BYTES_MAX", limits.DUMP_REQUEST_BYTES_MAX)
    second = await ask(attempt, asked_by="ada")
    assert [one.pk for one in await requests(attempt)] == [second.pk]
    with pytest.raises(TooSoon, match="under way"):
        await ask(attempt, asked_by="ada")
    await aio(keep_house)(timezone.now() + dump_age() + timedelta(days=1))
    assert await requests(attempt) == []
    assert await StoredDump.objects.acount() == 0
    assert (await aio(read_let_go)())["dumps"] == before + 2


async def test_evidence_makes_no_room_for_new_requests(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = await started(ingest)
    kept = await ask(attempt, looks=1)
    await post(ingest, answer(kept.pk, 0))
    await DumpRequest.objects.aupdate(state=DumpRequest.State.ANSWERED)
    asked_ns = int(kept.asked_at.timestamp() * 1e9)
    window = {"start_ns": asked_ns, "end_ns": asked_ns + 1_000_000}
    pinned = await PinnedWindow.objects.acreate(attempt_id=attempt, **window)
    n_bytes = (await DumpRequest.objects.aget()).bytes
    monkeypatch.setattr(limits, "DUMP_TEAM_BYTES_MAX", limits.DUMP_REQUEST_BYTES_MAX + n_bytes)
    other = await ask(attempt, asked_by="ada")
    await DumpRequest.objects.filter(pk=other.pk).aupdate(state=DumpRequest.State.ANSWERED, bytes=1)
    third = await ask(attempt, asked_by="ada")
    assert [one.pk for one in await requests(attempt)] == [third.pk, kept.pk], "not the oldest"
    await DumpRequest.objects.filter(pk=third.pk).adelete()
    monkeypatch.setattr(limits, "DUMP_TEAM_BYTES_MAX", limits.DUMP_REQUEST_BYTES_MAX)
    before = (await aio(read_let_go)())["dumps_refused"]
    with pytest.raises(TooSoon, match="incidents of this team"):
        await ask(attempt, asked_by="ada")
    assert (await aio(read_let_go)())["dumps_refused"] == before + 1
    await pinned.adelete()
    await ask(attempt, asked_by="ada")


async def test_what_is_narrowed_is_all_that_is_read(ingest: Ingest) -> None:
    request = await ask(await started(ingest), looks=2)
    for look in (1, 2):
        held = [part(rank, kind, f"{rank} {kind} {look}".encode()) for rank in (0, 1) for kind in (STACKS, RECORDER)]
        await post(ingest, answer(request.pk, 0, look, *held))
    narrow = await aio(parts_of)([request.pk], kinds=[STACKS], ranks=[1], looks=[2])
    assert [one.raw for one in narrow] == [b"1 stacks 2"]
