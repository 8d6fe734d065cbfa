"""Windows taken away: through the API and by the operator's command, diagnosed where there is no database."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from rest_framework.test import APIClient

from console.accounts.models import Membership, Role
from console.incidents.models import Incident
from console.incidents.watching import watch
from ingest.models import Attempt
from ingest.window import load_window
from rca.saved_window import main
from tests.console.incidents.stalling import StallingJob
from tests.ingest.conftest import Ingest, ingest, no_traces

__all__ = ["ingest", "no_traces"]  # fixtures


@pytest.fixture
async def incident(ingest: Ingest) -> Incident:
    """Of a job that ran for fifteen seconds and has stood still for fourteen."""
    job = StallingJob(ingest)
    await job.run(15)
    job.stall()
    await job.run(14)
    await sync_to_async(watch.watch_job)((await Attempt.objects.alatest("pk")).pk)
    return await Incident.objects.select_related("team", "job").alatest("pk")


async def test_a_saved_window_names_the_same_rank_elsewhere(
    incident: Incident, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for subject in (str(incident.pk), incident.job.name, f"{incident.team.name}/{incident.job.name}"):
        await sync_to_async(save)(subject, tmp_path / "window.npz")
        assert main([str(tmp_path / "window.npz"), "--json"]) == 0
        diagnoses = json.loads(capsys.readouterr().out)["diagnoses"]
        assert diagnoses[0]["findings"][0]["culprits"] == [3]


async def test_a_responder_downloads_the_window_and_a_viewer_may_not(incident: Incident, tmp_path: Path) -> None:
    answer = await sync_to_async(download)(incident, Role.RESPONDER)
    assert (answer.status_code, answer.headers["Content-Disposition"].endswith('.npz"')) == (200, True)
    (tmp_path / "window.npz").write_bytes(answer.content)
    window = load_window(tmp_path / "window.npz")
    assert window.start_ns < incident.first_symptom_ns < window.end_ns
    assert "traffic" in window.tables, "what was measured on the wire is evidence too"
    assert (await sync_to_async(download)(incident, Role.VIEWER)).status_code == 403


async def test_a_downloaded_window_gives_the_incidents_own_diagnosis(
    incident: Incident, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = await sync_to_async(download)(incident, Role.RESPONDER)
    (tmp_path / "window.npz").write_bytes(answer.content)
    stored = await incident.revisions.alatest("number")
    assert main([str(tmp_path / "window.npz"), "--json"]) == 0
    (again,) = json.loads(capsys.readouterr().out)["diagnoses"]
    for part in ("symptom", "findings", "victims", "path", "thresholds", "alternatives", "clocks"):
        assert again[part] == stored.body[part], part


async def test_so_many_seconds_of_it_may_be_asked_for(incident: Incident, tmp_path: Path) -> None:
    answer = await sync_to_async(download)(incident, Role.RESPONDER, "16")
    (tmp_path / "window.npz").write_bytes(answer.content)
    window = load_window(tmp_path / "window.npz")
    assert window.end_ns - window.start_ns == 16 * 10**9


@pytest.mark.parametrize("seconds", ["0", "121", "x"])
async def test_a_window_has_a_limit(incident: Incident, seconds: str, tmp_path: Path) -> None:
    assert (await sync_to_async(download)(incident, Role.RESPONDER, seconds)).status_code == 400
    with pytest.raises(CommandError):
        await sync_to_async(save)(str(incident.pk), tmp_path / "window.npz", "--seconds", seconds)


@pytest.mark.django_db
@pytest.mark.parametrize("subject", ["999", "nobody", "no/body"])
def test_what_is_not_there_cannot_be_saved(subject: str, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="no incident or job"):
        save(subject, tmp_path / "window.npz")


def save(subject: str, path: Path, *options: str) -> None:
    call_command("save_window", subject, str(path), *options, stdout=io.StringIO())


def download(incident: Incident, role: Role, seconds: str | None = None) -> Any:
    user, _ = User.objects.get_or_create(username="rita")
    Membership.objects.update_or_create(user=user, team=incident.team, defaults={"role": role})
    browser = APIClient()
    browser.force_login(user)
    return browser.get(f"/api/v1/incidents/{incident.pk}/window", {} if seconds is None else {"seconds": seconds})
