"""Streaming: a server gets every node's batches in order, at the pace asked for; one that refuses all ends the run."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from nccl_instrument.epochs import read_epochs
from nccl_instrument.simulate.__main__ import main
from nccl_instrument.simulate.answers import NO_PROGRAM
from tests.nccl_instrument.agent.scripted_server import Reply, ScriptedServer

SMALL = ["--preset", "testbed", "--gpus", "8", "--tp", "2", "--pp", "2", "--quiet"]
SECOND = 10**9


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    made = ScriptedServer()
    yield made
    made.close()


def streamed(server: ScriptedServer, folder: Path, *words: str) -> int:
    token = folder / "token"
    token.write_text("a-token")
    return main([*SMALL, "--server", server.url, "--token-file", str(token), *words])


def test_a_server_gets_everything_in_order_and_nothing_from_the_future(server: ScriptedServer, tmp_path: Path) -> None:
    began = time.monotonic()
    assert streamed(server, tmp_path, "--seconds", "6", "--pace", "6") == 0
    took = time.monotonic() - began
    now_ns = time.time_ns()
    assert took > 0.9
    for node in range(4):
        mine = [batch for batch in server.accepted if batch.node == f"node{node}"]
        assert [batch.number for batch in mine] == [0, 1, 2, 3, 4, 5]
    newest = max(batch.wall_ns for batch in server.accepted)
    assert now_ns - (took + 2) * SECOND < newest < now_ns + SECOND


def test_a_server_that_refuses_everything_ends_the_run_with_its_reason(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.rule = lambda _batch: Reply(403, said={"error": "not a token of an agent"})
    assert streamed(server, tmp_path, "--seconds", "8", "--pace", "8") == 2
    assert "not a token of an agent" in capsys.readouterr().err


def test_what_a_server_refuses_now_and_then_is_counted(
    server: ScriptedServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.rule = lambda batch: Reply(400, said={"error": "odd"}) if batch.number == 1 else Reply()
    words = [word for word in SMALL if word != "--quiet"]
    (tmp_path / "token").write_text("a-token")
    where = ["--server", server.url, "--token-file", str(tmp_path / "token")]
    assert main([*words, *where, "--seconds", "3", "--pace", "10"]) == 0
    assert "8 batches accepted, 4 refused (400, odd)" in capsys.readouterr().err


def test_agents_answer_for_epochs_once_with_what_they_kept_and_say_that_there_are_no_stacks(
    server: ScriptedServer, tmp_path: Path
) -> None:
    order = {"request": 5, "kinds": ["epochs", "stacks"], "ranks": [2, 3, 6], "looks": 1, "apart_s": 0.0}
    server.rule = lambda batch: Reply(said={"dumps": [order]} if batch.number >= 5 else {})
    assert streamed(server, tmp_path, "--seconds", "8", "--pace", "8", "--traffic-rows", "100000") == 0
    answers = {dumps.node: dumps for dumps in server.dumps}
    assert len(server.dumps) == 4 and {dumps.request for dumps in server.dumps} == {5}
    parts = {(part.kind, part.rank): part for part in answers["node1"].parts}
    assert set(parts) == {("epochs", 2), ("epochs", 3), ("stacks", 2), ("stacks", 3)} and not answers["node0"].parts
    assert parts["stacks", 2].silent == NO_PROGRAM
    epochs, mine = read_epochs(parts["epochs", 3].raw), [b for b in server.accepted if b.node == "node1"]
    newest = max(mine, key=lambda batch: batch.number)
    assert epochs.rank == 3 and len(epochs.cells)
    starts = epochs.starts_ns()
    assert newest.wall_ns - 10 * SECOND < starts.min() < starts.max() < newest.wall_ns + 2 * SECOND


def test_an_address_that_cannot_be_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "token").write_text("a-token")
    assert main([*SMALL, "--server", "nowhere", "--token-file", str(tmp_path / "token")]) == 2
    assert "http" in capsys.readouterr().err
