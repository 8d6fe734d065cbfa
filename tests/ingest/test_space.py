"""A disk that fills stops new traces, not the console, and says so; with room again everything goes on.

PostgreSQL's tables lie on a file system of their own that is really filled; its write-ahead log lies elsewhere, because
which of the two finds no room first is chance, and without room for the log PostgreSQL ends (the last test). So it does when
a checkpoint finds none: none comes by itself here. Mounting needs root: other users skip, counted.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

from console.supervisor import servers
from console.supervisor.processes import ROOT
from ingest.traces import space
from ingest.traces.space import Space, SpaceWatch, measure, reserve_bytes
from nccl_instrument.wire import encode_batch
from tests.builders import FakeJob, with_rows
from tests.ingest.shipped import Shipped, said_by, shipped_ingest
from tests.ingest.test_outage import kill
from tests.rawhttp import Heard, ask, batch_request
from tests.servers import TestServers

MIB = 2**20
DISK_BYTES = 220 * MIB
RESERVE_BYTES = 30 * MIB
RARE_CHECKPOINTS = {"max_wal_size": "2GB", "checkpoint_timeout": "1h", "synchronous_commit": "on"}


# ---- without a disk ----------------------------------------------------------------------------------------------------


def test_the_reserve_is_a_share_of_the_disk_with_an_end_or_what_the_operator_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("DIOGENES_DISK_RESERVE_BYTES", raising=False)
    assert reserve_bytes(100 * MIB) == 5 * MIB
    assert reserve_bytes(2**43) == 2**30
    monkeypatch.setenv("DIOGENES_DISK_RESERVE_BYTES", "77")
    assert reserve_bytes(2**43) == 77


def test_below_the_reserve_it_is_short_and_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIOGENES_DISK_RESERVE_BYTES", str(2**60))
    found = measure([tmp_path])
    assert found.is_short and "DIOGENES_TRACE_DAYS" in found.says
    monkeypatch.setenv("DIOGENES_DISK_RESERVE_BYTES", "0")
    assert not measure([tmp_path]).is_short


def test_it_resumes_only_a_little_above_the_reserve(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    free = measure([tmp_path]).free_bytes
    assert free
    monkeypatch.setenv("DIOGENES_DISK_RESERVE_BYTES", str(int(free * 0.95)))
    assert not measure([tmp_path]).is_short
    assert measure([tmp_path], was_short=True).is_short


def test_a_database_elsewhere_is_unknown_and_never_short() -> None:
    assert measure([]) == Space(False, None, None, None, "")


def test_after_postgres_said_full_nothing_is_tried_for_a_while() -> None:
    now = [100.0]
    watch = SpaceWatch(lambda: now[0])
    assert not watch.space.is_short
    watch.note_full()
    assert watch.space.is_short and "PostgreSQL says" in watch.space.says
    now[0] += space.FULL_SECONDS
    assert not watch.space.is_short


# ---- on a disk of its own ----------------------------------------------------------------------------------------------


class SmallDisk:
    """A file system of DISK_BYTES with a migrated database on it, and a ballast to fill it with."""

    def __init__(self, servers_: TestServers) -> None:
        self.servers = servers_
        self.ballast = servers_.folder / "pg" / "ballast"
        self.url = servers.database_url(servers_.folder)

    def fill(self, leave_bytes: int) -> None:
        disk = os.statvfs(self.servers.folder)
        with contextlib.suppress(OSError), self.ballast.open("ab", buffering=0) as file:  # others write there, too
            for _ in range(max(disk.f_bavail * disk.f_frsize - leave_bytes, 0) // 65536):
                file.write(bytes(65536))

    def free(self) -> None:
        self.ballast.unlink()

    def query(self, sql: str) -> list[Any]:
        with psycopg.connect(self.url, autocommit=True) as connection:
            return connection.execute(sql).fetchall()

    def manage(self, *words: str) -> str:
        environment = {**os.environ, "DATABASE_URL": self.url}
        argv = [sys.executable, "manage.py", *words]
        done = subprocess.run(argv, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    if os.geteuid() != 0:
        pytest.skip("no file system can be mounted: not root")
    own = TestServers()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(own.folder)], check=False
    )
    if mounted.returncode != 0:
        pytest.skip("no file system can be mounted: mount failed")
    try:
        own.start_postgres(RARE_CHECKPOINTS, tmp_path_factory.mktemp("wal"))
        small = SmallDisk(own)
        small.manage("migrate", "--verbosity", "0")
        yield small
    finally:
        folder = own.folder
        own.stop()
        subprocess.run(["umount", str(folder)], check=True)
        folder.rmdir()


@pytest.fixture
def token(disk: SmallDisk) -> str:
    return run_django(disk, MAKE_TOKEN)


@pytest.fixture
def shipped(disk: SmallDisk, valkey: TestServers, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Shipped]:
    environment = {"DATABASE_URL": disk.url, "DIOGENES_DISK_RESERVE_BYTES": str(request.param)}
    with shipped_ingest(environment, tmp_path / "log") as running:
        yield running


MAKE_TOKEN = """
from ingest.models import Team
from ingest.door.tokens import make_agent_token
print(make_agent_token(Team.objects.get_or_create(name="research")[0], "cluster"))
"""
USE_CONSOLE = """
from console.incidents.lifecycle import Actor, move
from console.incidents.models import ActorKind
from ingest.models import Attempt
from tests.console.incidents.making import make_incident
incident = make_incident(Attempt.objects.latest("pk"))
print(move(incident.pk, "acknowledge", Actor("rita", ActorKind.USER))[0].state)
"""
READ_HEALTH = """
from ingest.health import read_health
health = read_health()
print(len(health.processes) > 0, health.space.is_short, health.space.says)
"""


def run_django(disk: SmallDisk, code: str) -> str:
    return disk.manage("shell", "-c", code).strip().splitlines()[-1]


def send(shipped: Shipped, token: str, number: int) -> Heard:
    """A batch of half a megabyte that does not compress."""
    batch, rng = FakeJob().batch(0, number), np.random.default_rng(number)
    flow = np.resize(batch.rows("flow"), 20_000)
    for name in ("bytes", "comm_id", "op"):
        flow[name] = rng.integers(0, 2**63, len(flow))
    return ask(shipped.port, batch_request(token, encode_batch(with_rows(batch, flow=flow)), Connection="close"))


def wait_for_status(shipped: Shipped, token: str, number: int, status: int) -> Heard:
    give_up_at = time.monotonic() + 40
    while (heard := send(shipped, token, number)).status != status and time.monotonic() < give_up_at:
        time.sleep(0.3)
    assert heard.status == status, heard
    return heard


def wait_for_health(disk: SmallDisk, wanted: str) -> None:
    """Until all that the console says is of this pattern: what it reads is as old as ingest's last heartbeat."""
    give_up_at = time.monotonic() + 40
    while not re.fullmatch(wanted, said := run_django(disk, READ_HEALTH)) and time.monotonic() < give_up_at:
        time.sleep(0.3)
    assert re.fullmatch(wanted, said), said


def n_stored(disk: SmallDisk) -> int:
    return int(disk.query("SELECT count(*) FROM ingest_trace_batch")[0][0])


@pytest.mark.parametrize("shipped", [RESERVE_BYTES], indirect=True)
def test_below_the_reserve_traces_wait_and_the_console_works(disk: SmallDisk, shipped: Shipped, token: str) -> None:
    before = n_stored(disk)
    wait_for_status(shipped, token, 0, 200)
    disk.fill(leave_bytes=RESERVE_BYTES - 6 * MIB)
    refused = wait_for_status(shipped, token, 1, 507)
    assert "less than the 30 MiB kept free" in said_by(refused)
    assert refused.field("retry-after") == str(space.RETRY_AFTER_SECONDS)
    assert run_django(disk, USE_CONSOLE) == "acknowledged"
    wait_for_health(disk, "True True The database's disk has .*")
    health = shipped.health()
    assert health["space"]["is_short"] and health["status"] == "ok"
    disk.free()
    wait_for_status(shipped, token, 1, 200)
    assert n_stored(disk) > before
    wait_for_health(disk, "True False")


@pytest.mark.parametrize("shipped", [0], indirect=True)
def test_when_postgres_itself_has_no_room_nothing_acknowledged_is_lost(
    disk: SmallDisk, shipped: Shipped, token: str
) -> None:
    before, acknowledged = n_stored(disk), 0
    disk.fill(leave_bytes=MIB)
    seen: list[int] = []
    for number in range(100, 120):
        seen.append(send(shipped, token, number).status)
        acknowledged += seen[-1] == 200
        if seen[-2:] in ([507] * 2, [503] * 2):
            break
    assert 507 in seen, seen
    disk.free()
    wait_for_status(shipped, token, 160, 200)
    assert n_stored(disk) >= before + acknowledged + 1


OLD_TRACES = """
from datetime import timedelta
from django.utils import timezone
from ingest.traces.database import connect
from ingest.models import Attempt, Job, PinnedWindow, Team
from ingest.traces.store import TRACE_TABLE
from ingest.traces.stores import store_in
at = timezone.now() - timedelta(days=2)
job = Job.objects.create(team=Team.objects.get_or_create(name="research")[0], name="old")
attempt = Attempt.objects.create(job=job, number=1, started_at=at, last_received_at=at)
PinnedWindow.objects.create(attempt=attempt, start_ns=1000, end_ns=2000)
with connect() as connection:
    for hours, end_ns, n in ((0, 1500, 4), (1, 5000, 40)):
        received_at = at + timedelta(hours=hours)
        store_in(connection).make_room(connection, TRACE_TABLE, [received_at])
        for number in range(n):
            connection.execute(
                "INSERT INTO ingest_trace_batch (received_at, attempt_id, node_id, boot_pk, number, start_ns, end_ns,"
                " shift_ns, flow) SELECT %s, %s, 1, 1, %s, %s, %s, 0, decode(string_agg(md5(random()::text), ''), 'hex')"
                " FROM generate_series(1, 65536)", [received_at, attempt.pk, 1000 * hours + number, end_ns, end_ns])
        connection.execute("CHECKPOINT")
print(attempt.pk)
"""


def test_retention_frees_a_full_disk_and_saves_what_is_pinned_with_the_room(disk: SmallDisk) -> None:
    attempt_id = run_django(disk, OLD_TRACES)
    with psycopg.connect(disk.url, autocommit=True) as connection:
        ahead = f"ingest_trace_batch_{datetime.now(UTC):%Y%m%d%H}"
        of = "FROM pg_inherits WHERE inhparent = 'ingest_trace_batch'::regclass"
        for (name,) in connection.execute(f"SELECT inhrelid::regclass::text {of}").fetchall():
            if name > ahead:
                connection.execute(f"DROP TABLE {name}")  # retention is to make these, too
    disk.fill(leave_bytes=MIB // 4)
    before = free_bytes(disk)
    try:
        said = disk.manage("keep_house")
        assert free_bytes(disk) > before + 25 * MIB
    finally:
        disk.free()
    assert "lost: 0" in said
    assert disk.query(f"SELECT count(*) FROM ingest_trace_batch WHERE attempt_id = {attempt_id}") == [(0,)]
    assert disk.query(f"SELECT count(*) FROM ingest_pinned_batch WHERE attempt_id = {attempt_id}") == [(4,)]


def free_bytes(disk: SmallDisk) -> int:
    found = os.statvfs(disk.servers.folder)
    return found.f_bavail * found.f_frsize


@pytest.mark.parametrize("shipped", [RESERVE_BYTES], indirect=True)
def test_when_postgres_died_of_it_the_answer_still_says_why(disk: SmallDisk, shipped: Shipped, token: str) -> None:
    wait_for_status(shipped, token, 200, 200)
    disk.fill(leave_bytes=0)
    kill(disk.servers)
    try:
        wait_for_status(shipped, token, 201, 507)
    finally:
        disk.free()
        disk.servers.start_postgres(RARE_CHECKPOINTS)
    wait_for_status(shipped, token, 201, 200)
