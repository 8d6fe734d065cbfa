"""The whole Kafka road as it is shipped: a trainer, `python -m nccl_instrument.agent`, brokers, `manage.py consume`, rows.

Every part is a process of its own but the brokers (librdkafka's mock cluster). Brokers go away, the consumer is killed between
the database's commit and the offsets': each batch is stored once and none is missing.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import confluent_kafka
import pytest
from django.db import connection

from console.supervisor.processes import ROOT
from console.supervisor.servers import database_url
from ingest.door.tokens import make_agent_token
from ingest.models import Attempt, Team
from ingest.read import read_window
from tests.ingest.conftest import no_traces
from tests.kafka.cluster import OFFSET_COMMIT, TIMED_OUT, Cluster
from tests.nccl_instrument.agent.scripted_server import wait_until
from tests.nccl_instrument.agent.scripted_trainer import ScriptedTrainer
from tests.servers import TestServers

__all__ = ["no_traces"]  # a fixture
TOPIC = "diogenes.batches"
QUICK = "reconnect.backoff.max.ms=500\nretry.backoff.ms=50\nretry.backoff.max.ms=200\ntopic.metadata.refresh.interval.ms=500\n"
DEADLINE_S = 60.0
NOWHERE = "http://127.0.0.1:9"
"""The console's address, which this node cannot reach: only wishes for dumps are missing."""


@dataclass
class Road:
    """What runs, and what was stored."""

    folder: Path
    cluster: Cluster
    database: str
    running: list[subprocess.Popen[bytes]] = field(default_factory=list)
    trainers: list[ScriptedTrainer] = field(default_factory=list)

    def start(self, name: str, *command: str) -> subprocess.Popen[bytes]:
        environment = os.environ | {
            "UPLINK": "kafka", "DIOGENES_KAFKA_SERVERS": self.cluster.servers, "DIOGENES_KAFKA_TOPIC": TOPIC,
            "DIOGENES_KAFKA_CONFIG": str(self.folder / f"{name}.properties"), "DATABASE_URL": self.database,
            "DIOGENES_SEGMENT_DIR": str(self.folder / "segments"), "DIOGENES_SERVER": NOWHERE,
            "DIOGENES_TOKEN_FILE": str(self.folder / "token"),
        }  # fmt: skip
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment, stdout=log, stderr=log)
        self.running.append(process)
        return process

    def start_agent(self) -> subprocess.Popen[bytes]:
        spool = str(self.folder / "spool")
        return self.start("agent", "-m", "nccl_instrument.agent", "--node", "node-a", "--spool", spool)

    def start_consumer(self) -> subprocess.Popen[bytes]:
        return self.start("consumer", "manage.py", "consume")

    def trainer(self) -> ScriptedTrainer:
        made = ScriptedTrainer(self.folder / "segments", "job", 0)
        self.trainers.append(made)
        made.do("comm", 0, 77, 0, 2)
        return made

    def until(self, is_true: object) -> None:
        """Wait for it; what processes said is shown when it never comes."""
        try:
            wait_until(is_true, DEADLINE_S)  # type: ignore[arg-type]
        except AssertionError as error:
            said = "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in self.folder.glob("*.log"))
            raise AssertionError(f"{error}\n{numbers()}\n{said}") from error

    def committed(self) -> int:
        """Messages whose offsets the group has committed."""
        reader = confluent_kafka.Consumer({"bootstrap.servers": self.cluster.servers, "group.id": "diogenes"})
        try:
            places = [confluent_kafka.TopicPartition(TOPIC, number) for number in (0, 1)]
            return sum(max(one.offset, 0) for one in reader.committed(places, 20))
        finally:
            reader.close()

    def close(self) -> None:
        for process in self.running:
            if process.poll() is None:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(20)
                if process.poll() is None:
                    process.kill()
                    process.wait()
        for trainer in self.trainers:
            if trainer.process.poll() is None:
                trainer.kill()
        self.cluster.stop()


@pytest.fixture
def road(
    transactional_db: None, no_traces: None, postgres: TestServers, valkey: TestServers, tmp_path: Path
) -> Iterator[Road]:
    cluster = Cluster()
    cluster.make_topic(TOPIC)
    (tmp_path / "token").write_text(make_agent_token(Team.objects.create(name="research"), "cluster"))
    (tmp_path / "agent.properties").write_text(QUICK)
    (tmp_path / "consumer.properties").write_text(QUICK + "session.timeout.ms=6000\nheartbeat.interval.ms=500\n")
    made = Road(tmp_path, cluster, database_url(postgres.folder, connection.settings_dict["NAME"]))
    yield made
    made.close()
    with connection.cursor() as cursor:
        cursor.execute("TRUNCATE ingest_trace_batch, ingest_pinned_batch")


def numbers() -> list[int]:
    """Of the batches that are stored, each as often as it is."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT number FROM ingest_trace_batch ORDER BY number")
        return [number for (number,) in cursor.fetchall()]


def ops_stored() -> Counter[int]:
    """Number of each op whose completion is stored → how often."""
    attempt = Attempt.objects.values_list("pk", flat=True).first()
    if attempt is None:
        return Counter()
    window = read_window(attempt, 0, 2**62, ("op",))
    return Counter(int(op) for op in window.rows("op")["op"])


def run_ops(trainer: ScriptedTrainer, first: int, last: int) -> None:
    for op in range(first, last + 1):
        trainer.do("start_op", 0, 0, op)
        trainer.do("move", 0)
        trainer.do("finish_op", 0)


def test_each_op_is_stored_once_though_brokers_go_away_and_come_back(road: Road) -> None:
    trainer, agent = road.trainer(), road.start_agent()
    consumer = road.start_consumer()
    run_ops(trainer, 1, 5)
    road.until(lambda: ops_stored() == Counter(range(1, 6)))
    road.cluster.take_down()
    run_ops(trainer, 6, 10)
    road.until(lambda: any((road.folder / "spool").rglob("*")) and _spooled(road) >= 3)
    road.cluster.bring_up(1, 2, 3)
    run_ops(trainer, 11, 12)
    road.until(lambda: ops_stored() == Counter(range(1, 13)))
    stored = numbers()
    assert stored == list(range(stored[0], stored[0] + len(stored)))
    assert (agent.poll(), consumer.poll()) == (None, None)


def _spooled(road: Road) -> int:
    """Files that the agent keeps for later."""
    return sum(1 for path in (road.folder / "spool").rglob("*") if path.is_file())


def test_a_consumer_killed_between_the_two_commits_doubles_nothing_and_loses_nothing(road: Road) -> None:
    """Brokers take no offsets, so the rows are in the database and the offsets are not; then the process is killed."""
    road.cluster.fail_next(OFFSET_COMMIT, *[TIMED_OUT] * 5000)
    trainer, agent = road.trainer(), road.start_agent()
    first = road.start_consumer()
    run_ops(trainer, 1, 5)
    road.until(lambda: ops_stored() == Counter(range(1, 6)))
    first.send_signal(signal.SIGKILL)
    assert first.wait(20) == -signal.SIGKILL
    road.cluster.forgive(OFFSET_COMMIT)
    before = numbers()
    assert before and road.committed() == 0
    run_ops(trainer, 6, 8)
    road.start_consumer()
    road.until(lambda: ops_stored() == Counter(range(1, 9)))
    road.until(lambda: road.committed() >= len(before))
    stored = numbers()
    assert stored == list(range(stored[0], stored[0] + len(stored))) and set(before) <= set(stored)
    assert agent.poll() is None


def test_a_consumer_that_is_told_to_stop_commits_what_it_stored_and_ends_well(road: Road) -> None:
    trainer = road.trainer()
    road.start_agent()
    consumer = road.start_consumer()
    run_ops(trainer, 1, 3)
    road.until(lambda: ops_stored() == Counter(range(1, 4)))
    consumer.send_signal(signal.SIGTERM)
    assert consumer.wait(30) == 0
    assert road.committed() >= 1
