"""The three addresses of a process on its own port: open for health, closed for what they found."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from ingest import process
from ingest.log_context import current_fields, name_requests
from ingest.needs import NEEDS, Missing, Need, partitions_ahead
from ingest.operations import Operations, serve
from ingest.process import process_name
from ingest.traces.database import connect
from ingest.traces.partitions import NativePartitions
from nccl_instrument.tables import LOSSES
from tests.builders import make_batch
from tests.ingest.conftest import Ingest


def fine() -> str:
    return "here"


def gone() -> str:
    raise Missing("it is not there: start it")


def read(said: Any) -> dict[str, Any]:
    return dict(json.loads(said.body))


@pytest.fixture(autouse=True)
def lively(settings: Any) -> None:
    settings.METRICS_TOKEN = "s3cret"
    process.tick()


def test_a_process_that_ticks_is_healthy_and_one_that_is_stuck_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    operations = Operations([Need("database", gone)])
    assert operations.answer("/healthz", "", False).status == 200
    monkeypatch.setattr(process, "tick_age", lambda: 60.0)
    assert operations.answer("/healthz", "", False).status == 503
    assert Operations([], ticks=False).answer("/healthz", "", False).status == 200


@pytest.mark.parametrize(
    ("needs", "status", "word"),
    [
        ([Need("database", fine)], 200, "ready"),
        ([Need("database", fine), Need("worker", gone, is_must=False)], 200, "degraded"),
        ([Need("database", gone), Need("worker", fine, is_must=False)], 503, "not ready"),
    ],
)
def test_readiness_is_as_good_as_what_the_process_cannot_do_without(needs: list[Need], status: int, word: str) -> None:
    said = Operations(needs).answer("/readyz", "Bearer s3cret", False)
    assert (said.status, read(said)["status"]) == (status, word)
    assert set(read(said)["checks"]) == {need.name for need in needs}


def test_without_the_token_nobody_learns_what_is_missing() -> None:
    operations = Operations([Need("database", gone)])
    for authorization in ("", "Bearer wrong", "Bearer s3cret2", "s3cret"):
        assert set(read(operations.answer("/readyz", authorization, False))) == {"status", "process"}
        assert operations.answer("/metrics", authorization, False).status == 401
        assert operations.answer("/metrics", authorization, True).status == 401, "the loopback door asks for it too"
    assert "start it" in str(read(operations.answer("/readyz", "Bearer s3cret", False)))


def test_with_no_token_set_only_the_loopback_door_tells(settings: Any) -> None:
    settings.METRICS_TOKEN = ""
    operations = Operations([])
    assert operations.answer("/metrics", "", True).status == 200
    assert operations.answer("/metrics", "", False).status == 401
    assert operations.answer("/metrics", "Bearer ", False).status == 401


def test_who_asks_often_is_told_what_was_found_just_now() -> None:
    asked: list[int] = []
    clock = [100.0]

    def ask() -> str:
        asked.append(1)
        return "here"

    operations = Operations([Need("database", ask)], now=lambda: clock[0])
    for _ in range(5):
        operations.answer("/readyz", "", False)
    assert len(asked) == 1
    clock[0] += 3
    operations.answer("/readyz", "", False)
    assert len(asked) == 2


async def test_requests_carry_the_callers_id_or_one_of_ours() -> None:
    seen: list[str] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        seen.append(current_fields()["request_id"])
        await send({"type": "http.response.start", "status": 200, "headers": []})

    async def ask(*given: bytes) -> bytes:
        answer: list[Any] = []

        async def send(message: Any) -> None:
            answer.append(message)

        headers = [(b"x-request-id", value) for value in given]
        await name_requests(application)({"type": "http", "headers": headers}, lambda: None, send)  # type: ignore[arg-type, return-value]
        return bytes(dict(answer[0]["headers"])[b"x-request-id"])

    assert await ask(b"agent-7:batch.12") == b"agent-7:batch.12"
    for insane in (b"short", b"x" * 65, b"two\nlines and more", b'{"a": "b c d"}'):
        assert await ask(insane) != insane
    assert len(await ask()) == 16
    assert len(set(seen)) == 6
    assert "request_id" not in current_fields()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("/x/uvicorn/__main__.py console.asgi:application --port 8000", "web"),
        ("/usr/bin/uvicorn ingest.asgi:application", "ingest"),
        ("/x/celery/__main__.py -q -A console worker --concurrency 1", "worker"),
        ("/usr/bin/celery -A console worker --queues celery --concurrency 2", "worker"),
        ("/x/celery/__main__.py -A console worker --hostname looks@%h --queues watch --concurrency 2", "looks"),
        ("/usr/bin/celery -A console worker --queues=watch", "looks"),
        ("/usr/bin/celery -A console worker -Q watch -c 2", "looks"),
        ("/usr/bin/celery -A console worker -Qurgent", "urgent"),
        ("/usr/bin/celery -A console worker -Q watch,urgent", "worker"),
        ("/usr/bin/celery -A console worker", "worker"),
        ("/usr/bin/celery -A console beat --schedule beat", "beat"),
        ("/opt/manage.py migrate --noinput", "migrate"),
        ("/usr/bin/pytest tests", "pytest"),
    ],
)
def test_a_process_knows_its_name_from_its_command(command: str, name: str) -> None:
    assert process_name(command.split()) == name


async def test_the_ingest_port_answers_all_three(ingest: Ingest) -> None:
    health = await ingest.request("GET", "/healthz", {}, [b""])
    assert (health.status, health.body["status"]) == (200, "ok")
    await (await ingest.application.server())._make_partitions()
    ready = await ingest.request("GET", "/readyz", {"authorization": "Bearer s3cret"}, [b""])
    assert ready.status == 200, ready.body
    assert {name: check["ok"] for name, check in ready.body["checks"].items()} == dict.fromkeys(
        ("database", "migrations", "room", "disk"), True
    )
    assert (await ingest.request("GET", "/metrics", {}, [b""])).status == 401
    assert (await ingest.request("POST", "/metrics", {}, [b""])).status == 405


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


async def test_batches_are_counted_once_by_what_became_of_them(ingest: Ingest) -> None:
    before = {name: counted(f"diogenes_batches_{name}_total") for name in ("stored", "repeated")}
    refused = counted("diogenes_ingest_requests_total", status="401")
    commits = counted("diogenes_commit_seconds_count")
    batch = make_batch()
    assert (await ingest.send(batch)).status == (await ingest.send(batch)).status == 200
    assert (await ingest.post(b"x", token="dga_wrong")).status == 401
    assert counted("diogenes_batches_stored_total") == before["stored"] + 1
    assert counted("diogenes_batches_repeated_total") == before["repeated"] + 1
    assert counted("diogenes_ingest_requests_total", status="401") == refused + 1
    assert counted("diogenes_commit_seconds_count") >= commits + 2


async def test_the_metrics_can_be_parsed_and_no_label_grows_with_the_cluster() -> None:
    said: list[Any] = []

    async def send(message: Any) -> None:
        said.append(message)

    headers = [(b"authorization", b"Bearer s3cret")]
    await serve(Operations([]), {"method": "GET", "path": "/metrics", "headers": headers}, send)
    families = list(text_string_to_metric_families(said[1]["body"].decode()))
    assert "diogenes_commit_seconds" in {family.name for family in families}
    labels = {name for family in families for sample in family.samples for name in sample.labels}
    assert labels & {"node", "rank", "comm", "incident", "pid"} == set()
    assert len(LOSSES) < 50


def test_without_its_database_ingest_is_not_ready_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ingest.traces.database.conninfo", lambda: "host=127.0.0.1 port=9 dbname=x connect_timeout=2")
    said = Operations(NEEDS).answer("/readyz", "Bearer s3cret", False)
    assert (said.status, read(said)["status"]) == (503, "not ready")
    assert "refused" in read(said)["checks"]["database"]["found"]


def test_without_a_partition_for_this_hour_there_is_no_room(transactional_db: None, no_traces: None) -> None:
    with connect() as connection:
        create = NativePartitions().create_ahead
        NativePartitions().drop_before(
            connection, datetime.now(UTC) + timedelta(days=365)
        )  # what other tests made ahead
        create(connection, datetime.now(UTC))
        assert partitions_ahead(connection, datetime.now(UTC)) == 24
        assert partitions_ahead(connection, datetime.now(UTC) + timedelta(hours=20)) == 4
        assert partitions_ahead(connection, datetime.now(UTC) + timedelta(days=30)) == -1
