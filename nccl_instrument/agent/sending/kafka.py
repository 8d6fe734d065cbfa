"""The Kafka road: the same uplink, with a topic where the server's address would be.

`KafkaDoor.post` hands over one batch and returns when all in-sync replicas have it, so that the spool, its bounds and
its order stay the uplink's business. A broker cannot answer as ingest does, so what else ingest says in its answers is
had otherwise: members are told again every minute, and wishes for dumps are fetched over HTTP every few seconds.
Needs the package confluent-kafka (`pip install '.[kafka]'`); an agent without it works as ever, by HTTP.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

from nccl_instrument.agent.sending.post import Answer, Door, age_of
from nccl_instrument.sealed import AGE_HEADER, KEY_HEADER, SEAL_HEADER, key_id, seal, sealing_key
from nccl_instrument.wire import BATCH_BYTES_MAX, claimed_names

try:
    import confluent_kafka
except ImportError:  # an extra: only who sets UPLINK=kafka needs it
    confluent_kafka = None  # type: ignore[assignment]

LOG: Final = logging.getLogger("diogenes.agent")
TOPIC: Final = "diogenes.batches"
TIMEOUT_S: Final = 20.0
TOLD_AGAIN_S: Final = 60.0
ORDERS_S: Final = 5.0
MISSING: Final = "UPLINK=kafka needs the package confluent-kafka: pip install '.[kafka]'"


class KafkaDoor:
    """The way to a topic. Raises ValueError for a configuration that cannot work. timeout_s: for one batch."""

    is_plain = False  # no token travels

    def __init__(
        self, servers: str, topic: str, token_file: Path, config: Mapping[str, str], orders: Door | None = None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:  # fmt: skip
        if confluent_kafka is None:
            raise ValueError(MISSING)
        first = servers.split(",")[0].strip()
        self.host, _, port = first.rpartition(":")
        if not self.host or not port.isdigit():
            raise ValueError(f"Kafka servers are HOST:PORT, several separated by commas, not {servers!r}")
        self.port = int(port)
        self._topic, self._token_file, self._orders, self._timeout_s = topic, token_file, orders, timeout_s
        self._producer = _producer({**config, "bootstrap.servers": servers}, timeout_s)
        self._told_at: dict[str, float] = {}
        self._asked_at: dict[str, float] = {}

    def post(self, encoded: bytes) -> Answer:
        """Returns when the brokers have the batch. Raises OSError when they do not, in time."""
        sealing = sealing_key(self._token())
        headers = {KEY_HEADER: key_id(sealing), SEAL_HEADER: seal(sealing, encoded)}
        if (age := age_of(encoded)) is not None:
            headers[AGE_HEADER] = str(age)
        refused = self._hand_over(encoded, headers)
        if refused:
            return Answer(413, refused, None, (), (), is_ours=True)
        job, node = claimed_names(encoded)
        return self._answer(job, node)

    def close(self) -> None:
        self._producer.flush(0)
        if self._orders is not None:
            self._orders.close()

    def interrupt(self) -> None:
        """Make a `post` that waits in another thread fail now."""
        self._producer.purge()
        if self._orders is not None:
            self._orders.interrupt()

    def _token(self) -> str:
        """Read every time: a rotated token works without a restart."""
        try:
            token = self._token_file.read_text("ascii").strip()
        except UnicodeDecodeError as error:
            raise OSError(f"no usable token in {self._token_file}") from error
        if not token:
            raise OSError(f"no usable token in {self._token_file}")
        return token

    def _hand_over(self, encoded: bytes, headers: dict[str, str]) -> str:
        """Why the brokers will never take it, '' when they have it. Raises OSError."""
        told: list[Any] = []
        is_told = threading.Event()

        def on_delivery(error: Any, _: Any) -> None:
            told.append(error)
            is_told.set()

        job, node = claimed_names(encoded)
        try:
            self._producer.produce(
                self._topic, encoded, key=f"{job}/{node}", headers=list(headers.items()), on_delivery=on_delivery
            )
        except BufferError as error:
            raise OSError(f"Kafka: {error}") from error
        except confluent_kafka.KafkaException as error:
            return _final(error.args[0])
        give_up_at = time.monotonic() + self._timeout_s
        while not is_told.is_set() and time.monotonic() < give_up_at:
            self._producer.poll(0.1)
        if not told:
            self._producer.purge()
            raise OSError("Kafka did not take the batch in time")
        return _final(told[0]) if told[0] is not None else ""

    def _answer(self, job: str, node: str) -> Answer:
        """What ingest would have said."""
        now = time.monotonic()
        resend: tuple[str, ...] = ()
        if now - self._told_at.setdefault(job, now) >= TOLD_AGAIN_S:
            self._told_at[job], resend = now, ("comm",)
        dumps: tuple[Any, ...] = ()
        if self._orders is not None and now - self._asked_at.get(job, float("-inf")) >= ORDERS_S:
            self._asked_at[job] = now
            dumps = self._ask(job, node)
        return Answer(200, "", None, resend, (), is_ours=True, dumps=dumps)

    def _ask(self, job: str, node: str) -> tuple[Any, ...]:
        """Dumps the server asks this node for; none while it cannot be reached: batches go on without it."""
        assert self._orders is not None
        try:
            return self._orders.ask(urlencode({"job": job, "node": node})).dumps
        except OSError as error:
            LOG.debug("nobody says which dumps are wanted: %s", error)
            return ()


def read_config(path: Path | None) -> dict[str, str]:
    """librdkafka's properties from a file of `name=value` lines or a JSON object. Raises ValueError, OSError."""
    if path is None:
        return {}
    text = path.read_text("utf-8")
    if text.lstrip().startswith("{"):
        return {str(name): str(value) for name, value in json.loads(text).items()}
    lines = [line.strip() for line in text.splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    if any(not sign for _, sign, _ in pairs):
        raise ValueError(f"{path}: every line is NAME=VALUE, as in Kafka's own client files")
    return {name.strip(): value.strip() for name, _, value in pairs}


def _producer(config: Mapping[str, str], timeout_s: float) -> Any:
    ours = {
        "acks": "all",
        "enable.idempotence": "true",
        "linger.ms": "0",
        "compression.type": "none",  # a batch is compressed
        "message.timeout.ms": str(int(timeout_s * 1000)),
        "message.max.bytes": str(BATCH_BYTES_MAX + 64 * 1024),
        "queue.buffering.max.messages": "64",
    }
    try:
        return confluent_kafka.Producer({"client.id": "diogenes-agent", **ours, **config}, logger=LOG)
    except confluent_kafka.KafkaException as error:
        raise ValueError(f"Kafka: {error.args[0].str()}") from error


def _final(error: Any) -> str:
    """Why this batch will never be taken. Raises OSError where another try may do better."""
    if error.code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE:
        return f"Kafka: {error.str()}: raise max.message.bytes of the topic"
    raise OSError(f"Kafka: {error.str()}")
