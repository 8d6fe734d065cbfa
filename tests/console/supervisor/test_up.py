"""`manage.py up` as a user meets it: one line with a link, nothing left behind, everything found again."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode
from urllib.request import HTTPCookieProcessor, OpenerDirector, Request, build_opener, urlopen

import psycopg
import pytest

from console.supervisor import servers
from console.supervisor.folder import start_time
from console.supervisor.processes import ROOT, ingest_processes
from ingest.process import SERVERS
from tests.eval.stack import free_port_pair
from tests.servers import SETTINGS

pytestmark = pytest.mark.live

READY = re.compile(r"Diogenes is running at (\S+) - sign in once with (\S+)")


def outside() -> dict[str, str]:
    """Our environment without what points at the tests' own servers."""
    return {name: value for name, value in os.environ.items() if name not in SETTINGS}


class Up:
    """One `manage.py up` without the demo, as its own process."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.port, self.lines = folder, port, list[str]()
        arguments = ["up", "--demo", "0", "--port", str(port), "--data", str(folder)]
        self.process = subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            cwd=ROOT, env=outside(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip

    def wait_until_ready(self) -> str:
        """Returns the sign-in link; at once when the stack is ready already."""
        assert self.process.stdout
        while not (ready := READY.search("".join(self.lines))):
            line = self.process.stdout.readline()
            assert line, "".join(self.lines)
            self.lines.append(line)
        return ready.group(2)

    def wait_for(self, words: str) -> None:
        """Read on until a line says so."""
        assert self.process.stdout
        while words not in (line := self.process.stdout.readline()):
            assert line, "".join(self.lines)
            self.lines.append(line)

    def children(self) -> list[int]:
        return list(self.named().values())

    def named(self) -> dict[str, int]:
        rows = [line.split() for line in (self.folder / "children").read_text().splitlines()]
        return {name: int(pid) for pid, _, name in rows}

    def stop(self, signum: signal.Signals = signal.SIGINT) -> int:
        self.process.send_signal(signum)
        self.process.communicate(timeout=60)
        return self.process.returncode


def started(folder: Path) -> Iterator[Up]:
    up = Up(folder, free_port_pair())
    yield up
    if up.process.poll() is None:
        up.stop(signal.SIGTERM)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    """A running stack for tests that leave it running."""
    yield from started(tmp_path_factory.mktemp("shared") / "var")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    """A stack for one test to stop or kill."""
    yield from started(tmp_path / "var")


def wait_until_gone(pids: list[int]) -> None:
    give_up_at = time.monotonic() + 20
    while any(start_time(pid) for pid in pids):
        assert time.monotonic() < give_up_at, "still running: " + " ".join(map(str, pids))
        time.sleep(0.05)


def click(browser: OpenerDirector, link: str) -> str:
    """Press the only button of the link's page; returns where that leads."""
    form = re.search(r'name="csrfmiddlewaretoken" value="(\w+)"', browser.open(link).read().decode())
    assert form is not None
    return str(browser.open(link, urlencode({"csrfmiddlewaretoken": form[1]}).encode()).url)


def test_the_link_signs_in_once(shared: Up) -> None:
    link = shared.wait_until_ready()
    guest, second = build_opener(HTTPCookieProcessor()), build_opener(HTTPCookieProcessor())
    assert "signin" in guest.open(f"http://127.0.0.1:{shared.port}/").url
    assert "signin" not in click(guest, link)
    assert "signin" not in guest.open(f"http://127.0.0.1:{shared.port}/").url
    with pytest.raises(HTTPError, match="401"):
        second.open(link)


def test_whoever_signed_out_gets_another_link_from_any_python(shared: Up) -> None:
    shared.wait_until_ready()
    # Without site packages there is no Django: manage.py hands over to the Python beside it.
    for python in ([sys.executable], [sys.executable, "-S"]):
        environment = {**outside(), "DIOGENES_DATA": str(shared.folder)}
        done = subprocess.run(
            [*python, str(ROOT / "manage.py"), "signin_link"], env=environment, capture_output=True, text=True, cwd="/"
        )
        assert done.stdout.startswith(f"http://127.0.0.1:{shared.port}/signin/"), done.stderr
        assert "signin" not in click(build_opener(HTTPCookieProcessor()), done.stdout.strip())


def test_a_link_of_a_stack_that_does_not_run_is_refused_in_one_sentence(tmp_path: Path) -> None:
    environment = {**outside(), "DIOGENES_DATA": str(tmp_path)}
    command = [sys.executable, str(ROOT / "manage.py"), "signin_link"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert done.stderr.startswith(f"Nothing runs in {tmp_path}: set DIOGENES_DATA (`make`: DATA=) to the data folder")
    (tmp_path / "secret_key").write_text("key")
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, len(done.stderr.splitlines())) == (1, 1)
    assert "is Diogenes running?" in done.stderr


def test_a_second_start_on_the_same_folder_is_refused_in_one_sentence(shared: Up) -> None:
    shared.wait_until_ready()
    second = Up(shared.folder, free_port_pair())
    said, _ = second.process.communicate(timeout=60)
    assert second.process.returncode == 1
    assert re.fullmatch(rf"Diogenes is already running on {shared.folder} \(process {shared.process.pid}\): .*\n", said)


def test_ctrl_c_or_a_kill_leaves_nothing_and_each_next_start_finds_its_data(up: Up) -> None:
    up.wait_until_ready()
    children, token = up.children(), (up.folder / "agent_token").read_text()
    assert len(children) == 7 + ingest_processes()
    assert up.stop() == 0
    assert [pid for pid in children if start_time(pid)] == []

    second = Up(up.folder, up.port)
    second.wait_until_ready()
    killed = second.children()
    second.process.kill()
    second.process.wait()

    third = Up(up.folder, up.port)
    third.wait_until_ready()
    wait_until_gone(killed)
    assert (up.folder / "agent_token").read_text() == token
    assert third.stop(signal.SIGTERM) == 0


def test_a_database_that_is_held_or_told_to_wait_for_its_sessions_comes_back(shared: Up) -> None:
    shared.wait_until_ready()
    held = shared.folder / "held" / "postgres"
    held.parent.mkdir()
    runtime = Path((shared.folder / "runtime").read_text())
    for is_hold in (True, False):
        with psycopg.connect(servers.database_url(runtime)):  # a session that never ends by itself
            if is_hold:
                held.touch()
                shared.wait_for("postgres is held by")
                shared.wait_for("postgres ended (exit 0); starting it again when")
                held.unlink()
            else:
                os.kill(shared.named()["postgres"], signal.SIGTERM)
                shared.wait_for("postgres was told to stop and waits for its sessions")
            shared.wait_for("postgres is back")
    for name in (
        "web",
        f"ingest-{ingest_processes()}" if ingest_processes() > 1 else "ingest",
        "looks",
        "urgent",
        "worker",
        "valkey",
    ):
        os.kill(shared.named()[name], signal.SIGKILL)
        shared.wait_for(f"{name} is back")


def test_every_process_answers_at_its_own_door_and_logs_an_object_a_line(shared: Up) -> None:
    shared.wait_until_ready()
    token = {"Authorization": "Bearer " + (shared.folder / "metrics_token").read_text()}

    def ask(address: str) -> str:
        return urlopen(Request(f"http://{address}", headers=token), timeout=10).read().decode()

    def is_open(address: str) -> bool:
        try:
            return bool(ask(f"{address}/healthz"))
        except URLError:
            return False  # of a process that an earlier test has killed: the roll forgets it in some seconds

    wanted = {(name, "main") for name in SERVERS} | {(name, "child") for name in ("looks", "urgent", "worker")}
    give_up_at = time.monotonic() + 45
    while True:
        doors = json.loads(ask(f"127.0.0.1:{shared.port}/metrics/targets"))
        found = {(door["labels"]["process"], door["labels"]["part"]) for door in doors}
        if (found >= wanted and all(is_open(door["targets"][0]) for door in doors)) or time.monotonic() > give_up_at:
            break
        time.sleep(0.5)
    assert found >= wanted
    for door in doors:
        (address,) = door["targets"]
        assert json.loads(ask(f"{address}/readyz"))["status"] == "ready"
        assert "diogenes_commit_seconds_count" in ask(f"{address}/metrics")
    urlopen(f"http://127.0.0.1:{shared.port}/static/drf_spectacular_sidecar/swagger-ui-dist/swagger-ui.css").read()
    for name in SERVERS:
        lines = (shared.folder / "logs" / f"{name}.log").read_text().splitlines()
        assert all(json.loads(line)["process"] == name for line in lines), lines
        assert [line for line in lines if "diogenes.W036" in line] == [], "on a first start too there is a token"
    assert '"beat: Starting' in (shared.folder / "logs" / "beat.log").read_text()


def test_the_doctor_finds_nothing_wrong_with_a_running_stack(shared: Up) -> None:
    shared.wait_until_ready()
    environment = {**outside(), "DIOGENES_DATA": str(shared.folder)}
    command = [sys.executable, str(ROOT / "manage.py"), "doctor", "--json"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, cwd="/")
    findings = json.loads(done.stdout)["findings"]
    assert (done.returncode, [one for one in findings if one["mark"] == "bad"]) == (0, []), done.stderr
    assert {"web", "live socket", "ingest", "looks", "urgent", "worker", "beat"} <= {
        one["name"] for one in findings if one["mark"] == "ok"
    }
