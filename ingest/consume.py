"""The Kafka road's other end: messages of a topic through ingest's own decoding, duplicates and acknowledgement.

A handful of messages is taken, each goes where an HTTP request's body would go, and only when the database has
committed all of them are their offsets committed. So a crash, a rebalance or a lost broker brings messages again and
never loses one; what comes again is known by its number and changes nothing. What will never be taken is counted and
stepped over; while the database is away the same messages are tried again and the partitions wait.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg_pool import PoolTimeout

from ingest.door.auth import Unauthorised
from ingest.door.metrics import KAFKA_LAG, KAFKA_MESSAGES
from ingest.door.receive import AGE_NS_MAX, take_batch
from ingest.door.server import Server
from nccl_instrument.sealed import AGE_HEADER, KEY_HEADER, SEAL_HEADER

try:
    import confluent_kafka
except ImportError:  # an extra
    confluent_kafka = None  # type: ignore[assignment]

MISSING: Final = "Reading from Kafka needs the package confluent-kafka: pip install '.[server,kafka]'"
HANDFUL: Final = 128
AT_ONCE: Final = 64
POLL_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 0.2
PAUSE_SECONDS_MAX: Final = 2.0
FAILED_TRIES: Final = 5  # of a message that the database refuses while it takes others
NOT_NOW: Final = frozenset({429, 503, 507})
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Sent:
    """A message as far as it matters. appended_ns: when a broker wrote it, by the broker's clock; None: nobody knows."""

    body: bytes
    headers: Mapping[str, str]
    appended_ns: int | None

    def age_ns(self, now_ns: int) -> int | None:
        """How long ago the batch was cut: until it was sent, as the agent says, and since, as the broker does."""
        said = self.headers.get(AGE_HEADER, "")
        if self.appended_ns is None or not (said.isascii() and said.isdigit()) or len(said) > 18:
            return None
        return min(int(said) + max(now_ns - self.appended_ns, 0), AGE_NS_MAX)


class Consumption:
    """One consumer of a group, until `stop`. n_stored, …: what became of messages since it began."""

    def __init__(self, server: Server, consumer: Any) -> None:
        self._server, self._consumer = server, consumer
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ingest-kafka")
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> None:
        """Consume until stopped. Messages that were taken and not stored by then come again to whoever consumes next."""
        try:
            while not self._stopping.is_set():
                messages = await self._in_thread(self._consumer.consume, HANDFUL, POLL_SECONDS)
                if messages:
                    await self._take_all(messages)
        finally:
            await self._in_thread(self._consumer.close)
            self._thread.shutdown()

    async def _take_all(self, messages: Sequence[Any]) -> None:
        """Store a handful, however often it takes, and commit its offsets then."""
        waiting = {number: _sent(one) for number, one in enumerate(messages) if not _is_error(one)}
        tries: dict[int, int] = dict.fromkeys(waiting, 0)
        pause_s = PAUSE_SECONDS
        while waiting and not self._stopping.is_set():
            outcomes = await asyncio.gather(*(self._take(sent, tries[number]) for number, sent in waiting.items()))
            for number, outcome in zip(list(waiting), outcomes, strict=True):
                tries[number] += outcome == "failed"
                if outcome not in ("not now", "failed"):
                    KAFKA_MESSAGES.labels(outcome).inc()
                    del waiting[number]
            if waiting:
                await self._wait(pause_s)
                pause_s = min(pause_s * 2, PAUSE_SECONDS_MAX)
        if not waiting:
            await self._in_thread(self._commit, messages)

    async def _take(self, sent: Sent, n_tries: int) -> str:
        """What became of a message: stored, repeated, refused, unknown; or not now, failed."""
        async with self._at_once:
            now_ns = time.time_ns()
            try:
                key, said = sent.headers.get(KEY_HEADER, ""), sent.headers.get(SEAL_HEADER, "")
                bearer = await self._server.tokens.bearer_of_seal(key, said, sent.body)
            except Unauthorised:
                return "unknown"
            except (psycopg.Error, PoolTimeout):
                return "not now"
            self._server.ledger.tokens_used.add(bearer.token_id)
            answer = await take_batch(self._server, bearer, sent.body, now_ns, sent.age_ns(now_ns))
        if answer.status == 200:
            return "repeated" if answer.body["duplicate"] else "stored"
        if answer.status in NOT_NOW or (answer.status >= 500 and n_tries + 1 < FAILED_TRIES):
            return "not now" if answer.status in NOT_NOW else "failed"
        return "refused"

    async def _wait(self, seconds: float) -> None:
        """Pause without leaving the group: brokers take a consumer that does not ask for long for dead."""
        await self._in_thread(self._keep_place)
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    def _keep_place(self) -> None:
        places = self._consumer.assignment()
        try:
            self._consumer.pause(places)
            self._consumer.poll(0)
            self._consumer.resume(places)
        except confluent_kafka.KafkaException as error:
            log.warning("Kafka: %s", error.args[0].str())

    def _commit(self, messages: Sequence[Any]) -> None:
        """A commit that is refused, by a rebalance say, brings the messages again, to us or to another."""
        ends: dict[tuple[str, int], int] = {}
        for one in messages:
            if not _is_error(one):
                place = one.topic(), one.partition()
                ends[place] = max(ends.get(place, 0), one.offset() + 1)
        if not ends:
            return
        try:
            self._consumer.commit(
                offsets=[confluent_kafka.TopicPartition(*place, end) for place, end in ends.items()], asynchronous=False
            )
        except confluent_kafka.KafkaException as error:
            log.warning("Kafka took no offsets, so these messages come again: %s", error.args[0].str())
        self._note_lag(ends)

    def _note_lag(self, ends: Mapping[tuple[str, int], int]) -> None:
        lag = 0
        for place, end in ends.items():
            _, high = self._consumer.get_watermark_offsets(confluent_kafka.TopicPartition(*place), cached=True)
            lag += max(high - end, 0)
        KAFKA_LAG.set(lag)

    async def _in_thread(self, call: Any, *given: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call, *given)


def make_consumer(servers: str, topic: str, group: str, config: Mapping[str, str]) -> Any:
    """A consumer that commits nothing by itself. Raises ValueError."""
    if confluent_kafka is None:
        raise ValueError(MISSING)
    ours = {
        "group.id": group, "enable.auto.commit": "false", "auto.offset.reset": "earliest", "client.id": "diogenes-ingest",
        "partition.assignment.strategy": "cooperative-sticky", "queued.max.messages.kbytes": "65536",
    }  # fmt: skip
    try:
        consumer = confluent_kafka.Consumer({**ours, **config, "bootstrap.servers": servers}, logger=log)
        consumer.subscribe([topic])
    except confluent_kafka.KafkaException as error:
        raise ValueError(f"Kafka: {error.args[0].str()}") from error
    return consumer


def _is_error(message: Any) -> bool:
    """Not a message but a notice: a broker is away, a topic is not there yet. The client goes on trying by itself."""
    if message.error() is None:
        return False
    log.warning("Kafka: %s", message.error().str())
    return True


def _sent(message: Any) -> Sent:
    headers = {name: _text(value) for name, value in message.headers() or ()}
    kind, stamp_ms = message.timestamp()
    is_brokers = kind == confluent_kafka.TIMESTAMP_LOG_APPEND_TIME
    return Sent(message.value() or b"", headers, stamp_ms * 1_000_000 if is_brokers else None)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value or "")
