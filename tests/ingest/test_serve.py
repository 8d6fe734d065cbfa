"""Ingest processes that share a port share its connections."""

from __future__ import annotations

import selectors
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
            taken = accept(CONNECTIONS, first, second)
    for client in clients:
        client.close()
    assert min(taken) > CONNECTIONS // 8


def accept(n: int, *listening: socket.socket) -> list[int]:
    """How many of n each took. The kernel may hand a connection over after its client has it."""
    taken = [0] * len(listening)
    with selectors.DefaultSelector() as waiting:
        for number, one in enumerate(listening):
            waiting.register(one, selectors.EVENT_READ, number)
        while sum(taken) < n:
            ready = waiting.select(20)
            assert ready, f"only {sum(taken)} came"
            for key, _ in ready:
                listening[key.data].accept()[0].close()
                taken[key.data] += 1
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
