"""Dumps of an incident: asked for when it opens, read when they come, fused into its diagnosis, shown to its own team only."""

from __future__ import annotations

import io
import zipfile
import zlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from celery.exceptions import SoftTimeLimitExceeded
from django.utils import timezone
from rest_framework.test import APIClient

from console.accounts.models import Role
from console.dumps import news, reading, taken_away
from console.dumps.models import DumpSummary
from console.incidents import tasks
from console.incidents.models import Incident, Look, SettingChange
from console.incidents.watching import watch
from console.incidents.watching.revise import revise_dumped
from ingest.door.dumps import drop_dumps_before, requests_of, store_dumps
from ingest.models import Attempt, DumpRequest, Job, PinnedWindow, Team
from ingest.traces.database import connect
from nccl_instrument.dumps import Dumps, Part
from rca.bundle.contents import read_contents
from rca.bundle.diagnosis import diagnose_bundle, dumped_in
from rca.bundle.unpack import Unpacked
from tests.console.conftest import make_persona
from tests.console.incidents.stalling import StallingJob
from tests.ingest.conftest import Ingest, ingest, no_traces
from tests.rca.stacks.real import raw_dumps

__all__ = ["ingest", "no_traces"]  # fixtures
PID = 4000


def trainers(n: int) -> dict[str, bytes]:
    """The real stacks of a trainer: `wait` in a collective, or `load` in its data loader."""
    named: dict[str, bytes] = {}
    for name, raw in raw_dumps().items():
        if name.endswith("_1.json") and b"_worker_loop" not in raw:
            named.setdefault("load" if name.startswith("r1_") else "wait", raw)
    assert len(named) == n
    return named


@pytest.fixture
async def job(ingest: Ingest, settings: Any) -> StallingJob:
    """A job whose normal is known."""
    settings.CLEAN_LOOK_SECONDS = 0.0
    job = StallingJob(ingest)
    for _ in range(4):
        await job.run(5)
        await look()
    return job


async def test_a_hang_asks_for_dumps_and_they_say_where_the_culprit_is(job: StallingJob) -> None:
    incident = await stall(job)
    request = (await of(incident))[0]
    assert (request.kinds, request.looks, request.asked_by) == (["recorder", "stacks"], 2, "")
    await answer(request, stuck=3)
    await look()
    await incident.arefresh_from_db()
    newest = await incident.revisions.alatest("number")
    assert newest.number == 2 and newest.culprits == [3]
    assert newest.verdict.startswith("Rank 3 is in the data loader, ") and "has not entered op" in newest.verdict
    assert newest.body["layer"] == "data loader"
    assert any(said.startswith("Collective layer, same culprit") for said in newest.body["agreement"])
    assert any("No flight recorder: no answer" in said for said in newest.body["agreement"])


async def test_a_diagnosis_waits_until_every_node_has_answered(job: StallingJob) -> None:
    incident = await stall(job)
    await answer((await of(incident))[0], stuck=3, nodes=(1,), is_all=False)
    await look()
    assert await incident.revisions.acount() == 1
    page = await get(await viewer(), f"incidents/{incident.pk}/stacks")
    assert sorted(rank for one in page["groups"] for rank in one["ranks"]) == [2, 3]
    assert page["silent_count"] == 6
    assert page["silent"][0] == {"rank": 0, "node": "node-0", "kind": "stacks", "why": "its node has not answered"}


async def test_what_came_is_kept_with_the_incidents_evidence_and_asked_for_once(job: StallingJob) -> None:
    incident = await stall(job)
    request = (await of(incident))[0]
    await answer(request, stuck=3)
    for _ in range(3):
        await job.run(1)
        await look()
    assert len(await of(incident)) == 1
    asked_ns = int(request.asked_at.timestamp() * 1e9)
    assert await PinnedWindow.objects.filter(start_ns__lte=asked_ns, end_ns__gt=asked_ns).aexists()
    assert await sync_to_async(drop_dumps_before)(timezone.now()) == 0
    await PinnedWindow.objects.all().adelete()
    assert await sync_to_async(drop_dumps_before)(timezone.now()) == 1


async def test_the_page_gets_requests_stacks_a_rank_and_the_recorder(job: StallingJob) -> None:
    incident = await stall(job)
    await answer((await of(incident))[0], stuck=3)
    await look()
    vera, at = await viewer(), f"incidents/{incident.pk}"
    told = await get(vera, f"{at}/dumps")
    assert [
        (one["state"], one["nodes_expected"], one["nodes_answered"], one["silent_count"]) for one in told["requests"]
    ] == [("answered", 4, 4, 8)]
    assert not told["can_ask"] and told["why_not"] == "Your role does not allow this."
    stacks = await get(vera, f"{at}/stacks")
    assert [(one["ranks"], one["is_dominant"]) for one in stacks["groups"]] == [
        ([0, 1, 2, 4, 5, 6, 7], True),
        ([3], False),
    ]
    assert [one["node"] for one in stacks["order"]["places"]] == [f"node-{rank // 2}" for rank in range(8)]
    (process,) = (await get(vera, f"{at}/stacks/3"))["processes"]
    assert len(process["looks"]) == 2 and {"+", "-"} <= {one["op"] for one in process["against_majority"]}
    recorder = await get(vera, f"{at}/recorder")
    assert recorder["groups"] == [] and recorder["silent"][0]["why"] == "no answer within the time"


async def test_what_came_can_be_taken_away_and_read_again_as_a_bundle(job: StallingJob, tmp_path: Path) -> None:
    incident = await stall(job)
    await answer((await of(incident))[0], stuck=3)
    team = await Team.objects.aget(pk=incident.team_id)
    rita = (await sync_to_async(make_persona)("rita", team, Role.RESPONDER)).browser
    file = tmp_path / "dumps.zip"
    sent = (await ask(rita, f"incidents/{incident.pk}/dumps.zip")).streaming_content
    file.write_bytes(b"".join([piece async for piece in sent]))
    assert (await ask(await viewer(), f"incidents/{incident.pk}/dumps.zip")).status_code == 403
    found = diagnose_bundle(dumped_in(read_contents(Unpacked(file))), "job")
    assert (found.culprits, found.layer) == ((3,), "data loader")


async def test_a_file_of_dumps_is_sent_part_by_part_with_ranks_nobody_else_told_of_up_to_a_limit(
    job: StallingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident = await stall(job)
    request = (await of(incident))[0]
    held = tuple(_part("stacks", rank, b"x" * 1000) for rank in (77, 78, 79))
    gone = _part("stacks", 80, b"", "its process is gone")
    for look_number, parts in ((1, (*held, gone)), (2, (gone,))):
        dumps = Dumps(request.attempt.job.name, "node-0", "ab" * 16, request.pk, look_number, parts)
        assert await sync_to_async(store_dumps)(request.attempt.job.team_id, dumps)
    monkeypatch.setattr(taken_away, "ALL_BYTES_MAX", 2500)
    pieces = await sync_to_async(lambda: list(taken_away.zipped(request)))()
    assert len(pieces) == 3, "one for each part, and the end"
    with zipfile.ZipFile(io.BytesIO(b"".join(pieces))) as archive:
        names = [f"stacks/rank{rank}_node-0_{PID + rank}_look1.json" for rank in (77, 78)]
        assert archive.namelist() == [*names, "silent.txt"]
        assert archive.read(names[0]) == b"x" * 1000
        left_out, gone_once = archive.read("silent.txt").decode().splitlines()
        assert left_out.startswith("stacks of rank 79 on node-0: left out") and gone_once.endswith(
            "its process is gone"
        )


async def test_dumps_that_take_long_to_read_stop_no_look(job: StallingJob, monkeypatch: pytest.MonkeyPatch) -> None:
    incident = await stall(job)
    await answer((await of(incident))[0], stuck=3)
    sent: list[int] = []
    monkeypatch.setattr(tasks.watch_dumps, "delay", sent.append)
    monkeypatch.setattr(news, "summarise", _too_slow)
    n_looks = await Look.objects.acount()
    await job.run(1)
    await sync_to_async(tasks.watch_job)(incident.attempt_id)
    assert sent == [incident.attempt_id], "they are read elsewhere"
    assert await Look.objects.acount() == n_looks + 1
    with pytest.raises(SoftTimeLimitExceeded):
        await sync_to_async(watch.watch_dumps)(incident.attempt_id)


async def test_a_look_leaves_dumps_that_take_long_to_read_to_who_reads_them(
    job: StallingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident = await stall(job)
    await answer((await of(incident))[0], stuck=3)
    monkeypatch.setattr(reading, "LOOK_BYTES_MAX", 0)
    reading._kept.clear()
    n_revisions = await incident.revisions.acount()
    await job.run(1)
    await sync_to_async(watch.watch_job)(incident.attempt_id)
    assert not reading._kept, "the look has read none"
    assert await incident.revisions.acount() == n_revisions
    assert await sync_to_async(reading.debt_of)(incident.attempt_id)
    await sync_to_async(watch.watch_dumps)(incident.attempt_id)
    newest = await incident.revisions.alast()
    assert newest is not None and newest.body["agreement"]
    assert not await sync_to_async(reading.debt_of)(incident.attempt_id)


async def test_a_worker_that_ends_before_the_diagnosis_is_stored_leaves_it_due(
    job: StallingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident = await stall(job)
    await answer((await of(incident))[0], stuck=3)

    def ends(incident: Incident) -> None:
        raise SystemExit

    with monkeypatch.context() as patched:
        patched.setattr(watch, "revise_dumped", ends)
        with pytest.raises(SystemExit):
            await sync_to_async(watch.watch_dumps)(incident.attempt_id)
    newest = await incident.revisions.alast()
    assert newest is None or not newest.body["agreement"]
    assert await sync_to_async(news.has_dumps)(incident.attempt_id)
    await sync_to_async(watch.watch_dumps)(incident.attempt_id)
    newest = await incident.revisions.alast()
    assert newest is not None and newest.body["agreement"]
    assert not await sync_to_async(reading.debt_of)(incident.attempt_id)


async def test_dumps_of_an_ended_attempt_are_read_though_who_was_told_to_came_too_late(
    job: StallingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident = await stall(job)
    (request,) = await of(incident)
    await answer(request, stuck=3)
    await Attempt.objects.aupdate(state=Attempt.State.ENDED, ended_at=timezone.now())
    await DumpRequest.objects.aupdate(asked_at=timezone.now() - news.LIFE - news.LATE - timedelta(seconds=60))
    looked: list[int] = []
    told: list[int] = []
    monkeypatch.setattr(tasks.watch_job, "delay", looked.append)
    monkeypatch.setattr(tasks.watch_dumps, "delay", told.append)
    await sync_to_async(tasks.watch_all_jobs)()
    await sync_to_async(tasks.watch_job)(incident.attempt_id)
    assert (looked, told) == ([incident.attempt_id], [incident.attempt_id])
    await sync_to_async(watch.watch_dumps)(incident.attempt_id)
    assert (await DumpSummary.objects.aget(request=request.pk)).is_ripe
    await sync_to_async(tasks.watch_all_jobs)()
    await sync_to_async(tasks.watch_job)(incident.attempt_id)
    assert (looked, told) == ([incident.attempt_id], [incident.attempt_id]), "they were read"


async def test_what_is_owed_while_a_diagnosis_is_made_stays_due(
    job: StallingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    incident = await stall(job)
    await answer((await of(incident))[0], stuck=3)

    def meanwhile(incident: Incident) -> None:
        revise_dumped(incident)
        reading.owe(incident.attempt_id)

    monkeypatch.setattr(watch, "revise_dumped", meanwhile)
    await sync_to_async(watch.watch_dumps)(incident.attempt_id)
    assert await sync_to_async(reading.debt_of)(incident.attempt_id)


def _too_slow(request: DumpRequest, *_: Any, **__: Any) -> None:
    with connect() as other:
        (is_free,) = other.execute(
            "SELECT pg_try_advisory_lock(%s, %s)", [watch.WATCH_LOCK, request.attempt_id]
        ).fetchone()
    assert is_free, "a look may be taken meanwhile"
    raise SoftTimeLimitExceeded


async def test_other_teams_see_none_of_it_and_viewers_may_not_ask(job: StallingJob) -> None:
    incident = await stall(job)
    sten = (await sync_to_async(make_persona)("sten", await Team.objects.acreate(name="others"), Role.ADMIN)).browser
    vera = await viewer()
    for path in ("dumps", "stacks", "stacks/3", "recorder"):
        for root in (f"incidents/{incident.pk}", f"jobs/{incident.job_id}"):
            assert (await ask(sten, f"{root}/{path}")).status_code == 404
            assert (await ask(vera, f"{root}/{path}")).status_code == 200
    assert (await ask(sten, f"incidents/{incident.pk}/dumps", {})).status_code == 404
    assert (await ask(vera, f"incidents/{incident.pk}/dumps", {})).status_code == 403


async def test_a_responder_asks_again_and_is_told_why_not_now(job: StallingJob) -> None:
    incident = await stall(job)
    team = await Team.objects.aget(pk=incident.team_id)
    rita = (await sync_to_async(make_persona)("rita", team, Role.RESPONDER)).browser
    refused = await ask(rita, f"incidents/{incident.pk}/dumps", {})
    assert (refused.status_code, "under way" in refused.json()["error"]) == (429, True)
    await answer((await of(incident))[0], stuck=3)
    made = await ask(rita, f"incidents/{incident.pk}/dumps", {"kinds": ["stacks"], "ranks": [3], "request_key": "k"})
    assert (made.status_code, made.json()["kinds"], made.json()["asked_by"]) == (201, ["stacks"], "rita")
    same = await ask(rita, f"incidents/{incident.pk}/dumps", {"kinds": ["stacks"], "ranks": [3], "request_key": "k"})
    assert (same.status_code, same.json()["id"]) == (201, made.json()["id"])
    assert (await ask(rita, f"incidents/{incident.pk}/dumps", {"kinds": ["core"]})).status_code == 400
    assert [one.verb async for one in incident.timeline.order_by("id")].count("asked for dumps") == 2


async def test_a_job_without_an_incident_is_asked_too(job: StallingJob) -> None:
    found = await Job.objects.aget()
    rita = (
        await sync_to_async(make_persona)("rita", await Team.objects.aget(pk=found.team_id), Role.RESPONDER)
    ).browser
    made = await ask(rita, f"jobs/{found.pk}/dumps", {})
    assert made.status_code == 201
    await answer(await DumpRequest.objects.aget(), stuck=-1)
    await look()
    assert len((await get(rita, f"jobs/{found.pk}/stacks"))["groups"]) == 1
    assert not await Incident.objects.aexists()


async def test_stacks_in_a_checkpoint_explain_an_idle_job_so_that_nobody_is_woken(job: StallingJob) -> None:
    change = {"actor": "rita", "actor_kind": "user", "name": "idle_s", "after": 10.0, "reason": "a test"}
    await SettingChange.objects.acreate(job=await Job.objects.aget(), at=timezone.now(), **change)
    job.idle()
    await job.run(15)
    await look()
    incident = await Incident.objects.aget()
    (request,) = await of(incident)
    assert (request.kinds, incident.pages) == (["stacks"], False)
    await answer(request, stuck=-1, raw=SAVING)
    for _ in range(2):
        await job.run(20)
        await look()
    await incident.arefresh_from_db()
    assert (incident.condition, incident.pages) == ("clear", False)


SAVING = (
    b'[{"pid": 1, "thread_id": 1, "thread_name": "MainThread", "os_thread_id": 1, "active": true, "owns_gil": false, "frames": ['
    b'{"name": "_save", "filename": "/x/site-packages/torch/serialization.py", "short_filename": null, "line": 900},'
    b'{"name": "main", "filename": "train.py", "short_filename": null, "line": 9}]}]'
)


async def answer(
    request: DumpRequest, stuck: int, nodes: tuple[int, ...] = (0, 1, 2, 3), raw: bytes = b"", is_all: bool = True
) -> None:
    """Every node answers both looks: its ranks wait, `stuck` loads; no recorder answers."""
    await sync_to_async(_answer)(request, stuck, nodes, raw)
    if is_all:
        await DumpRequest.objects.filter(pk=request.pk).aupdate(state="answered")  # as ingest's own process does


def _answer(request: DumpRequest, stuck: int, nodes: tuple[int, ...], raw: bytes) -> None:
    stacks = trainers(2)
    attempt = request.attempt
    for look_number in (1, 2):
        for node in nodes:
            parts = []
            for rank in (2 * node, 2 * node + 1):
                said = raw or stacks["load" if rank == stuck else "wait"]
                parts.append(_part("stacks", rank, said))
                if "recorder" in request.kinds and look_number == 1:
                    parts.append(_part("recorder", rank, b"", "no answer within the time"))
            dumps = Dumps(attempt.job.name, f"node-{node}", "ab" * 16, request.pk, look_number, tuple(parts))
            assert store_dumps(attempt.job.team_id, dumps)


def _part(kind: str, rank: int, raw: bytes, silent: str = "") -> Part:
    return Part(
        kind, rank, PID + rank, 0, "python train.py", 1_000, silent, "", len(raw), zlib.compress(raw) if raw else b""
    )


async def stall(job: StallingJob) -> Incident:
    job.stall()
    await job.run(5)
    await look()
    return await Incident.objects.aget()


async def of(incident: Incident) -> list[DumpRequest]:
    found = await sync_to_async(requests_of)(incident.attempt_id)
    return [await DumpRequest.objects.select_related("attempt__job").aget(pk=one.pk) for one in found]


async def look() -> None:
    """A look, and what is done beside it."""
    attempt = await Attempt.objects.alatest("pk")
    await sync_to_async(watch.watch_job)(attempt.pk)
    await sync_to_async(watch.watch_dumps)(attempt.pk)


async def viewer() -> APIClient:
    team = await Team.objects.aget(jobs__isnull=False)
    return (await sync_to_async(make_persona)("vera", team, Role.VIEWER)).browser


async def ask(browser: APIClient, path: str, body: Any = None) -> Any:
    if body is None:
        return await sync_to_async(browser.get)(f"/api/v1/{path}")
    return await sync_to_async(browser.post)(f"/api/v1/{path}", body, format="json")


async def get(browser: APIClient, path: str) -> Any:
    found = await ask(browser, path)
    assert found.status_code == 200, found.content
    return found.json()
