"""Bundles: brought as a zip, read by a process of its own, shown to their team; hostile ones are refused with a reason."""

from __future__ import annotations

import asyncio
import dataclasses
import io
import json
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import redis
from django.core.files.uploadedfile import SimpleUploadedFile
from django.utils import timezone

from console.accounts.models import Membership, Role
from console.asgi import application
from console.dumps import bundles, uploads
from console.dumps.models import Bundle
from console.dumps.reading import storable
from console.incidents.retention import UPKEEP_LOCK
from console.operations.alive import Note
from ingest.models import Team
from ingest.traces.database import connect
from tests.console.conftest import Persona
from tests.rca.flight_recorder.real import FOLDER
from tests.rca.stacks.real import raw_dumps


@pytest.fixture(autouse=True)
def folder(settings: Any, tmp_path: Path) -> Path:
    settings.BUNDLES_FOLDER = tmp_path / "bundles"
    return settings.BUNDLES_FOLDER


def zipped(*files: tuple[str, bytes]) -> bytes:
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return raw.getvalue()


def bring(who: Persona, raw: bytes, name: str = "dumps.zip") -> Any:
    return who.browser.post("/api/v1/bundles", {"file": SimpleUploadedFile(name, raw)}, format="multipart")


def get(who: Persona, key: str) -> Any:
    return who.browser.get(f"/api/v1/bundles/{key}")


def test_a_bundle_is_taken_in_read_and_diagnosed_for_its_own_team(
    responder: Persona, viewer: Persona, stranger: Persona, folder: Path
) -> None:
    brought = bring(responder, (FOLDER / "skip.zip").read_bytes())
    assert (brought.status_code, brought.json()["state"]) == (202, "waiting")
    key = brought.json()["id"]
    assert get(viewer, key).json()["diagnosis"] is None
    assert bundles.read(key)
    found = get(viewer, key).json()
    assert (found["state"], found["progress"], found["layer"]) == ("done", 1.0, "out of sync")
    assert found["diagnosis"]["findings"][0]["culprits"] == [3]
    assert found["stacks"] is None and found["recorder"]["groups"]
    assert any(said.startswith("No stacks") for said in found["agreement"])
    assert get(stranger, key).status_code == 404
    assert list(folder.iterdir()) == []


def test_text_that_the_database_does_not_take_ends_as_what_it_takes() -> None:
    said = {"a": "\0x\\u0000\ud800", "b": "\\\0"}
    kept = json.loads(storable(json.dumps(said)))
    assert kept == {"a": "\ufffdx\\u0000\ufffd", "b": "\\\ufffd"}


def test_what_is_brought_is_handed_to_a_worker(
    responder: Persona, settings: Any, django_capture_on_commit_callbacks: Any
) -> None:
    queue = redis.Redis.from_url(settings.REDIS_URL)
    before = queue.llen("celery")
    with django_capture_on_commit_callbacks(execute=True):
        key = bring(responder, zipped()).json()["id"]
    assert queue.llen("celery") == before + 1
    assert key in json.loads(queue.lindex("celery", 0))["headers"]["argsrepr"]


def test_a_bundle_that_nobody_reads_says_why(responder: Persona, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (bring(responder, zipped(("a", b"b"))).json()["id"] for _ in range(2))
    worker = Note("worker", "h", 1, 0.0, 0.0, "", 0.0, False, {})
    said = {}
    for name, notes in (("away", None), ("no worker", [dataclasses.replace(worker, process="web")]), ("one", [worker])):
        monkeypatch.setattr(bundles, "read_alive", lambda notes=notes: notes)
        said[name] = [get(responder, key).json()["waits_for"] for key in (first, second)]
    assert said["away"][0].startswith("Valkey does not answer")
    assert said["no worker"][0].startswith("No worker runs, so nobody reads it")
    assert said["one"] == ["", "1 brought earlier is read first."]
    Bundle.objects.filter(key=first).update(state=Bundle.State.READING)
    assert get(responder, first).json()["waits_for"] == ""


def test_the_stacks_of_a_rank_in_a_bundle_are_told_against_the_majority_and_another_rank(
    responder: Persona, stranger: Persona
) -> None:
    key = bring(
        responder,
        zipped(*((f"{name[:-5]}/rank{name[1]}", raw) for name, raw in raw_dumps().items() if name.endswith("_1.json"))),
    ).json()["id"]
    bundles.read(key)
    found = responder.browser.get(f"/api/v1/bundles/{key}/stacks/1").json()
    trainer = next(one for one in found["processes"] if one["kind"] == "trainer")
    assert "dataloader.py" in trainer["looks"][0]["text"] and {"+", "-"} <= {
        one["op"] for one in trainer["against_majority"]
    }
    same = responder.browser.get(f"/api/v1/bundles/{key}/stacks/0?against=2").json()
    assert all(one["op"] == " " for process in same["processes"] for one in process["against_majority"])
    assert responder.browser.get(f"/api/v1/bundles/{key}/stacks/77").status_code == 404
    assert stranger.browser.get(f"/api/v1/bundles/{key}/stacks/1").status_code == 404


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"this is no archive", "no zip archive that can be read"),
        (zipped(("notes.txt", b"hello")), "holds no dump that can be read"),
        (zipped(("dump_0", b"\x80\x04cposix\nsystem\n.")), "which a Flight Recorder dump never does"),
        (zipped(("../../etc/rank0", b"{}")), "leads out of the archive"),
    ],
)
def test_what_holds_no_dump_is_refused_with_the_reason_and_no_path_of_ours(
    responder: Persona, folder: Path, raw: bytes, said: str
) -> None:
    key = bring(responder, raw, "evil.zip").json()["id"]
    bundles.read(key)
    found = get(responder, key).json()
    assert found["state"] == "refused" and said in found["refused"]
    assert str(folder) not in found["refused"] and found["diagnosis"] is None


def test_viewers_and_other_forms_are_refused_and_a_team_brings_a_few_at_once(
    responder: Persona, viewer: Persona, admin: Persona
) -> None:
    assert bring(viewer, zipped()).status_code == 403
    assert responder.browser.post("/api/v1/bundles", {"fill": "x"}, format="multipart").status_code == 400
    assert responder.browser.post("/api/v1/bundles", {"file": "x"}, format="json").status_code == 415
    for _ in range(bundles.WAITING_MAX):
        assert bring(responder, zipped()).status_code == 202
    refused = bring(admin, zipped())
    assert (refused.status_code, refused.json()["code"]) == (429, "too_many")


def test_a_day_later_it_is_forgotten_and_one_whose_reading_was_interrupted_says_so(
    responder: Persona, folder: Path
) -> None:
    old, lost = (bring(responder, zipped()).json()["id"] for _ in range(2))
    Bundle.objects.filter(key=old).update(brought_at=timezone.now() - timedelta(hours=25))
    Bundle.objects.filter(key=lost).update(state="reading", reading_since=timezone.now() - timedelta(hours=1))
    bundles.tidy()
    assert get(responder, old).status_code == 404
    assert "interrupted" in get(responder, lost).json()["refused"]
    assert [path.stem for path in folder.iterdir()] == [lost]


def test_a_bundle_that_waited_long_is_read_to_its_end(responder: Persona, monkeypatch: pytest.MonkeyPatch) -> None:
    key = bring(responder, zipped()).json()["id"]
    Bundle.objects.filter(key=key).update(brought_at=timezone.now() - timedelta(hours=1))
    ran = bundles._run
    monkeypatch.setattr(bundles, "_run", lambda path, told: (bundles.tidy(), ran(FOLDER / "skip.zip", told))[1])
    assert bundles.read(key)
    assert get(responder, key).json()["state"] == "done"


def test_what_was_called_lost_stays_so_when_its_reader_comes_back(
    responder: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = bring(responder, zipped()).json()["id"]

    def slowly(path: Path, told: Any) -> tuple[bytes, str]:
        Bundle.objects.filter(key=key).update(reading_since=timezone.now() - timedelta(hours=1))
        bundles.tidy()
        return b"{}", ""

    monkeypatch.setattr(bundles, "_run", slowly)
    assert bundles.read(key)
    assert "interrupted" in get(responder, key).json()["refused"]


def test_of_many_workers_asked_for_a_bundle_one_goes_on_asking_and_nobody_else_is_asked(
    responder: Persona, settings: Any
) -> None:
    queue, key = redis.Redis.from_url(settings.REDIS_URL), bring(responder, zipped()).json()["id"]
    Bundle.objects.filter(key=key).update(asked_at=timezone.now() - timedelta(seconds=bundles.AGAIN_SECONDS))
    with connect() as other:
        other.execute("SELECT pg_advisory_lock(%s)", [UPKEEP_LOCK])
        assert [bundles.read(key) for _ in range(3)] == [False, True, True]
    before = queue.llen("celery")
    bundles.tidy()
    assert queue.llen("celery") == before
    Bundle.objects.filter(key=key).update(asked_at=timezone.now() - timedelta(hours=1))
    bundles.tidy()
    bundles.tidy()
    assert queue.llen("celery") == before + 1


def test_who_acts_for_several_teams_says_for_which(responder: Persona, stranger: Persona, team: Team) -> None:
    others = Team.objects.get(name="others")
    Membership.objects.create(user=responder.user, team=others, role=Role.RESPONDER)
    unnamed = bring(responder, zipped())
    assert unnamed.status_code == 400 and "(others, training)" in unnamed.json()["error"]
    file = SimpleUploadedFile("dumps.zip", zipped())
    named = responder.browser.post("/api/v1/bundles", {"file": file, "team": "others"}, format="multipart")
    assert named.status_code == 202
    assert Bundle.objects.get().team == others


PATH = "/api/v1/bundles"
SAID = b"content-length"


async def through(
    door: Any, *headers: tuple[bytes, bytes], method: str = "POST", path: str = PATH, n_pieces: int = 0
) -> tuple[int, Any, int]:
    """(status, what was said, how many pieces of 64 KiB were read of the request's body)."""
    answer: list[Any] = []
    n_read = 0
    scope = {
        "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"", "root_path": "",
        "headers": [(b"host", b"localhost"), *headers], "scheme": "http", "http_version": "1.1", "client": ("::1", 1),
        "server": ("localhost", 80), "asgi": {"version": "3.0"},
    }  # fmt: skip

    async def receive() -> Any:
        nonlocal n_read
        if n_read >= n_pieces:
            await asyncio.Event().wait()
        n_read += 1
        return {"type": "http.request", "body": b"x" * 2**16, "more_body": n_read < n_pieces}

    async def send(message: Any) -> None:
        answer.append(message)

    await door(scope, receive, send)
    said = b"".join(message.get("body", b"") for message in answer[1:])
    return answer[0]["status"], json.loads(said or b"{}"), n_read


async def never(scope: Any, receive: Any, send: Any) -> None:
    raise AssertionError("the body would be read")


@pytest.mark.django_db
async def test_no_body_is_read_of_strangers_nor_without_a_length_nor_of_one_that_is_too_large() -> None:
    door = uploads.Uploads(never)
    assert (await through(door))[0] == 411
    assert (await through(door, (SAID, str(2**30).encode())))[0] == 413
    status, said, _ = await through(door, (SAID, b"10"), (b"cookie", b"sessionid=guessed"))
    assert (status, said["code"]) == (401, "not_authenticated")


@pytest.mark.parametrize(("method", "path"), [("PUT", PATH), ("POST", "/signin"), ("GET", "/"), ("POST", "/nowhere")])
@pytest.mark.parametrize("length", [b"2621440", b"-1", b"", None])
async def test_elsewhere_no_more_than_a_mebibyte_of_a_body_is_read(
    method: str, path: str, length: bytes | None
) -> None:
    headers = [] if length is None else [(SAID, length)]
    status, said, n_read = await through(application, *headers, method=method, path=path, n_pieces=40)
    assert (status, said["code"]) == (413, "too_large")
    assert n_read == (0 if headers else uploads.BODY_BYTES_MAX // 2**16 + 1)


async def test_who_comes_while_others_are_still_asked_who_they_are_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    may_go = asyncio.Event()

    async def receives(scope: Any, receive: Any, send: Any) -> None:
        await may_go.wait()
        await send({"type": "http.response.start", "status": 202, "headers": []})

    monkeypatch.setattr(uploads, "_is_known", lambda headers: True)
    door = uploads.Uploads(receives)
    first, second, third = (asyncio.create_task(through(door, (SAID, b"10"))) for _ in range(3))
    assert (await third)[:2] == (
        503,
        {"error": "Other bundles are being received. Try again in a moment.", "code": "busy"},
    )
    may_go.set()
    assert [(await one)[0] for one in (first, second)] == [202, 202]
    assert (await through(door, (SAID, b"10")))[0] == 202
