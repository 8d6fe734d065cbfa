"""A process' own door: what it answers, to whom, and the roll it calls."""

from __future__ import annotations

import http.client
import json
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from console.operations import alive
from console.operations.alive import note_alive, note_of, read_alive, take_off, valkey
from console.operations.listener import CONNECTIONS_MAX, Listener
from console.operations.needs import ask_roll, needs_of
from ingest import process
from ingest.needs import Missing, Need
from ingest.operations import Operations


def fine() -> str:
    return "here"


@pytest.fixture
def roll(valkey: object) -> Iterator[None]:
    alive.valkey().delete(alive.KEY)
    process.tick()
    yield
    alive.valkey().delete(alive.KEY)


@pytest.fixture
def door(roll: None, settings: Any) -> Iterator[Listener]:
    settings.METRICS_TOKEN = ""
    listener = Listener("127.0.0.1", 0, Operations([Need("database", fine)]), is_child=False)
    listener.start()
    yield listener
    listener.shutdown()
    listener.server_close()


def ask(door: Listener, path: str, token: str = "") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(door.address, timeout=5)
    connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    return answer.status, body


def test_the_door_answers_the_three_and_nothing_else(door: Listener) -> None:
    assert ask(door, "/healthz")[0] == 200
    assert json.loads(ask(door, "/readyz")[1])["checks"]["database"]["found"] == "here"
    assert b"diogenes_look_seconds" in ask(door, "/metrics")[1]
    assert ask(door, "/")[0] == 404


def test_a_door_serves_so_many_at_once_and_counts_the_others(door: Listener) -> None:
    def refused() -> float:
        return REGISTRY.get_sample_value("diogenes_door_refused_total") or 0.0

    before = refused()
    silent = [socket.create_connection(("127.0.0.1", door.server_address[1])) for _ in range(CONNECTIONS_MAX + 4)]
    give_up_at = time.monotonic() + 20
    while refused() < before + 4:
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    for connection in silent:
        connection.close()
    while True:  # those that went away make room
        try:
            assert ask(door, "/healthz")[0] == 200
            break
        except (OSError, http.client.HTTPException):
            assert time.monotonic() < give_up_at
            time.sleep(0.05)


def test_with_a_token_set_the_door_wants_it_for_details(door: Listener, settings: Any) -> None:
    settings.METRICS_TOKEN = "s3cret"
    assert ask(door, "/metrics")[0] == 401
    assert "checks" not in json.loads(ask(door, "/readyz")[1])
    assert ask(door, "/metrics", "s3cret")[0] == 200


def test_a_door_on_the_network_tells_nothing_without_a_token(roll: None) -> None:
    listener = Listener("0.0.0.0", 0, Operations([]), is_child=False)
    assert not listener.is_private
    listener.server_close()


def test_a_process_with_a_door_is_on_the_roll_within_seconds(door: Listener) -> None:
    give_up_at = time.monotonic() + 20
    while not (notes := read_alive()):
        assert time.monotonic() < give_up_at
        time.sleep(0.05)
    assert [(note.pid, note.address) for note in notes] == [(os.getpid(), door.address)]


def test_who_is_silent_or_leaves_no_longer_counts(roll: None) -> None:
    note = replace(note_of("127.0.0.1:1", False, {}), process="worker")
    assert note_alive(note)
    assert ask_roll("worker") == "1 alive"
    assert read_alive(now=time.time() + 16) == []
    take_off(note)
    with pytest.raises(Missing, match="no worker process"):
        ask_roll("worker")


def test_a_process_whose_loop_stands_still_is_said_to(roll: None) -> None:
    note_alive(replace(note_of("127.0.0.1:1", False, {}), process="beat", tick_age=40.0))
    with pytest.raises(Missing, match="stood still for 40 s"):
        ask_roll("beat")


def test_what_another_version_wrote_is_dropped(roll: None) -> None:
    for raw in ("{}", "no json", "[1]"):
        valkey().hset(alive.KEY, raw, raw)
    assert read_alive() == []
    assert valkey().hlen(alive.KEY) == 0


def test_when_valkey_is_away_nobody_claims_to_know(settings: Any) -> None:
    settings.REDIS_URL = "redis://127.0.0.1:9/0"
    assert read_alive() is None
    assert not note_alive(note_of("127.0.0.1:1", False, {}))
    with pytest.raises(Missing, match="nobody can say"):
        ask_roll("worker")


def test_the_web_process_is_of_use_without_a_worker_and_a_worker_not_without_valkey() -> None:
    musts = {name: {need.name for need in needs_of(name) if need.is_must} for name in process.SERVERS}
    assert musts["web"] == {"database", "migrations", "pages"}
    assert musts["ingest"] == {"database", "migrations", "room"}
    assert musts["worker"] == musts["urgent"] == musts["looks"] == {"database", "migrations", "valkey", "tick"}
    assert {need.name for need in needs_of("web") if not need.is_must} == {
        "valkey",
        "ingest",
        "looks",
        "urgent",
        "worker",
        "beat",
    }
    assert musts["beat"] == {"valkey", "tick"}
