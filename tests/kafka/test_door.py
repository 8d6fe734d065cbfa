"""The agent's side of the Kafka road by itself: its options, what it says without the package, what a seal is."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from nccl_instrument.agent.__main__ import batch_door
from nccl_instrument.agent.options import Kafka, parse_options
from nccl_instrument.agent.sending import kafka
from nccl_instrument.agent.sending.kafka import KafkaDoor, read_config
from nccl_instrument.sealed import is_sealed, key_id, seal, sealing_key
from tests.kafka.cluster import PRODUCE, TOO_LARGE, Cluster
from tests.nccl_instrument.agent.uplink_rig import encoded

NEEDED = {"DIOGENES_SERVER": "http://server", "DIOGENES_TOKEN_FILE": "/token", "DIOGENES_NODE": "n1"}
ROOT = Path(__file__).parents[2]


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    made = Cluster(1)
    made.make_topic("t")
    yield made
    made.stop()


@pytest.fixture
def token(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text("dga_x\n")
    return file


def test_the_road_is_http_until_somebody_says_kafka() -> None:
    assert parse_options([], NEEDED).kafka is None
    for name in ("UPLINK", "DIOGENES_UPLINK"):
        options = parse_options([], NEEDED | {name: "kafka", "DIOGENES_KAFKA_SERVERS": "k1:9092,k2:9092"})
        assert options.kafka == Kafka("k1:9092,k2:9092", "diogenes.batches", None)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [(["--uplink", "pigeon"], "one of http, kafka"), (["--uplink", "kafka"], "needs --kafka-servers")],
)
def test_what_is_wrong_with_the_road_is_said_in_one_sentence(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse_options(arguments, NEEDED)
    assert sentence in capsys.readouterr().err


def test_an_agent_without_the_package_works_by_http_and_says_what_kafka_needs(token: Path) -> None:
    """In a process of its own, in which the package cannot be imported."""
    program = (
        "import sys; sys.modules['confluent_kafka'] = None\n"
        "from nccl_instrument.agent.__main__ import batch_door\n"
        "from nccl_instrument.agent.options import parse_options\n"
        f"needed = {{**{NEEDED!r}, 'DIOGENES_TOKEN_FILE': {str(token)!r}}}\n"
        "print(type(batch_door(parse_options([], needed))).__name__)\n"
        "needed |= {'UPLINK': 'kafka', 'DIOGENES_KAFKA_SERVERS': 'k:9092'}\n"
        "try: batch_door(parse_options([], needed))\n"
        "except ValueError as error: print(error)\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, timeout=50, check=True
    )
    assert said.stdout.splitlines() == ["Door", kafka.MISSING]


def test_the_client_is_configured_by_a_file_as_other_kafka_clients_are(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# ours\nsecurity.protocol=SASL_SSL\n\nsasl.password = a=b \n")
    assert read_config(file) == {"security.protocol": "SASL_SSL", "sasl.password": "a=b"}
    file.write_text('{"acks": "all"}')
    assert read_config(file) == {"acks": "all"}
    assert read_config(None) == {}
    file.write_text("nonsense")
    with pytest.raises(ValueError, match="NAME=VALUE"):
        read_config(file)


@pytest.mark.parametrize(("servers", "config"), [("k1", {}), ("", {}), ("k1:9092", {"no.such.property": "1"})])
def test_a_configuration_that_cannot_work_is_refused_at_the_start(
    servers: str, config: dict[str, str], token: Path
) -> None:
    with pytest.raises(ValueError, match=r"Kafka|HOST:PORT"):
        KafkaDoor(servers, "t", token, config)


def test_what_the_brokers_will_never_take_is_refused_and_not_retried(cluster: Cluster, token: Path) -> None:
    door = KafkaDoor(cluster.servers, "t", token, {})
    cluster.fail_next(PRODUCE, TOO_LARGE)
    answer = door.post(encoded(0))
    assert (answer.is_refused, "max.message.bytes" in answer.reason) == (True, True)
    assert door.post(encoded(1)).is_accepted
    door.close()


def test_brokers_that_do_not_answer_are_an_error_in_time(cluster: Cluster, token: Path) -> None:
    door = KafkaDoor(cluster.servers, "t", token, {}, timeout_s=1.5)
    assert door.post(encoded(0)).is_accepted
    cluster.take_down()
    with pytest.raises(OSError, match="Kafka"):
        door.post(encoded(1))
    door.close()


def test_members_are_told_again_every_minute_since_nobody_can_ask_for_them(
    cluster: Cluster, token: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = KafkaDoor(cluster.servers, "t", token, {})
    assert door.post(encoded(0)).resend == ()
    monkeypatch.setattr(kafka, "TOLD_AGAIN_S", 0.0)
    assert door.post(encoded(1)).resend == ("comm",)
    door.close()


def test_without_a_usable_token_nothing_is_sent(cluster: Cluster, tmp_path: Path) -> None:
    door = KafkaDoor(cluster.servers, "t", tmp_path / "none", {})
    with pytest.raises(OSError, match="none"):
        door.post(encoded(0))
    door.close()


def test_the_options_make_the_door(cluster: Cluster, token: Path) -> None:
    environment = NEEDED | {
        "DIOGENES_TOKEN_FILE": str(token),
        "UPLINK": "kafka",
        "DIOGENES_KAFKA_SERVERS": cluster.servers,
    }
    door = batch_door(parse_options(["--kafka-topic", "t"], environment))
    assert isinstance(door, KafkaDoor) and not door.is_plain
    assert door.post(encoded(0)).is_accepted  # though nobody answers at http://server
    door.close()


def test_a_seal_fits_one_token_and_one_batch() -> None:
    key, other = sealing_key("dga_a"), sealing_key("dga_b")
    assert is_sealed(key, b"batch", seal(key, b"batch"))
    assert not is_sealed(key, b"batcH", seal(key, b"batch"))
    assert not is_sealed(other, b"batch", seal(key, b"batch"))
    assert not is_sealed(key, b"batch", "ü")
    assert key_id(key) not in (key, key[:32], key_id(other))


def test_the_command_says_what_is_missing(settings: object) -> None:
    with pytest.raises(CommandError, match="Which brokers"):
        call_command("consume")
    with pytest.raises(CommandError, match="Kafka"):
        call_command("consume", servers="k:9092", config=None, topic="^[")
