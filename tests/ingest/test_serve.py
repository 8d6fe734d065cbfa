"""Ingest processes that share a port share its connections."""

from __future__ import annotations

import select
import socket

import pytest

from console.supervisor.processes import ingest_processes, ingest_recipe
from ingest.process import process_name
from ingest.serve import listen

CONNECTIONS = 64


def test_connections_to_a_shared_port_are_spread_over_those_who_listen() -> None:
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with listen("127.0.0.1", port) as second:
            for one in (first, second):
                one.listen(CONNECTIONS)
            clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(CONNECTIONS)]
            taken = [accept_all(one) for one in (first, second)]
    for client in clients:
        client.close()
    assert sum(taken) == CONNECTIONS
    assert min(taken) > CONNECTIONS // 8


def accept_all(listening: socket.socket) -> int:
    taken = 0
    while select.select([listening], [], [], 0)[0]:
        listening.accept()[0].close()
        taken += 1
    return taken


def test_processes_are_as_many_as_wanted_and_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIOGENES_INGEST_PROCESSES", "3")
    recipes = [ingest_recipe(8001, number) for number in range(1, ingest_processes() + 1)]
    assert [recipe.name for recipe in recipes] == ["ingest", "ingest-2", "ingest-3"]
    assert {process_name(["/site/ingest/serve.py", *recipe.argv[3:]]) for recipe in recipes} == {"ingest"}


def test_without_a_wish_there_is_one_for_each_of_two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    for wish in ("", "many", "0"):
        monkeypatch.setenv("DIOGENES_INGEST_PROCESSES", wish)
        assert 1 <= ingest_processes() <= 2
