"""The uplink against a real server: every kind of answer, outages, the spool's order and bound, and a clean stop."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nccl_instrument.agent.sending import uplink as uplink_module
from nccl_instrument.agent.sending.batches import read_clocks
from nccl_instrument.agent.sending.handover import Handover
from nccl_instrument.agent.sending.post import Door
from nccl_instrument.agent.sending.spool import Spool, SpoolTaken
from nccl_instrument.tables import LOSSES, empty_rows
from nccl_instrument.wire import TraceBatch, encode_batch

from .scripted_server import Reply, ScriptedServer, wait_until
from .uplink_rig import BOOT, Rig, encoded, with_backlog


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same steps as in production, in a hundredth of the time."""
    for name in ("BACKOFF_S", "BACKOFF_S_MAX", "SPOOL_PAUSE_S"):
        monkeypatch.setattr(uplink_module, name, getattr(uplink_module, name) / 100)
    monkeypatch.setattr(uplink_module, "UNAUTHORISED_S", 0.1)


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    rig = Rig(tmp_path)
    yield rig
    if rig.uplink.is_alive():
        rig.stop()


def test_a_batch_arrives_whole_with_token_and_type_over_one_kept_connection(server: ScriptedServer, rig: Rig) -> None:
    uplink = rig.start(server.url)
    for number in range(3):
        uplink.offer("job", encoded(number))
        wait_until(lambda number=number: len(server.accepted) == number + 1)
    _, headers, path = server.asked[0]
    assert path == "/ingest/batches"
    assert headers["Authorization"] == "Bearer secret-token"
    assert headers["Content-Type"] == "application/vnd.diogenes.batch"
    assert server.numbers() == [0, 1, 2]
    assert len(rig.spool) == 0


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 507])
def test_what_the_server_turns_away_is_sent_again_until_it_is_taken(
    status: int, server: ScriptedServer, rig: Rig
) -> None:
    server.script = [Reply(status)] * 3
    rig.start(server.url).offer("job", encoded(0))
    wait_until(lambda: server.accepted)
    assert (server.numbers(), len(server.asked), rig.lost()) == ([0], 4, {})


@pytest.mark.parametrize("status", [400, 410, 413])
def test_what_the_server_refuses_is_dropped_and_counted_with_the_losses_it_carried(
    status: int, server: ScriptedServer, rig: Rig
) -> None:
    told = empty_rows("loss", 1)
    told["kind"], told["count"] = LOSSES.index("torn_rows"), 5
    server.script = [Reply(status, said={"error": "no"})]
    rig.start(server.url).offer("job", encoded(0, loss=told))
    rig.uplink.offer("job", encoded(1))
    wait_until(lambda: server.accepted)
    assert server.numbers() == [1]
    assert len(server.asked) == 2
    assert rig.lost() == {"refused_batches": 1, "torn_rows": 5}


@pytest.mark.parametrize("status", [302, 400, 403, 404, 405, 409, 413, 422])
def test_what_a_proxy_says_while_the_server_is_replaced_loses_nothing(
    status: int, server: ScriptedServer, rig: Rig
) -> None:
    with_backlog(rig, 10)
    server.script = [Reply(status, said={"message": "no route"})] * 3
    rig.start(server.url).offer("job", encoded(10))
    wait_until(lambda: len(server.accepted) == 11)
    assert (sorted(server.numbers()), rig.lost()) == (list(range(11)), {})


def test_what_ingest_itself_says_of_a_wrong_address_loses_nothing(server: ScriptedServer, rig: Rig) -> None:
    server.script = [Reply(404, said={"error": "not found"}), Reply(405, said={"error": "use POST"})]
    rig.start(server.url).offer("job", encoded(0))
    wait_until(lambda: server.accepted)
    assert rig.lost() == {}


def test_without_a_valid_token_batches_are_kept_and_a_new_token_works_without_a_restart(
    server: ScriptedServer, rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    server.script = [Reply(401)] * 2
    with caplog.at_level(logging.WARNING, "diogenes.agent"):
        rig.start(server.url).offer("job", encoded(0))
        wait_until(lambda: len(server.asked) == 1)
        rig.token.write_text("rotated")
        wait_until(lambda: server.accepted)
    assert server.asked[-1][1]["Authorization"] == "Bearer rotated"
    assert sum("401" in record.message for record in caplog.records) == 1
    assert rig.lost() == {}


def test_an_unreadable_token_file_keeps_the_batches(server: ScriptedServer, rig: Rig) -> None:
    rig.token.write_text("")
    rig.start(server.url).offer("job", encoded(0))
    wait_until(lambda: len(rig.spool) == 1)
    assert not server.asked
    rig.token.write_text("now-there")
    wait_until(lambda: server.accepted)


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_is_obeyed(status: int, server: ScriptedServer, rig: Rig) -> None:
    server.script = [Reply(status, {"Retry-After": "1"})]
    rig.start(server.url).offer("job", encoded(0))
    wait_until(lambda: server.accepted)
    first, second = server.asked[0][0], server.asked[1][0]
    assert second - first >= 0.95


def test_an_outage_fills_the_spool_which_drains_in_order_with_nothing_lost(rig: Rig) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    uplink = rig.start(f"http://127.0.0.1:{port}")
    for number in range(20):
        uplink.offer("job", encoded(number))
    wait_until(lambda: len(rig.spool) == 20)
    server = ScriptedServer(port)
    wait_until(lambda: len(server.accepted) == 20)
    assert server.numbers() == list(range(20))
    uplink.offer("job", encoded(20))
    wait_until(lambda: server.numbers()[-1] == 20)
    assert (len(rig.spool), rig.lost()) == (0, {})
    server.close()


def test_a_fresh_batch_overtakes_a_long_spool(
    server: ScriptedServer, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_backlog(rig, 50)
    monkeypatch.setattr(uplink_module, "SPOOL_PAUSE_S", 0.02)
    uplink = rig.start(server.url)
    wait_until(lambda: len(server.accepted) > 3)
    uplink.offer("job", encoded(99))
    wait_until(lambda: 99 in server.numbers())
    assert len(server.accepted) < 50
    wait_until(lambda: len(server.accepted) == 51)
    assert [number for number in server.numbers() if number != 99] == list(range(50))


def test_a_busy_server_that_sends_spooled_batches_away_still_gets_fresh_ones_at_once(
    server: ScriptedServer, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_backlog(rig, 20)
    monkeypatch.setattr(uplink_module, "SPOOL_PAUSE_S_MAX", 0.2)
    is_busy = [True]
    server.rule = lambda batch: Reply(429) if is_busy[0] and 0 < batch.number < 20 else Reply()
    uplink = rig.start(server.url)
    wait_until(lambda: len(server.asked) > 2)
    for number in range(100, 120):
        uplink.offer("job", encoded(number))
        wait_until(lambda: server.numbers()[-1] == number)  # noqa: B023
    assert server.numbers() == [0, *range(100, 120)]  # none had to wait in the spool behind the older ones
    is_busy[0] = False
    wait_until(lambda: len(server.accepted) == 40)
    assert [number for number in server.numbers() if number < 100] == list(range(20))
    assert rig.lost() == {}


def test_one_batch_the_server_chokes_on_is_given_up_while_the_others_get_through(
    server: ScriptedServer, rig: Rig
) -> None:
    with_backlog(rig, 12)
    server.rule = lambda batch: Reply(500 if batch.number == 0 else 200)
    rig.start(server.url)
    wait_until(lambda: len(rig.spool) == 0)
    assert sorted(server.numbers()) == list(range(1, 12))
    assert rig.lost() == {"refused_batches": 1}


@pytest.mark.parametrize("status", [403, 408, 503])
def test_one_batch_the_server_is_always_too_busy_for_holds_up_nobody(
    status: int, server: ScriptedServer, rig: Rig
) -> None:
    with_backlog(rig, 40)
    server.rule = lambda batch: Reply(status if batch.number == 0 else 200)
    uplink = rig.start(server.url)
    for number in range(40, 50):
        uplink.offer("job", encoded(number))
    wait_until(lambda: len(rig.spool) == 0)
    assert sorted(server.numbers()) == list(range(1, 50))
    assert rig.lost() == {"refused_batches": 1}


def test_a_batch_is_never_given_up_because_the_servers_disk_is_full(server: ScriptedServer, rig: Rig) -> None:
    with_backlog(rig, 12)
    full = iter([507] * 10)
    server.rule = lambda batch: Reply(next(full, 200) if batch.number == 0 else 200)
    rig.start(server.url)
    wait_until(lambda: (sorted(server.numbers()), rig.lost()) == (list(range(12)), {}))


def test_a_spooled_batch_that_cannot_be_read_is_counted(server: ScriptedServer, rig: Rig) -> None:
    with_backlog(rig, 1)
    (batch,) = (rig.folder / "spool").glob("*.batch")
    batch.unlink()
    batch.mkdir()
    rig.start(server.url)
    wait_until(lambda: len(rig.spool) == 0)
    assert rig.lost() == {"spool_batches": 1}


def test_a_batch_that_makes_room_is_counted_although_it_cannot_be_read(rig: Rig) -> None:
    uplink = rig.start("http://127.0.0.1:9", spool_bytes=2 * len(encoded(0)))
    for number in range(2):
        uplink.offer("job", encoded(number))
    wait_until(lambda: len(rig.spool) == 2)
    for batch in (rig.folder / "spool").glob("*.batch"):
        batch.write_bytes(b"damaged")
    uplink.offer("job", encoded(2))
    wait_until(lambda: not uplink._fresh and rig.spool.newest() == "0000000000000003.batch")
    assert rig.lost() == {"spool_batches": 1}


def test_a_batch_in_the_spool_is_not_lost_when_memory_is_full(
    server: ScriptedServer, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uplink_module, "FRESH_MAX", 2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uplink = rig.start(f"http://127.0.0.1:{silent.getsockname()[1]}")
        hand_over = Handover(rig.spool, rig.losses, uplink.offer)
        for number in range(6):
            hand_over([("job", encoded(number))], {})
        rig.stop()
    rig.start(server.url)
    wait_until(lambda: len(server.accepted) == 6)
    assert (server.numbers(), rig.lost()) == (list(range(6)), {})


def test_a_batch_that_was_sent_leaves_the_spool(server: ScriptedServer, rig: Rig) -> None:
    uplink = rig.start(server.url)
    Handover(rig.spool, rig.losses, uplink.offer)([("job", encoded(0)), ("other", encoded(1, "other"))], {})
    wait_until(lambda: len(server.accepted) == 2 and len(rig.spool) == 0)
    assert list((rig.folder / "spool").glob("*.batch")) == []
    assert len(server.asked) == 2


def test_a_server_that_fails_on_everything_costs_no_batch(server: ScriptedServer, rig: Rig) -> None:
    with_backlog(rig, 3)
    server.rule = lambda _batch: Reply(500)
    rig.start(server.url)
    wait_until(lambda: len(server.asked) > 15)
    assert (len(rig.spool), rig.lost()) == (3, {})


def test_a_full_spool_loses_its_oldest_and_counts_them(rig: Rig) -> None:
    size = len(encoded(0))
    uplink = rig.start("http://127.0.0.1:9", spool_bytes=size * 4)
    for number in range(10):
        uplink.offer("job", encoded(number))
    wait_until(lambda: rig.spool.size_bytes == size * 4 and not uplink._fresh)
    rig.stop()
    server = ScriptedServer()
    rig.start(server.url)
    wait_until(lambda: len(server.accepted) == 4)
    assert (server.numbers(), rig.lost()) == ([6, 7, 8, 9], {"spool_batches": 6})
    server.close()


@pytest.mark.parametrize(("limit", "value"), [("FRESH_MAX", 3), ("FRESH_BYTES_MAX", 3 * len(encoded(0)))])
def test_batches_in_memory_are_bounded_while_the_server_keeps_us_waiting(
    limit: str, value: int, rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uplink_module, limit, value)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uplink = rig.start(f"http://127.0.0.1:{silent.getsockname()[1]}")
        uplink.offer("job", encoded(0))
        silent.accept()
        for number in range(1, 8):
            uplink.offer("job", encoded(number))
        assert rig.lost() == {"spool_batches": 4}
        rig.stop()


def test_a_stopped_agent_spools_what_it_could_not_send_and_the_next_one_sends_it(
    server: ScriptedServer, rig: Rig
) -> None:
    uplink = rig.start("http://127.0.0.1:9")
    for number in range(5):
        uplink.offer("job", encoded(number))
    rig.stop()
    rig.start(server.url)
    wait_until(lambda: len(server.accepted) == 5)
    assert server.numbers() == list(range(5))


def test_a_stop_while_the_server_says_nothing_keeps_the_batch(rig: Rig) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uplink = rig.start(f"http://127.0.0.1:{silent.getsockname()[1]}")
        uplink.offer("job", encoded(0))
        silent.accept()
        rig.stop()
    assert Spool(rig.folder / "spool", 2**20).oldest() is not None


def test_a_connection_the_server_closed_meanwhile_costs_nothing(server: ScriptedServer, rig: Rig) -> None:
    uplink = rig.start(server.url)
    uplink.offer("job", encoded(0))
    wait_until(lambda: server.accepted)
    server.script = [Reply(hang_up=True)]
    uplink.offer("job", encoded(1))
    wait_until(lambda: len(server.accepted) == 2)
    assert len(rig.spool) == 0


def test_what_the_server_wants_again_is_passed_on(server: ScriptedServer, rig: Rig) -> None:
    server.script = [Reply(202, said={"resend": ["comm"], "requests": ["stacks"]})]
    rig.start(server.url).offer("a", encoded(0, "a"))
    wait_until(lambda: rig.resent)
    assert rig.resent == [("a", ("comm",))]


def test_the_age_of_a_batch_is_told_when_both_clocks_agree_on_it(server: ScriptedServer, rig: Rig) -> None:
    wall_ns, mono_ns = read_clocks()
    second = 10**9
    uplink = rig.start(server.url)
    for number, (wall_back, mono_back) in enumerate([(0, 0), (5, 5), (5, 3), (-5, -5)]):
        clocks = wall_ns - wall_back * second, mono_ns - mono_back * second
        uplink.offer("job", encode_batch(TraceBatch("job", "node", BOOT, number, *clocks, {})))
    wait_until(lambda: len(server.accepted) == 4)
    ages = [headers.get("Diogenes-Batch-Age-Ns") for _, headers, _ in server.asked]
    assert [age and int(age) // second for age in ages] == [0, 5, None, None]


@pytest.mark.parametrize("said", ["text", [1], {"resend": "comm"}, {"resend": {"a": 1}}, None])
def test_a_strange_answer_is_still_an_acceptance(said: object, server: ScriptedServer, rig: Rig) -> None:
    server.script = [Reply(said=said)]
    rig.start(server.url).offer("job", encoded(0))
    rig.uplink.offer("job", encoded(1))
    wait_until(lambda: len(server.accepted) == 2)
    assert rig.resent == []


@pytest.mark.parametrize("address", ["ftp://x", "example.org:80", "http://", ""])
def test_an_address_that_cannot_work_is_refused_at_start(address: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="http"):
        Door(address, tmp_path / "token")


def test_a_spool_has_one_agent_at_a_time(tmp_path: Path) -> None:
    first = Spool(tmp_path, 1000)
    with pytest.raises(SpoolTaken, match="another agent"):
        Spool(tmp_path, 1000)
    first.close()
    Spool(tmp_path, 1000).close()


def test_a_half_written_batch_of_a_killed_agent_is_swept_away(tmp_path: Path, soon: Callable[[], None]) -> None:
    (tmp_path / "0000000000000007.batch.part").write_bytes(b"half")
    (tmp_path / "0000000000000003.batch").write_bytes(encoded(3))
    spool = Spool(tmp_path, 10_000)
    assert spool.oldest() == "0000000000000003.batch"
    assert not list(tmp_path.glob("*.part"))
