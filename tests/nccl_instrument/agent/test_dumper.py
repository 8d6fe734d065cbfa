"""A real agent asked for dumps by a real ingest; what it does when there is nothing to take or nobody to tell."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from django.db import connection

from console.supervisor.servers import database_url
from ingest.door.dumps import DumpPart, ask_dumps, parts_of, progress_of, requests_of
from ingest.door.tokens import make_agent_token
from ingest.models import Attempt, Team
from ingest.read import read_window
from nccl_instrument.agent.dumps.dumper import WAITING_MAX, Dumper, Here
from nccl_instrument.agent.dumps.kept_epochs import NONE_YET, NOT_RECORDED, kept_epochs
from nccl_instrument.agent.dumps.stacks import find_py_spy
from nccl_instrument.agent.processes.proc import Living, started_at
from nccl_instrument.agent.processes.segment_layout import OP
from nccl_instrument.agent.sending.losses import Losses
from nccl_instrument.agent.sending.post import APART_S_MAX, DUMPS_PATH, Door, Order
from nccl_instrument.agent.traffic.iterations import Iteration
from nccl_instrument.agent.traffic.traffic import Raw
from nccl_instrument.agent.traffic.transfers import HELD, Sent
from nccl_instrument.dumps import EPOCHS, RECORDER, STACKS, Dumps
from nccl_instrument.epochs import read_epochs
from nccl_instrument.measure.spreading import CELL as SPREAD
from nccl_instrument.tables import LOSSES
from rca.stacks.reading import read_stacks
from tests.ingest.shipped import Shipped, shipped_ingest
from tests.servers import TestServers

from .scripted_server import Reply, ScriptedServer, wait_until
from .scripted_trainer import ScriptedTrainer
from .uplink_rig import encoded

WITH_RECORDER = """
import sys
from pathlib import Path
from nccl_instrument import recorder
from tests.nccl_instrument.agent import scripted_trainer
recorder.start(lambda: b"a recorder's dump", Path(sys.argv[1]))
def train():
    scripted_trainer.main()
train()
"""


@pytest.fixture
def shipped(transactional_db: None, postgres: TestServers, valkey: TestServers, tmp_path: Path) -> Iterator[Shipped]:
    """An ingest process; it is gone before the database is emptied."""
    url = database_url(postgres.folder, connection.settings_dict["NAME"])
    with shipped_ingest({"DATABASE_URL": url}, tmp_path / "ingest.log") as running:
        yield running
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE ingest_trace_batch, ingest_pinned_batch")


@pytest.fixture
def agent(shipped: Shipped, tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """An agent with a token of its own, that follows what is in tmp_path/segments."""
    (tmp_path / "token").write_text(make_agent_token(Team.objects.create(name=secrets.token_hex(4)), "cluster"))
    command = [sys.executable, "-m", "nccl_instrument.agent", "--server", f"http://127.0.0.1:{shipped.port}"]
    command += ["--node", "node-a", "--token-file", str(tmp_path / "token"), "--spool", str(tmp_path / "spool")]
    surroundings = os.environ | {"DIOGENES_SEGMENT_DIR": str(tmp_path / "segments")}
    with (tmp_path / "agent.log").open("wb") as log, subprocess.Popen(command, stderr=log, env=surroundings) as process:
        yield process
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_stacks_and_recordings_of_hung_dead_and_silent_ranks_arrive(
    agent: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "segments"
    hung, killed = ScriptedTrainer(folder, "job", 0, code=WITH_RECORDER), ScriptedTrainer(folder, "job", 1)
    for at, trainer in enumerate((hung, killed)):
        trainer.do("comm", 0, 77, at, 2)
    wait_until(lambda: Attempt.objects.filter(ranks__rank=1).exists(), 30)
    killed.kill()
    request = ask_dumps(Attempt.objects.get().pk, asked_by="ada")
    wait_until(lambda: requests_of(request.attempt_id)[0].state == "answered", 45)
    found: dict[tuple[str, int, int], DumpPart] = {
        (one.kind, one.rank, one.look): one for one in parts_of([request.pk])
    }
    hung.kill()
    assert set(found) == {(STACKS, rank, look) for rank in (0, 1) for look in (1, 2)} | {
        (RECORDER, 0, 1),
        (RECORDER, 1, 1),
    }
    for look in (1, 2):
        stacks = found[STACKS, 0, look]
        assert [frame.name for frame in read_stacks(stacks.raw, 0, stacks.pid, stacks.command).main][-2:] == [
            "train",
            "<module>",
        ]
        assert found[STACKS, 1, look].silent == "the process is gone"
    assert (found[RECORDER, 0, 1].raw, found[RECORDER, 0, 1].by) == (b"a recorder's dump", "its recorder thread")
    assert found[RECORDER, 1, 1].silent == "the process is gone"
    assert found[STACKS, 0, 2].taken_ns - found[STACKS, 0, 1].taken_ns > 10**9
    told = progress_of(request.pk)
    assert (told.nodes_expected, told.nodes_answered, told.ranks_answered, told.silent_count) == (1, 1, 1, 2)


class Rig:
    """A dumper that knows some processes of one job, and a server to tell."""

    def __init__(self, folder: Path) -> None:
        self.server, self.losses, self.folder = ScriptedServer(), Losses(), folder
        (folder / "token").write_text("token")
        self.processes: list[Living] = []
        door = Door(self.server.url, folder / "token", timeout_s=5, path=DUMPS_PATH)
        self.dumper = Dumper(door, "node-a", self.losses, self._here)

    def _here(self, job: str) -> Here | None:
        return Here(bytes(16), tuple(self.processes)) if job == "job" else None

    def ask(
        self, request: int, kinds: tuple[str, ...] = (STACKS,), looks: int = 1, ranks: frozenset[int] | None = None
    ) -> None:
        self.dumper.ask("job", (Order(request, kinds, ranks, looks, 0.1),))

    def told(self, n_answers: int = 1) -> list[Dumps]:
        wait_until(lambda: len(self.server.dumps) >= n_answers, 30)
        return self.server.dumps

    def lost(self) -> dict[str, int]:
        return {LOSSES[row["kind"]]: int(row["count"]) for row in self.losses.take("job")}


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    rig.dumper.stop()
    rig.server.close()


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Living]:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]) as process:
        yield Living(3, process.pid, started_at(process.pid) or 0, tmp_path, os.getuid())
        process.kill()


def test_a_request_is_served_once_however_often_it_is_told(rig: Rig, sleeper: Living) -> None:
    rig.processes = [sleeper]
    rig.dumper.start()
    for _ in range(3):
        rig.ask(5, looks=2)
    rig.ask(6)
    assert [(one.request, one.look, one.node) for one in rig.told(3)] == [
        (5, 1, "node-a"),
        (5, 2, "node-a"),
        (6, 1, "node-a"),
    ]


def test_only_the_ranks_asked_for_are_looked_at_and_a_node_without_them_says_so(rig: Rig, sleeper: Living) -> None:
    rig.processes = [sleeper]
    rig.dumper.start()
    rig.ask(1, ranks=frozenset({3}))
    rig.ask(2, ranks=frozenset({4}))
    assert [[part.rank for part in one.parts] for one in rig.told(2)] == [[3], []]


def test_a_process_of_another_user_or_with_the_number_of_a_dead_one_is_not_looked_at(rig: Rig, sleeper: Living) -> None:
    rig.processes = [
        replace(sleeper, started=sleeper.started - 1),
        Living(4, 2**22 - 1, 5, rig.folder, os.getuid()),
        replace(sleeper, rank=5, uid=os.getuid() + 1),
    ]
    rig.dumper.start()
    rig.ask(1, (STACKS, RECORDER))
    assert {(part.rank, part.raw, part.silent[:15]) for part in rig.told()[0].parts} == {
        (3, b"", "another process"),
        (5, b"", "another process"), (4, b"", "the process is "),
    }  # fmt: skip


def test_a_process_that_dies_during_the_dump_says_so(
    rig: Rig, sleeper: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = find_py_spy()
    script = rig.folder / "py-spy"
    script.write_text(f'#!/bin/sh\nkill -9 {sleeper.pid}\nsleep 0.5\nexec {real} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setattr("nccl_instrument.agent.dumps.stacks.find_py_spy", lambda: str(script))
    rig.processes = [sleeper]
    rig.dumper.start()
    rig.ask(1, looks=2)
    first, second = rig.told(2)
    assert first.parts[0].silent
    assert second.parts[0].silent == "the process is gone"


def test_a_refusal_to_look_arrives_with_its_cure(rig: Rig, sleeper: Living, monkeypatch: pytest.MonkeyPatch) -> None:
    script = rig.folder / "py-spy"
    script.write_text(
        "#!/bin/sh\necho 'Error: Permission Denied: Try running again with elevated permissions' >&2; exit 1\n"
    )
    script.chmod(0o755)
    monkeypatch.setattr("nccl_instrument.agent.dumps.stacks.find_py_spy", lambda: str(script))
    rig.processes = [sleeper]
    rig.dumper.start()
    rig.ask(1)
    assert "run the agent as the user that trains or as root" in rig.told()[0].parts[0].silent


def test_sixty_four_ranks_are_all_answered_for(rig: Rig, sleeper: Living) -> None:
    rig.processes = [replace(sleeper, rank=rank) for rank in range(64)]
    rig.dumper.start()
    rig.ask(1)
    parts = rig.told()[0].parts
    assert sorted(part.rank for part in parts) == list(range(64))
    assert all(part.raw or part.silent for part in parts)


def test_a_server_that_is_away_for_a_moment_gets_the_answer_all_the_same(rig: Rig, sleeper: Living) -> None:
    replies = [Reply(503, said={"error": "away"}), Reply(429, {"Retry-After": "1"}, {"error": "too many"})]
    rig.server.dumps_rule = lambda _dumps: replies.pop() if replies else Reply()
    rig.processes = [sleeper]
    rig.dumper.start()
    rig.ask(1)
    assert rig.told()[0].parts[0].raw
    assert rig.lost() == {}


def test_an_answer_that_is_refused_or_too_late_is_counted_and_dropped(
    rig: Rig, sleeper: Living, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = list[int]()

    def refuse(dumps: Dumps) -> Reply:
        refused.append(dumps.request)
        return Reply(410, said={"error": "too long ago"})

    rig.server.dumps_rule = refuse
    rig.processes = [sleeper]
    rig.dumper.start()
    rig.ask(1, looks=2)
    monkeypatch.setattr("nccl_instrument.agent.dumps.dumper.LIFE_S", 0.0)
    rig.ask(2)
    lost = Counter[str]()
    wait_until(lambda: lost.update(rig.lost()) or lost["dumps_lost"] == 2, 30)
    assert (refused, rig.server.dumps) == ([1], [])


def test_more_requests_than_may_wait_are_counted(rig: Rig) -> None:
    for request in range(1, WAITING_MAX + 4):
        rig.ask(request)
    assert rig.lost() == {"dumps_lost": 3}


def test_a_request_of_a_job_that_has_ended_here_is_let_go(rig: Rig) -> None:
    rig.dumper.start()
    rig.dumper.ask("ended", (Order(1, (STACKS,), None, 1, 0.0),))
    rig.ask(2)
    assert [one.request for one in rig.told()] == [2]


def test_what_the_server_asks_is_read_with_suspicion(rig: Rig) -> None:
    good = {"request": 7, "kinds": ["stacks", "core"], "ranks": [1, "2", 3], "looks": 9, "apart_s": -1}
    wrong = [
        {}, [], "7", {**good, "request": 0}, {**good, "request": 2**80}, {**good, "request": True}, {**good, "kinds": "stacks"},
        {**good, "kinds": []}, {**good, "ranks": "all"}, {**good, "ranks": [0] * 50_000},
    ]  # fmt: skip
    rig.server.rule = lambda _batch: Reply(said={"dumps": [*wrong[:7], good]})
    answer = Door(rig.server.url, rig.folder / "token").post(encoded(0))
    assert answer.dumps == (Order(7, (STACKS,), frozenset({1, 3}), 2, APART_S_MAX),)
    for one in wrong[7:]:
        rig.server.rule = lambda _batch, one=one: Reply(said={"dumps": [one]})  # type: ignore[misc]
        assert Door(rig.server.url, rig.folder / "token").post(encoded(0)).dumps == ()
    for odd in ("dumps", 5, None, {"request": 7}):
        rig.server.rule = lambda _batch, odd=odd: Reply(said={"dumps": odd})  # type: ignore[misc]
        assert Door(rig.server.url, rig.folder / "token").post(encoded(0)).dumps == ()


def test_epochs_of_what_a_rank_sent_arrive_and_a_rank_that_sent_nothing_says_so(
    agent: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "segments"
    busy, idle = ScriptedTrainer(folder, "job", 0), ScriptedTrainer(folder, "job", 1)
    try:
        for at, trainer in enumerate((busy, idle)):
            trainer.do("comm", 0, 77, at, 2)
        busy.tell("run", 50, 4, 0.01)
        wait_until(lambda: Attempt.objects.filter(ranks__rank=1).exists(), 30)
        attempt = Attempt.objects.get().pk
        wait_until(lambda: len(read_window(attempt, 0, 2**62, ("traffic",)).rows("traffic")) > 0, 30)
        request = ask_dumps(attempt, [EPOCHS], looks=1, asked_by="ada")
        wait_until(lambda: requests_of(attempt)[0].state == "answered", 45)
    finally:
        busy.kill()
        idle.kill()
    found = {one.rank: one for one in parts_of([request.pk], kinds=[EPOCHS])}
    assert (found[1].silent, found[1].length) == (NONE_YET, 0)
    epochs = read_epochs(found[0].raw)
    assert epochs.flows["comm_id"].tolist() == [77] * len(epochs.flows) and epochs.iterations["is_whole"].all()
    sent = np.bincount(epochs.cells["flow"], epochs.cells["n_bytes"].astype(float), len(epochs.flows))
    assert len(sent) and (sent % (20 << 16) == 0).all()  # twenty chunks an op


def test_epochs_that_were_kept_are_sent_and_who_has_none_says_why() -> None:
    cells = np.array([(0, 0, 5, 4096), (1, 0, 6, 10)], SPREAD)
    rows = np.zeros(2, HELD)
    rows["largest"], rows["qpn"] = [4096, 10], [77, 78]
    keys = [(0xA, 0, 1, 0, 0), (0xA, 0, 2, 0, 1)]
    sent = Sent(keys, rows, np.array([0, 1, 2]), cells, 32_000, True)
    raw = Raw(Iteration(4, 10**6, 2 * 10**6, np.zeros(0, OP), True), sent, 2, b"mlx5_0")
    living = Living(3, 4242, 0, Path("/nowhere"), 0)
    part = kept_epochs(living, (raw, raw))
    epochs = read_epochs(part.raw)
    assert (part.kind, part.rank, part.silent, epochs.nic) == (EPOCHS, 3, "", "mlx5_0")
    assert epochs.iterations["number"].tolist() == [4, 4] and epochs.iterations["every"].tolist() == [2, 2]
    assert epochs.flows["peer"].tolist() == [1, 2, 1, 2] and epochs.flows["queue_pair"].tolist() == [77, 78, 77, 78]
    assert epochs.cells[["flow", "epoch", "n_bytes"]].tolist() == [(0, 5, 4096), (1, 6, 10), (2, 5, 4096), (3, 6, 10)]
    for nothing, why in ((None, NOT_RECORDED), ((), NONE_YET)):
        assert (kept_epochs(living, nothing).silent, kept_epochs(living, nothing).length) == (why, 0)
