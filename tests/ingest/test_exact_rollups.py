"""Roll-ups contain every stored batch exactly once, whatever dies: equal, to the last op, to a sum over all rows."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from asgiref.sync import sync_to_async
from django.db import connection
from psycopg.conninfo import make_conninfo

from ingest.door.tokens import make_agent_token
from ingest.models import Attempt, OpRollup, Team
from ingest.sums import rollup, sums
from ingest.sums.sums import as_multirange
from ingest.traces import writers
from ingest.traces.database import conninfo
from ingest.traces.writers import Writer
from nccl_instrument.tables import empty_rows
from nccl_instrument.wire import TraceBatch, encode_batch
from tests.builders import SECOND, WALL_NS, FakeJob, with_rows
from tests.ingest.conftest import Ingest
from tests.ingest.cut import CuttingProxy
from tests.ingest.oracle import assert_exact, is_exact, n_stored, recover, recovered, rolled_up, stored_totals
from tests.ingest.test_outage import free_port, post, start_process
from tests.servers import TestServers

SENT_AT = datetime.fromtimestamp(WALL_NS / 1e9, UTC)
pytestmark = pytest.mark.usefixtures("no_writers")


# ---- processes killed under load ---------------------------------------------------------------------------------------


class Senders:
    """Agents, one a thread, each sending its batches in order to either process until it is told that they are stored."""

    def __init__(self, token: str, ports: list[int], job: FakeJob) -> None:
        self._given = (token, ports, job)
        self._stopped = threading.Event()
        self._acknowledged = [0] * job.nodes
        self._threads = [threading.Thread(target=self._send, args=(node,)) for node in range(job.nodes)]
        for thread in self._threads:
            thread.start()

    @property
    def n_acknowledged(self) -> int:
        return sum(self._acknowledged)

    def wait_for(self, n_more: int) -> None:
        wanted = self.n_acknowledged + n_more
        while self.n_acknowledged < wanted and any(thread.is_alive() for thread in self._threads):
            time.sleep(0.01)

    def stop(self) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join()

    def _send(self, node: int) -> None:
        token, ports, job = self._given
        number = 0
        while not self._stopped.is_set() and number < 3000:
            body, turn = encode_batch(job.batch(node, number)), node + number
            while not was_stored(ports[turn % 2], token, body):
                turn += 1
                time.sleep(0.02)
            number += 1
            self._acknowledged[node] = number
            time.sleep(0.02)


def was_stored(port: int, token: str, body: bytes) -> bool:
    try:
        return post(port, token, body)[0] == 200
    except OSError:
        return False


def test_two_processes_killed_in_turn_under_load_lose_no_op(postgres: TestServers) -> None:
    token = make_agent_token(Team.objects.create(name="research"), "cluster")
    ports = [free_port(), free_port()]
    running: dict[int, subprocess.Popen[bytes]] = {}
    try:
        for port in ports:
            running[port] = start_process(postgres, port)
        senders = Senders(token, ports, FakeJob())
        for turn in range(3):
            senders.wait_for(60)
            port = ports[turn % 2]
            running[port].send_signal(signal.SIGKILL)
            running[port].wait(20)
            running[port] = start_process(postgres, port)
        senders.wait_for(60)
        senders.stop()
        assert n_stored() == senders.n_acknowledged > 240
        wait_until_exact()
    finally:
        stop(list(running.values()))
    assert_exact(senders.n_acknowledged)
    assert recover() == 0


def wait_until_exact() -> None:
    """The living processes find what the dead ones left: nobody asks them to."""
    give_up_at = time.monotonic() + 40
    while rolled_up() != stored_totals() and time.monotonic() < give_up_at:
        time.sleep(0.5)


def stop(running: list[subprocess.Popen[bytes]]) -> None:
    for process in running:
        process.terminate()
    for process in running:
        process.wait(20)


def test_a_process_that_stops_in_peace_leaves_nothing(postgres: TestServers) -> None:
    token = make_agent_token(Team.objects.create(name="research"), "cluster")
    port = free_port()
    process = start_process(postgres, port)
    for number in range(5):
        assert post(port, token, encode_batch(FakeJob().batch(0, number)))[0] == 200
    stop([process])
    assert_exact(5)
    assert recover() == 0


# ---- commits and flushes whose answer is lost --------------------------------------------------------------------------


@pytest.fixture
async def cut(
    postgres: TestServers, transactional_db: None, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[CuttingProxy]:
    """Ingest's connections go through a proxy that can cut them; the test's own do not."""
    with tempfile.TemporaryDirectory(prefix="cut-") as folder:
        proxy = CuttingProxy(Path(folder), postgres.folder / ".s.PGSQL.5432")
        through = make_conninfo(conninfo(), host=folder)
        monkeypatch.setattr("ingest.traces.database.conninfo", lambda: through)
        yield proxy
        proxy.close()


def is_store(said: bytes) -> bool:
    return b"ingest_trace_batch" in said


def is_flush(said: bytes) -> bool:
    return b"INTO ingest_oprollup" in said


@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_batch_whose_commit_was_not_answered_counts_once(cut: CuttingProxy, ingest: Ingest, how: str) -> None:
    job = FakeJob()
    await ingest.send(job.batch(0, 0))
    cut.is_target, cut.cut_next = is_store, how
    for number in range(4):
        while (await ingest.send(job.batch(0, number))).status != 200:
            await asyncio.sleep(0.05)
    assert cut.n_cut == 1
    await ingest.write_ledger()
    await recovered()
    await is_exact(4)


@pytest.mark.parametrize("how", ["before", "after"])
async def test_sums_whose_writing_was_not_answered_count_once(cut: CuttingProxy, ingest: Ingest, how: str) -> None:
    job = FakeJob()
    for number in range(6):
        await ingest.send(job.batch(0, number))
        cut.is_target, cut.cut_next = is_flush, how if number in (1, 4) else ""
        try:
            await ingest.write_ledger()
        except Exception as error:
            assert "connection" in str(error)
    assert cut.n_cut == 2
    await ingest.write_ledger()
    await recovered()
    await is_exact(6)


async def test_backends_terminated_again_and_again_cost_no_op(ingest: Ingest) -> None:
    job = FakeJob()
    for number in range(30):
        sending = [asyncio.create_task(send_until_stored(ingest, job.batch(node, number))) for node in range(4)]
        if number % 3 == 0:
            await asyncio.sleep(0.002 * (number % 5))
            await sync_to_async(terminate_backends)()
        await asyncio.gather(*sending)
    await asyncio.sleep(1.5)
    await recovered()
    await is_exact(120)


async def send_until_stored(ingest: Ingest, batch: TraceBatch) -> None:
    for _ in range(200):
        if (await ingest.send(batch)).status == 200:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("never stored")


def terminate_backends() -> None:
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE pid <> pg_backend_pid() AND datname = current_database()"
        )


# ---- who sums what -----------------------------------------------------------------------------------------------------


async def test_a_living_process_taken_for_dead_starts_anew_and_nothing_counts_twice(ingest: Ingest) -> None:
    job = FakeJob()
    for number in range(3):
        await ingest.send(job.batch(0, number))
    assert await recovered() > 0
    await ingest.send(job.batch(0, 3))
    await ingest.write_ledger()
    await ingest.send(job.batch(0, 4))
    await ingest.write_ledger()
    await recovered()
    await is_exact(5)


async def test_several_who_sum_what_is_left_at_once_sum_it_once(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums, "LEFT_ROWS_MAX", 5)
    job = FakeJob()
    for number in range(20):
        await ingest.send(job.batch(0, number))
    done = await asyncio.gather(*(asyncio.to_thread(recover) for _ in range(4)))
    assert 0 < sum(done) <= 20
    await is_exact(20)


async def test_a_frozen_process_commits_nothing_more_under_its_old_name(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = FakeJob()
    await ingest.send(job.batch(0, 0))
    monkeypatch.setattr(writers, "UNWRITTEN_SECONDS_MAX", 0.0)
    await ingest.send(job.batch(0, 1))
    assert await sync_to_async(n_writers)() == 2
    await recovered()
    await is_exact(2)


def n_writers() -> int:
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(DISTINCT writer_id) FROM ingest_trace_batch")
        return int(cursor.fetchone()[0])


async def test_a_commit_that_is_not_summed_here_for_whatever_reason_is_read_from_the_store(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = FakeJob()
    await ingest.send(job.batch(0, 0))
    with monkeypatch.context() as broken:
        broken.setattr(Writer, "stored", lambda *_: 1 / 0)
        assert (await ingest.send(job.batch(0, 1))).status == 503
    assert (await ingest.send(job.batch(0, 1))).body["duplicate"]
    await ingest.write_ledger()
    await recovered()
    await is_exact(2)


async def test_a_commit_nobody_speaks_of_again_ends_the_life_it_was_begun_in(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = await ingest.application.server()
    async with server.pool.connection() as connection:
        begun = await server.ledger.writer.begin(connection)
        assert (await server.ledger.writer.begin(connection)).life is begun.life
        begun.life.begun[begun.number] -= writers.UNWRITTEN_SECONDS_MAX + 1
        assert (await server.ledger.writer.begin(connection)).life is not begun.life


async def test_when_more_waits_than_may_it_is_dropped_and_read_again(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "WAITING_ROWS_MAX", 40)
    job = FakeJob()
    for number in range(7):
        await ingest.send(job.batch(0, number))
    await ingest.write_ledger()
    await recovered()
    await is_exact(7)


async def test_many_sums_are_written_less_often_and_all_when_the_process_stops(
    ingest: Ingest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writers, "EAGER_SUMS_MAX", 1)
    await ingest.send(FakeJob().batch())
    await ingest.write_ledger()
    assert await OpRollup.objects.acount() == 0
    await ingest.application.stop()
    await is_exact(1)


async def test_sums_of_a_deleted_attempt_hold_up_no_other(ingest: Ingest) -> None:
    await ingest.send(FakeJob().batch())
    await ingest.send(FakeJob(name="other").batch())
    await Attempt.objects.filter(job__name="llama").adelete()
    await ingest.write_ledger()
    assert await OpRollup.objects.filter(attempt__job__name="other").acount() > 0


async def test_late_ops_start_a_new_part_and_add_up(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "KEPT_SECONDS", -1.0)
    job = FakeJob()
    for number in (0, 40, 1, 80, 41, 2):
        await ingest.send(job.batch(0, number), at_ns=job.batch(0, 80).wall_ns + SECOND)
        await ingest.write_ledger()
    assert (
        await OpRollup.objects.values("part").distinct().acount()
        > await OpRollup.objects.values("attempt_id", "comm_id", "func", "bucket_ns").distinct().acount()
    )
    await is_exact(6)


async def test_ops_that_found_no_room_are_shown(ingest: Ingest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "SUMS_MAX", 1)
    await ingest.send(FakeJob().batch())
    await ingest.write_ledger()
    assert (await ingest.health())["ops_not_summed"] == 8
    assert await recovered() == 0  # counted is dealt with


def test_commit_numbers_are_kept_as_ranges() -> None:
    assert as_multirange([]) == "{}"
    assert as_multirange([5, 3, 4, 9, 11, 10]) == "{[3,6),[9,12)}"


async def test_batches_without_ops_are_marked_as_summed(ingest: Ingest) -> None:
    await ingest.send(with_rows(FakeJob().batch(), op=empty_rows("op"), comm=empty_rows("comm")))
    await ingest.send(FakeJob().batch(0, 1))
    assert await recovered() > 0
    assert await recovered() == 0
