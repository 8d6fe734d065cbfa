"""The Kafka road, from an agent's uplink to rows in the database, on librdkafka's mock cluster.

Whatever is lost on the way, brokers, the database, the consumer, each batch is stored once and none is missing.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from asgiref.sync import sync_to_async
from django.db import connection, connections

from ingest import consume
from ingest.consume import Consumption, make_consumer
from ingest.door.metrics import KAFKA_MESSAGES
from ingest.door.server import Server
from ingest.door.tokens import make_agent_token
from ingest.models import AgentToken, Team
from ingest.traces.committer import StoreAway
from nccl_instrument.agent.sending import uplink as uplink_module
from nccl_instrument.agent.sending.kafka import KafkaDoor
from nccl_instrument.agent.sending.losses import Losses
from nccl_instrument.agent.sending.spool import Spool
from nccl_instrument.agent.sending.uplink import Uplink
from nccl_instrument.sealed import KEY_HEADER, SEAL_HEADER, key_id, seal, sealing_key
from nccl_instrument.wire import encode_batch
from tests.builders import FakeJob
from tests.ingest.conftest import no_traces
from tests.kafka.cluster import NOT_LEADER, PRODUCE, TIMED_OUT, Cluster

__all__ = ["no_traces"]  # a fixture
TOPIC = "diogenes.batches"
QUICK = {"topic.metadata.refresh.interval.ms": "500", "reconnect.backoff.max.ms": "500", "retry.backoff.ms": "50"}
DEADLINE_S = 40.0


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster()
    made.make_topic(TOPIC)
    yield made
    made.stop()


@pytest.fixture
def token(transactional_db: None, no_traces: None) -> str:
    return make_agent_token(Team.objects.create(name="research"), "cluster")


@pytest.fixture
async def server(token: str) -> AsyncIterator[Server]:
    running = Server()
    await running.start()
    yield running
    await running.stop()
    await sync_to_async(connections.close_all)()


@pytest.fixture
def door(cluster: Cluster, token: str, tmp_path: Path) -> Iterator[KafkaDoor]:
    file = tmp_path / "token"
    file.write_text(token + "\n")
    made = KafkaDoor(cluster.servers, TOPIC, file, QUICK, timeout_s=20)
    yield made
    made.close()


class Consumed:
    """A consumer that runs beside the test, as another process would."""

    def __init__(self, server: Server, cluster: Cluster) -> None:
        self.work = Consumption(
            server, make_consumer(cluster.servers, TOPIC, "diogenes", {**QUICK, "session.timeout.ms": "6000"})
        )
        self.running = asyncio.create_task(self.work.run())

    async def stop(self) -> None:
        self.work.stop()
        await asyncio.wait_for(self.running, DEADLINE_S)

    async def until(self, is_so: Callable[[], bool]) -> None:
        """Wait for it; what makes the consumer end is raised here."""
        deadline = time.monotonic() + DEADLINE_S
        while not await sync_to_async(is_so)():
            assert time.monotonic() < deadline, "it did not become so in time"
            if self.running.done():
                self.running.result()
            await asyncio.sleep(0.1)


def stored() -> list[int]:
    """Numbers of the batches in the database."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT number FROM ingest_trace_batch ORDER BY number")
        return [number for (number,) in cursor.fetchall()]


def bodies(n: int) -> list[bytes]:
    """Batches of one node, cut in the last seconds."""
    job, now_ns, mono_ns = FakeJob(), time.time_ns(), time.monotonic_ns()
    made = []
    for number in range(n):
        batch = job.batch(0, number)
        shift = mono_ns - (n - number) * 1_000_000 - batch.mono_ns
        rows = {name: table for name, table in batch.tables.items() if name == "comm"}
        made.append(
            encode_batch(
                type(batch)(batch.job, batch.node, batch.boot_id, number, now_ns - (n - number) * 1_000_000,
                            batch.mono_ns + shift, rows)
            )
        )  # fmt: skip
    return made


async def post(door: KafkaDoor, encoded: bytes) -> Any:
    return await asyncio.to_thread(door.post, encoded)


async def test_what_agents_hand_to_kafka_is_stored(cluster: Cluster, server: Server, door: KafkaDoor) -> None:
    consumed = Consumed(server, cluster)
    for encoded in bodies(12):
        assert (await post(door, encoded)).is_accepted
    await consumed.until(lambda: stored() == list(range(12)))
    await consumed.stop()
    assert server.ledger.batches_stored == 12


async def test_what_is_delivered_again_changes_nothing(cluster: Cluster, server: Server, door: KafkaDoor) -> None:
    consumed, sent = Consumed(server, cluster), bodies(3)
    repeated = KAFKA_MESSAGES.labels("repeated")._value.get()
    for encoded in [*sent, *sent, sent[0]]:
        await post(door, encoded)
    await consumed.until(lambda: KAFKA_MESSAGES.labels("repeated")._value.get() == repeated + 4)
    assert await sync_to_async(stored)() == [0, 1, 2]
    await consumed.stop()


async def test_offsets_are_committed_only_after_the_database_has(
    cluster: Cluster, server: Server, door: KafkaDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A consumer that dies between the two leaves the messages to the next one."""
    monkeypatch.setattr(Consumption, "_commit", lambda self, messages: None)
    first = Consumed(server, cluster)
    for encoded in bodies(4):
        await post(door, encoded)
    await first.until(lambda: len(stored()) == 4)
    await first.stop()
    monkeypatch.undo()
    repeated = KAFKA_MESSAGES.labels("repeated")._value.get()
    second = Consumed(server, cluster)
    await second.until(lambda: KAFKA_MESSAGES.labels("repeated")._value.get() == repeated + 4)
    await second.stop()
    third = Consumed(server, cluster)
    await post(door, bodies(5)[4])
    await third.until(lambda: len(stored()) == 5)
    assert KAFKA_MESSAGES.labels("repeated")._value.get() == repeated + 4
    await third.stop()


async def test_while_the_database_is_away_messages_wait_and_nothing_is_committed(
    cluster: Cluster, server: Server, door: KafkaDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, n_refused = server.committer.submit, 0

    def away(arrival: Any) -> Any:
        nonlocal n_refused
        n_refused += 1
        refused = asyncio.get_running_loop().create_future()
        refused.set_exception(StoreAway("gone"))
        return refused

    monkeypatch.setattr(server.committer, "submit", away)
    consumed = Consumed(server, cluster)
    for encoded in bodies(3):
        await post(door, encoded)
    await consumed.until(lambda: n_refused >= 6)
    assert await sync_to_async(stored)() == []
    monkeypatch.setattr(server.committer, "submit", real)
    await consumed.until(lambda: stored() == [0, 1, 2])
    await consumed.stop()


async def test_a_stop_while_the_database_is_away_leaves_the_messages_to_the_next(
    cluster: Cluster, server: Server, door: KafkaDoor, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = asyncio.Event()

    async def away(*given: Any) -> Any:
        tried.set()
        return type("Said", (), {"status": 503, "body": {}})()

    monkeypatch.setattr(consume, "take_batch", away)
    first = Consumed(server, cluster)
    await post(door, bodies(1)[0])
    await asyncio.wait_for(tried.wait(), DEADLINE_S)
    await first.stop()
    monkeypatch.undo()
    second = Consumed(server, cluster)
    await second.until(lambda: stored() == [0])
    await second.stop()


async def test_losing_one_broker_loses_nothing(cluster: Cluster, server: Server, door: KafkaDoor) -> None:
    consumed, sent = Consumed(server, cluster), bodies(9)
    for encoded in sent[:3]:
        await post(door, encoded)
    await consumed.until(lambda: len(stored()) == 3)
    cluster.take_down(1)
    for encoded in sent[3:6]:
        with contextlib.suppress(OSError):  # its leader is the one that is away: the uplink would keep it
            await post(door, encoded)
    cluster.bring_up(1)
    for encoded in sent[3:]:
        await post_until_taken(door, encoded)
    await consumed.until(lambda: stored() == list(range(9)))
    await consumed.stop()


async def post_until_taken(door: KafkaDoor, encoded: bytes) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        try:
            await post(door, encoded)
            return
        except OSError:
            await asyncio.sleep(0.2)
    raise AssertionError("no broker took it in time")


async def test_while_all_brokers_are_away_batches_wait_in_the_spool_and_arrive_once(
    cluster: Cluster, server: Server, token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent's own uplink, thread and spool, with Kafka where the server's address would be."""
    for name in ("BACKOFF_S", "BACKOFF_S_MAX"):
        monkeypatch.setattr(uplink_module, name, 0.2)
    file = tmp_path / "token"
    file.write_text(token)
    spool = Spool(tmp_path / "spool", 2**22)
    uplink = Uplink(KafkaDoor(cluster.servers, TOPIC, file, QUICK, timeout_s=3), spool, Losses())
    consumed, sent = Consumed(server, cluster), bodies(6)
    uplink.start()
    try:
        uplink.offer("llama", sent[0])
        await consumed.until(lambda: stored() == [0])
        cluster.take_down()
        for encoded in sent[1:]:
            uplink.offer("llama", encoded)
        await consumed.until(lambda: len(spool) == 5)
        cluster.bring_up()
        await consumed.until(lambda: stored() == list(range(6)) and len(spool) == 0)
    finally:
        await asyncio.to_thread(uplink.stop)
        await consumed.stop()
        spool.close()


async def test_errors_that_pass_are_tried_again_by_the_client(
    cluster: Cluster, server: Server, door: KafkaDoor
) -> None:
    consumed = Consumed(server, cluster)
    cluster.fail_next(PRODUCE, NOT_LEADER, TIMED_OUT)
    assert (await post(door, bodies(1)[0])).is_accepted
    await consumed.until(lambda: stored() == [0])
    await consumed.stop()


async def test_what_cannot_be_taken_is_counted_and_keeps_nobody_waiting(
    cluster: Cluster, server: Server, token: str, door: KafkaDoor
) -> None:
    """Bytes that are no batch, seals of other bytes, tokens nobody has, and no headers at all."""
    unknown, refused = (KAFKA_MESSAGES.labels(name)._value.get() for name in ("unknown", "refused"))
    producer, key, good = (
        confluent_kafka.Producer({"bootstrap.servers": cluster.servers}),
        sealing_key(token),
        bodies(1)[0],
    )
    theirs = sealing_key("dga_of-somebody-else")
    for body, headers in (
        (b"no batch", {KEY_HEADER: key_id(key), SEAL_HEADER: seal(key, b"no batch")}),
        (good, {KEY_HEADER: key_id(key), SEAL_HEADER: seal(key, b"other bytes")}),
        (good, {KEY_HEADER: key_id(theirs), SEAL_HEADER: seal(theirs, good)}),
        (good, {}),
    ):
        producer.produce(TOPIC, body, headers=list(headers.items()), partition=0)
    assert await asyncio.to_thread(producer.flush, 20) == 0
    consumed = Consumed(server, cluster)
    await post(door, good)
    await consumed.until(lambda: stored() == [0])
    await consumed.until(lambda: KAFKA_MESSAGES.labels("unknown")._value.get() == unknown + 3)
    await consumed.until(lambda: KAFKA_MESSAGES.labels("refused")._value.get() == refused + 1)
    await consumed.stop()


async def test_a_revoked_token_seals_nothing_any_more(cluster: Cluster, server: Server, door: KafkaDoor) -> None:
    await AgentToken.objects.all().adelete()
    unknown = KAFKA_MESSAGES.labels("unknown")._value.get()
    consumed = Consumed(server, cluster)
    await post(door, bodies(1)[0])
    await consumed.until(lambda: KAFKA_MESSAGES.labels("unknown")._value.get() == unknown + 1)
    assert await sync_to_async(stored)() == []
    await consumed.stop()


async def test_two_consumers_share_the_partitions_and_one_goes_on_alone(
    cluster: Cluster, server: Server, door: KafkaDoor
) -> None:
    first, second, sent = Consumed(server, cluster), Consumed(server, cluster), bodies(8)
    for encoded in sent[:4]:
        await post(door, encoded)
    await first.until(lambda: len(stored()) == 4)
    await first.stop()
    for encoded in sent[4:]:
        await post(door, encoded)
    await second.until(lambda: stored() == list(range(8)))
    await second.stop()


async def test_nothing_in_the_topic_tells_the_token(cluster: Cluster, token: str, door: KafkaDoor) -> None:
    await post(door, bodies(1)[0])
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": cluster.servers, "group.id": "x", "auto.offset.reset": "earliest"}
    )
    reader.subscribe([TOPIC])
    try:
        (message,) = await asyncio.to_thread(reader.consume, 1, 20)
        told = b"".join(
            [message.key() or b"", message.value() or b"", *(value for _, value in message.headers() or ())]
        )
    finally:
        await asyncio.to_thread(reader.close)
    assert token.encode() not in told and sealing_key(token).encode() not in told
