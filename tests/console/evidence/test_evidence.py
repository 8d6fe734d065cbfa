"""Evidence bundles: built by a worker, whole or not at all, the same diagnosis elsewhere, and nobody else's."""

from __future__ import annotations

import io
import json
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import async_to_sync, sync_to_async
from django.utils import timezone

from console.accounts.models import Role
from console.celery import app
from console.evidence import building, parts, tasks
from console.evidence.models import EvidenceBundle
from console.incidents.lifecycle import BadAct
from console.incidents.models import Incident
from console.incidents.watching import watch
from ingest.models import Attempt
from rca.bundle.contents import read_contents
from rca.bundle.evidence import evidence_among
from rca.bundle.evidence_command import main as of_evidence
from rca.bundle.unpack import Unpacked
from rca.saved_window import main
from tests.console.conftest import Persona, make_persona
from tests.console.dumps.test_dumps import answer, look, of, stall
from tests.console.evidence.trace_format import check_trace
from tests.console.incidents.making import make_incident
from tests.console.incidents.stalling import StallingJob
from tests.ingest.conftest import Ingest, ingest, no_traces

__all__ = ["ingest", "no_traces"]  # fixtures


@pytest.fixture(autouse=True)
def own_folder(settings: Any, tmp_path: Path) -> None:
    settings.EVIDENCE_FOLDER = tmp_path / "evidence"


@pytest.fixture
def worker(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What a worker was asked to build."""
    asked: list[int] = []
    monkeypatch.setattr(app, "send_task", lambda name, args: asked.append(args[0]))
    return asked


def ask(persona: Persona, incident: Incident) -> Any:
    return persona.browser.post(f"/api/v1/incidents/{incident.pk}/evidence")


def taken(persona: Persona, incident: Incident, bundle: int) -> zipfile.ZipFile:
    answer = persona.browser.get(f"/api/v1/incidents/{incident.pk}/evidence/{bundle}")
    assert answer.status_code == 200, answer.content

    async def body() -> bytes:
        return b"".join([piece async for piece in answer.streaming_content])

    return zipfile.ZipFile(io.BytesIO(async_to_sync(body)()))


@pytest.mark.django_db(transaction=True)
def test_nobody_elses_and_viewers_only_look(
    attempt: Attempt, worker: list[int], responder: Persona, viewer: Persona, stranger: Persona
) -> None:
    incident = make_incident(attempt)
    assert ask(stranger, incident).status_code == 404
    assert ask(viewer, incident).status_code == 403
    made = ask(responder, incident)
    assert made.status_code == 202 and made.json()["state"] == "waiting"
    assert worker == [made.json()["id"]]
    tasks.build_evidence(made.json()["id"])
    at = f"/api/v1/incidents/{incident.pk}"
    assert viewer.browser.get(f"{at}/evidence").json()["bundles"][0]["state"] == "done"
    file = f"{at}/evidence/{made.json()['id']}"
    asked = [one.browser.get(file).status_code for one in (responder, viewer, stranger)]
    assert asked == [200, 403, 404]
    assert [stranger.browser.get(f"{at}/{what}").status_code for what in ("evidence", "post-mortem")] == [404, 404]
    other = make_incident(Attempt.objects.create(
        job=attempt.job, number=1, world_size=8, started_at=timezone.now(), last_received_at=timezone.now(), state="ended",
        ended_at=timezone.now(),
    ), key="another")  # fmt: skip
    assert responder.browser.get(f"/api/v1/incidents/{other.pk}/evidence/{made.json()['id']}").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_asking_twice_is_one_bundle_and_of_an_incident_few_are_kept(
    attempt: Attempt, worker: list[int], responder: Persona
) -> None:
    incident = make_incident(attempt)
    assert ask(responder, incident).json()["id"] == ask(responder, incident).json()["id"]
    assert len(worker) == 1
    for _ in range(building.PER_INCIDENT_MAX + 2):
        building.build(ask(responder, incident).json()["id"])
    assert EvidenceBundle.objects.count() == building.PER_INCIDENT_MAX
    assert len(list(building.folder().glob("*.zip"))) == building.PER_INCIDENT_MAX


@pytest.mark.django_db(transaction=True)
def test_what_cannot_be_made_is_left_out_with_the_reason_and_the_rest_is_there(
    attempt: Attempt, worker: list[int], responder: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_large(archive: parts.Archive, incident: Incident) -> None:
        raise BadAct("A window of this job may have 1 to 3 seconds.")

    monkeypatch.setattr(building, "PARTS", (("traces", 0.5, too_large), *parts.PARTS[:2]))
    incident = make_incident(attempt)
    building.build(ask(responder, incident).json()["id"])
    (row,) = responder.browser.get(f"/api/v1/incidents/{incident.pk}/evidence").json()["bundles"]
    assert row["left_out"] == ["traces: A window of this job may have 1 to 3 seconds.", "diagnoses: there is none yet"]
    file = taken(responder, incident, row["id"])
    assert json.loads(file.read("MANIFEST.json"))["left_out"] == row["left_out"]
    assert {"incident.json", "timeline.json", "README.md"} < set(file.namelist())


@pytest.mark.django_db(transaction=True)
def test_a_bundle_that_fails_says_so_and_leaves_no_half_file(
    attempt: Attempt, worker: list[int], responder: Persona, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks(archive: parts.Archive, incident: Incident) -> None:
        raise OSError("no space")

    monkeypatch.setattr(building, "PARTS", (("traces", 0.5, breaks),))
    incident = make_incident(attempt)
    building.build(ask(responder, incident).json()["id"])
    (row,) = responder.browser.get(f"/api/v1/incidents/{incident.pk}/evidence").json()["bundles"]
    assert (row["state"], row["failed"]) == ("failed", "The bundle could not be built: OSError.")
    assert list(building.folder().iterdir()) == []
    assert responder.browser.get(f"/api/v1/incidents/{incident.pk}/evidence/{row['id']}").status_code == 404


@pytest.mark.django_db(transaction=True)
def test_what_was_interrupted_is_called_lost_what_waits_is_asked_for_again_and_the_old_goes(
    attempt: Attempt, worker: list[int], responder: Persona
) -> None:
    incident = make_incident(attempt)
    bundles = EvidenceBundle.objects
    done = ask(responder, incident).json()["id"]
    building.build(done)
    lost = ask(responder, incident).json()["id"]
    bundles.filter(pk=lost).update(state="building", building_since=timezone.now() - building.LOST_AFTER * 2)
    building.tidy()
    assert bundles.get(pk=lost).failed == "Building it was interrupted. Ask again."
    waiting = ask(responder, incident).json()["id"]
    bundles.filter(pk=waiting).update(asked_at=timezone.now() - timedelta(hours=1))
    building.tidy()
    assert worker.count(waiting) == 2
    bundles.filter(pk=done).update(wanted_at=timezone.now() - building.KEPT - timedelta(hours=1))
    building.tidy()
    assert not bundles.filter(pk=done).exists() and list(building.folder().iterdir()) == []


async def test_a_hang_taken_away_is_diagnosed_the_same_elsewhere_and_drawn(
    ingest: Ingest, settings: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], worker: list[int]
) -> None:
    settings.CLEAN_LOOK_SECONDS = 0.0
    job = StallingJob(ingest)
    for _ in range(4):
        await job.run(5)
        await sync_to_async(watch.watch_job)((await Attempt.objects.alatest("pk")).pk)
    incident = await stall(job)
    await answer((await of(incident))[0], stuck=3)
    await look()
    incident = await Incident.objects.select_related("team").aget(pk=incident.pk)
    rita = await sync_to_async(make_persona)("rita", incident.team, Role.RESPONDER)
    bundle = (await sync_to_async(ask)(rita, incident)).json()["id"]
    await sync_to_async(building.build)(bundle)
    made = await EvidenceBundle.objects.aget(pk=bundle)
    assert (made.state, made.failed) == ("done", "")
    assert all(one.startswith("pictures/") and "window.npz" in one for one in made.left_out)
    await sync_to_async(check)(building.path_of(made), tmp_path / "out", capsys)
    incident = await Incident.objects.aget(pk=incident.pk)
    for path in (building.path_of(made), tmp_path / "out", tmp_path / "out/dumps"):
        assert evidence_among([str(path), "--json"]) and not evidence_among([str(path), "--sandboxed"])
        assert await sync_to_async(of_evidence)([str(path), "--json"]) == 0
        (found,) = json.loads(capsys.readouterr().out)["diagnoses"]
        assert (found["findings"][0]["culprits"], found["agreement"] != []) == ([3], True)
        assert await sync_to_async(of_evidence)([str(path)]) == 0
        assert incident.headline in capsys.readouterr().out


def check(file: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder)
    manifest = json.loads((folder / "MANIFEST.json").read_text())
    assert {one["name"] for one in manifest["files"]} | {"MANIFEST.json"} == {
        str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()
    }
    assert main([str(folder / "window.npz"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["diagnoses"][0]["findings"][0]["culprits"] == [3]
    dumps = folder / "dumps.zip"
    with zipfile.ZipFile(dumps, "w") as archive:
        for path in (folder / "dumps").rglob("*"):
            if path.is_file():
                archive.write(path, path.relative_to(folder / "dumps"))
    assert len(read_contents(Unpacked(dumps)).stacks) >= 8
    trace = json.loads((folder / "trace.json").read_text())
    slices = [one for one in trace["traceEvents"] if one["ph"] == "X"]
    assert {one["pid"] for one in slices} == set(range(8))
    assert any(one["name"].endswith("(not finished)") for one in slices)
    assert any(one["cat"] == "stands still" for one in slices)
    check_trace(trace, (folder / "trace.json").stat().st_size)
    for name in ("topology", "waits", "flows", "standing"):
        assert (folder / "pictures" / f"{name}.svg").read_text().endswith("</svg>\n")
        assert (folder / "pictures" / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    assert "Rank 3" in (folder / "post-mortem.md").read_text()
