"""The doctor and the start-up checks: what is wrong is said with what to do, and one fault never hides another."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core import checks
from django.core.management import call_command
from django.utils import timezone

from console.operations import checks as ours
from console.operations import doctor
from console.operations.alive import Note
from console.operations.doctor import Finding, Places, examine
from console.operations.startup import log_problems
from console.supervisor.folder import DataFolder
from ingest.door.listening import ROW
from ingest.door.tokens import make_agent_token
from ingest.models import Attempt, Listening, Node
from ingest.traces.database import connect
from ingest.traces.let_go import note_let_go

NOWHERE = Places("http://127.0.0.1:9", "http://127.0.0.1:9", "")


def ids(*found: Any) -> set[str]:
    return {problem.id.removeprefix("diogenes.") for one in found for problem in one}


def diagnose() -> dict[str, Finding]:
    return {finding.name: finding for finding in examine(NOWHERE)}


@pytest.mark.parametrize(
    ("setting", "value", "expected"),
    [
        ("LOG_FORM", "xml", {"E003"}),
        ("TIME_ZONE", "Europe/Berlin", {"W009"}),
        ("OPERATIONS", "9100", {"E005"}),
        ("OPERATIONS", "0.0.0.0:9100", {"E006"}),
        ("OPERATIONS", "127.0.0.1:9100", set()),
        ("OPERATIONS", "off", set()),
        ("ALLOWED_HOSTS", ["diogenes.example"], {"W007"}),
        ("ALLOWED_HOSTS", ["*"], {"W007", "E008"}),
        ("SECRET_KEY", "aaaaaaaaaaaa", {"E001"}),
        ("SECRET_KEY", "only-for-debugging", {"E001"}),
        ("TICKETS_KEY", "one,two", {"W015"}),
        ("TICKETS_KEY", "a long word ", {"W015"}),
        ("TICKETS_KEY", "a long word", set()),
        ("DEBUG", True, {"W002"}),
    ],
)
def test_a_setting_that_is_wrong_is_named(settings: Any, setting: str, value: Any, expected: set[str]) -> None:
    settings.METRICS_TOKEN = ""
    setattr(settings, setting, value)
    assert ids(ours.check_words(), ours.check_openness(), ours.check_secrets()) == expected


@pytest.mark.parametrize(
    ("value", "is_wrong"), [("1.5", False), ("0", True), ("-1", True), ("soon", True), ("nan", True)]
)
def test_traces_must_be_kept_for_some_time(monkeypatch: pytest.MonkeyPatch, value: str, is_wrong: bool) -> None:
    monkeypatch.setitem(os.environ, "DIOGENES_TRACE_DAYS", value)
    assert ids(ours.check_words()) == ({"E004"} if is_wrong else set())


def test_a_machine_is_looked_at_where_the_data_lies(settings: Any, tmp_path: Path) -> None:
    settings.DATA_FOLDER, settings.FRONTEND_DIST = tmp_path, tmp_path / "dist"
    (tmp_path / "secret_key").write_text("key")
    (tmp_path / "secret_key").chmod(0o644)
    assert ids(ours.check_machine()) >= {"E030", "W035"}
    (tmp_path / "secret_key").chmod(0o600)
    assert "W035" not in ids(ours.check_machine())


def test_servers_that_are_away_are_one_problem_each(settings: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:9/0"
    monkeypatch.setattr("ingest.traces.database.conninfo", lambda: "host=127.0.0.1 port=9 dbname=x connect_timeout=2")
    assert ids(ours.check_database()) == {"E010"}
    assert ids(ours.check_valkey()) == {"E020"}


def test_a_schema_behind_the_code_is_noticed_and_does_not_stop_migrate(transactional_db: None) -> None:
    with connect() as other:
        row = other.execute("DELETE FROM django_migrations WHERE app = 'ingest' RETURNING id, name, applied").fetchall()
    try:
        problems = [problem for problem in ours.check_database() if problem.id == "diogenes.E012"]
        assert "not applied" in problems[0].msg
        assert "diogenes.E012" not in {problem.id for problem in checks.run_checks()}
    finally:
        with connect() as other:
            for number, name, applied in row:
                other.execute("INSERT INTO django_migrations VALUES (%s, 'ingest', %s, %s)", [number, name, applied])


def test_everything_is_said_even_when_nothing_answers(
    settings: Any, monkeypatch: pytest.MonkeyPatch, transactional_db: None
) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:9/0"
    monkeypatch.setattr("console.operations.doctor.app.control.ping", lambda **_: [])
    found = diagnose()
    assert {"web", "ingest", "Valkey"} <= {name for name, finding in found.items() if finding.mark == "bad"}
    assert found["worker"].found == "not asked: Valkey does not answer"
    assert found["live socket"].found == "not asked: web does not answer"
    assert found["database"].mark == "ok"
    assert all(finding.advice for finding in found.values() if finding.mark == "bad"), "each says what to do"


def test_silent_nodes_and_wrong_clocks_are_doubts(
    monkeypatch: pytest.MonkeyPatch, transactional_db: None, valkey: object, team: Any
) -> None:
    monkeypatch.setattr("console.operations.doctor.app.control.ping", lambda timeout, limit: [{"w": {}}])
    now = timezone.now()
    attempt = Attempt.objects.create(job=team.jobs.create(name="j"), number=0, started_at=now, last_received_at=now)
    Node.objects.create(attempt=attempt, name="n1", received_ns=int(now.timestamp() * 1e9))
    late = now - timedelta(minutes=5)
    Node.objects.create(attempt=attempt, name="n2", received_ns=int(late.timestamp() * 1e9), wrong_clock=True)
    make_agent_token(team, "a")
    assert diagnose()["agents"].found == "1 of 2 nodes are unheard: ingest was not listening"
    Listening.objects.create(pk=ROW, since=now - timedelta(minutes=1), until=now + timedelta(minutes=1))
    note_let_go("hours", 2)
    found = diagnose()
    assert (found["agents"].mark, found["agents"].found[:22]) == ("warning", "1 of 2 nodes are silen")
    assert (found["let go of"].mark, found["let go of"].found[:8]) == ("warning", "2 hours ")
    assert found["node clocks"].found == "1 wrong: n2"
    assert found["agent tokens"].found == "1, never used"


def test_a_fault_is_told_once(
    settings: Any, monkeypatch: pytest.MonkeyPatch, transactional_db: None, tmp_path: Path
) -> None:
    settings.REDIS_URL, settings.FRONTEND_DIST = "redis://127.0.0.1:9/0", tmp_path
    monkeypatch.setattr("console.operations.doctor.app.control.ping", lambda **_: [])
    monkeypatch.setattr("ingest.traces.database.conninfo", lambda: "host=127.0.0.1 port=9 dbname=x connect_timeout=2")
    found = diagnose()
    assert [found[name].mark for name in ("database", "Valkey", "front end")] == ["bad"] * 3
    assert not {"diogenes.E010", "diogenes.E020", "diogenes.E030", "diogenes.W036"} & set(found)


def test_a_part_that_was_started_again_lately_is_a_doubt(settings: Any, tmp_path: Path) -> None:
    settings.DATA_FOLDER = tmp_path
    assert doctor._restarts().startswith("not known")
    now = time.time()
    folder = DataFolder(tmp_path, tmp_path, lock_fd=-1)
    folder.note_restarts({"worker": {"count": 3, "last_at": now - 700}})
    assert doctor._restarts() == "none in the last 10 minutes"
    folder.note_restarts({"worker": {"count": 3, "last_at": now - 700}, "web": {"count": 1, "last_at": now - 60}})
    with pytest.raises(doctor.Doubt, match=r"started again: web 6\d s ago"):
        doctor._restarts()


def test_a_part_that_is_held_or_stopped_is_a_doubt_with_what_lets_it_go(settings: Any, tmp_path: Path) -> None:
    settings.DATA_FOLDER = tmp_path
    assert doctor._parts().startswith("not known")
    folder = DataFolder(tmp_path, tmp_path, lock_fd=-1)
    with subprocess.Popen(["sleep", "60"]) as part:
        try:
            (tmp_path / "children").write_text(f"{part.pid} 1 worker\n{os.getpid()} 1 web\n")
            assert doctor._parts() == "2 run; none is held or stopped"
            folder.hold_of("beat").parent.mkdir()
            folder.hold_of("beat").touch()
            part.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, part.pid, os.WSTOPPED | os.WNOWAIT)
            with pytest.raises(doctor.Doubt) as doubt:
                doctor._parts()
        finally:
            part.kill()
    assert str(doubt.value) == f"beat is held; worker (pid {part.pid}) is stopped"
    assert str(folder.hold_of("beat")) in doubt.value.advice
    assert "kill -CONT" in doubt.value.advice


def test_each_process_that_is_not_ready_is_named_with_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    notes = [Note(name, "h", 1, 0.0, 0.0, "", 0.0, False, {}) for name in ("web", "ingest", "worker", "beat", "fifth")]
    states = {"web": "degraded", "ingest": "not ready", "worker": "silent", "beat": "ready", "fifth": "degraded"}
    monkeypatch.setattr(doctor, "read_alive", lambda: notes)
    monkeypatch.setattr(doctor, "_readiness", lambda note: states[note.process])
    with pytest.raises(doctor.Doubt) as doubt:
        doctor._doors()
    assert str(doubt.value) == (
        "4 of 5: web:h:1 is degraded, ingest:h:1 is not ready, worker:h:1 is silent, fifth:h:1 is degraded"
    )


def test_the_command_ends_with_1_when_something_is_wrong_and_can_speak_json(
    monkeypatch: pytest.MonkeyPatch, transactional_db: None, valkey: object, tmp_path: Path
) -> None:
    monkeypatch.setattr("console.operations.doctor.app.control.ping", lambda **_: [])
    said = StringIO()
    with pytest.raises(SystemExit) as end:
        call_command(
            "doctor", "--web", "http://127.0.0.1:9", "--token-file", str(tmp_path / "none"), "--json", stdout=said
        )
    assert end.value.code == 1
    told = json.loads(said.getvalue())
    assert told["ok"] is False
    assert {"name", "mark", "found", "advice"} == set(told["findings"][0])
    said = StringIO()
    with pytest.raises(SystemExit):
        call_command("doctor", "--web", "http://127.0.0.1:9", stdout=said)
    assert re.search(
        r"^✗ looks +no worker of looks alone answers\n +→ looks wait, or none are taken", said.getvalue(), re.M
    )
    assert re.search(r"^✗ worker +no worker answers\n +→ no dumps are read", said.getvalue(), re.M)
    assert re.search(r"^✗ urgent +no worker of what is urgent answers\n +→ nobody is paged", said.getvalue(), re.M)


def test_a_starting_process_logs_what_its_checks_found(
    caplog: pytest.LogCaptureFixture, settings: Any, transactional_db: None, valkey: object
) -> None:
    settings.LOG_FORM = "xml"
    log_problems()
    (line,) = [record for record in caplog.records if getattr(record, "check", "") == "diogenes.E003"]
    assert (line.levelname, line.getMessage()) == (
        "ERROR", "DIOGENES_LOG=xml is neither json nor text. Set it to json or text.",
    )  # fmt: skip


def test_every_check_that_can_be_found_has_a_title() -> None:
    source = Path(ours.__file__).read_text()
    used = {f"diogenes.{number}" for number in re.findall(r'"([EW]\d{3})"', source)}
    assert used == set(ours.TITLES)
