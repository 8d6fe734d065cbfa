"""Hostile HTTP against the shipped ingest process: a clear 4xx each time, bounded memory, and good agents get in.

Over real sockets, since what is tested is what uvicorn and the kernel make of bytes. One process for all tests; each
test asks for what it changed, not for totals.
"""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection

from console.supervisor.servers import database_url
from ingest.door import gate
from ingest.door.auth import FAILURES_MAX
from ingest.door.tokens import make_agent_token
from ingest.models import Team
from nccl_instrument.wire import BATCH_BYTES_MAX, encode_batch
from tests.builders import make_batch
from tests.ingest.shipped import Shipped, said_by, shipped_ingest
from tests.rawhttp import ask, batch_request, connected, head, hear
from tests.servers import TestServers

BODY = encode_batch(make_batch())
HEALTH = head("GET", "/ingest/health")
WEBSOCKET = {"Upgrade": "websocket", "Connection": "Upgrade", "Sec_WebSocket_Version": 13}


@pytest.fixture(scope="module")
def shipped(
    django_db_setup: None, django_db_blocker: Any, postgres: TestServers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shipped]:
    """What tests leave in the database is removed when the process has ended: it writes, and would be in the way."""
    url = database_url(postgres.folder, connection.settings_dict["NAME"])
    with django_db_blocker.unblock():
        with shipped_ingest({"DATABASE_URL": url}, tmp_path_factory.mktemp("ingest") / "log") as running:
            yield running
        call_command("flush", verbosity=0, interactive=False)
        with connection.cursor() as cursor:
            cursor.execute("TRUNCATE ingest_trace_batch, ingest_pinned_batch")
        connection.close()


def new_token() -> str:
    return make_agent_token(Team.objects.create(name=secrets.token_hex(4)), "cluster")


@pytest.fixture
def token(shipped: Shipped) -> str:
    made = new_token()
    wait_until_known(shipped, made)
    return made


def is_well(shipped: Shipped, token: str) -> bool:
    """Whether a good batch is still taken."""
    return ask(shipped.port, batch_request(token, BODY)).status == 200


def wait_until_known(shipped: Shipped, token: str) -> None:
    """A new token works at once, or within seconds where somebody guesses at the same address, as tests here do."""
    give_up_at = time.monotonic() + 20
    while not is_well(shipped, token):
        assert time.monotonic() < give_up_at, "the token is not taken"
        time.sleep(0.1)


MALFORMED = {
    "tls": b"\x16\x03\x01\x02\x00" + bytes(200),
    "no method": b"\r\n\r\n hello\r\n\r\n",
    "negative length": head(Content_Length=-1),
    "length is no number": head(Content_Length="ten"),
    "two lengths": head(Content_Length=3)[:-2] + b"Content-Length: 4\r\n\r\nabcd",
    "length and chunks": head(Content_Length=3, Transfer_Encoding="chunked") + b"0\r\n\r\n",
    "bytes in the path": b"GET /\xff\xfe HTTP/1.1\r\n\r\n",
    "connect": b"CONNECT elsewhere:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "http/2 preface": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "folded field": b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
}


@pytest.mark.parametrize("how", MALFORMED)
def test_what_is_not_http_is_400_and_closed(shipped: Shipped, how: str) -> None:
    heard = ask(shipped.port, MALFORMED[how])
    assert (heard.status, heard.is_closed) == (400, True)


TOO_LONG = {
    "one field": [b"GET / HTTP/1.1\r\nX: ", *[b"a" * 8192] * 20],
    "many fields": [b"GET / HTTP/1.1\r\n", b"A: b\r\n" * (gate.FIELDS_MAX + 1), b"\r\n"],
    "address": [b"GET /" + b"a" * 2 * gate.HEAD_BYTES_MAX + b" HTTP/1.1\r\n\r\n"],
    "behind another request": [HEALTH + b"GET / HTTP/1.1\r\nX: ", *[b"a" * 8192] * 20],
}


@pytest.mark.parametrize("what", TOO_LONG)
def test_a_head_without_end_is_431(shipped: Shipped, what: str) -> None:
    pieces = TOO_LONG[what]
    if pieces[0].startswith(HEALTH):
        with connected(shipped.port) as link:
            link.sendall(HEALTH)
            assert hear(link).status == 200
            link.sendall(b"".join(pieces)[len(HEALTH) :])
            heard = hear(link)
    else:
        heard = ask(shipped.port, *pieces)
    assert heard.status == 431


def test_a_body_of_unknown_length_is_411_however_much_of_it_comes(shipped: Shipped, token: str) -> None:
    start = head(Authorization=f"Bearer {token}", Transfer_Encoding="chunked")
    heard = ask(shipped.port, start, *[b"4000\r\n" + bytes(0x4000) + b"\r\n"] * 200)
    assert (heard.status, heard.is_closed) == (411, True)


def test_more_than_a_batch_may_have_is_413_though_the_client_keeps_sending(shipped: Shipped, token: str) -> None:
    heard = ask(shipped.port, batch_request(token, bytes(BATCH_BYTES_MAX + 1)))
    assert (heard.status, heard.is_closed) == (413, True)


def test_a_guesser_that_sends_megabytes_hears_401_not_a_reset(shipped: Shipped) -> None:
    heard = ask(shipped.port, batch_request("dga_guess", bytes(BATCH_BYTES_MAX)))
    assert heard.status in (401, 429)


def test_a_body_shorter_than_promised_is_400_when_the_client_ends(shipped: Shipped, token: str) -> None:
    start = head(Authorization=f"Bearer {token}", Content_Length=len(BODY))
    heard = ask(shipped.port, start + BODY[:100], ends=True)
    assert (heard.status, said_by(heard)) == (400, "the request ends too early")


def test_a_body_longer_than_promised_is_refused_and_what_follows_is_not_a_request(shipped: Shipped, token: str) -> None:
    with connected(shipped.port) as link:
        link.sendall(head(Authorization=f"Bearer {token}", Content_Length=len(BODY) - 7) + BODY)
        assert hear(link).status == 400
        assert hear(link).status in (0, 400)
    assert is_well(shipped, token)


def test_a_client_that_has_ended_its_side_still_gets_its_answer(shipped: Shipped, token: str) -> None:
    assert ask(shipped.port, batch_request(token, BODY), ends=True).status == 200


def test_http_1_0_and_100_continue_work(shipped: Shipped, token: str) -> None:
    old = ask(shipped.port, batch_request(token, BODY).replace(b"HTTP/1.1", b"HTTP/1.0"))
    assert (old.status, old.is_closed) == (200, True)
    start = head(Authorization=f"Bearer {token}", Content_Length=len(BODY), Expect="100-continue")
    assert ask(shipped.port, start, BODY, pause_s=0.05).status == 200


def test_who_expects_100_continue_is_refused_before_sending(shipped: Shipped, token: str) -> None:
    start = head(Authorization=f"Bearer {token}", Content_Length=BATCH_BYTES_MAX + 1, Expect="100-continue")
    assert ask(shipped.port, start).status == 413


@pytest.mark.parametrize("path", ["/ingest/batches", "/"])
def test_a_websocket_is_403(shipped: Shipped, path: str) -> None:
    fields = {**WEBSOCKET, "Sec_WebSocket_Key": "dGhlIHNhbXBsZSBub25jZQ=="}
    assert ask(shipped.port, head("GET", path, **fields)).status == 403


def test_another_protocol_is_answered_as_http(shipped: Shipped) -> None:
    heard = ask(shipped.port, head("GET", "/ingest/health", Upgrade="h2c", Connection="Upgrade"))
    assert (heard.status, heard.is_closed) == (200, True)


def test_a_few_pipelined_requests_are_answered_in_order_and_a_flood_of_them_is_cut(shipped: Shipped) -> None:
    before = shipped.health()["connections_refused"].get("pipelined", 0)
    with connected(shipped.port) as link:
        link.sendall(HEALTH * 4)
        answers = read_all(link, until=4)
        assert answers == 4
        link.sendall(HEALTH * 5000)
        assert 0 < read_all(link) <= gate.PIPELINED_MAX
    assert shipped.health()["connections_refused"]["pipelined"] == before + 1


def read_all(link: socket.socket, until: int = 10**6) -> int:
    """How many answers come before the end."""
    said = b""
    try:
        while said.count(b"HTTP/1.1 ") < until or not said.endswith(b"}"):
            part = link.recv(65536)
            if not part:
                break
            said += part
    except ConnectionResetError:
        pass
    return said.count(b"HTTP/1.1 200")


def test_slow_senders_are_told_408_and_good_agents_do_not_wait_for_them(shipped: Shipped, token: str) -> None:
    request = batch_request(token, BODY)
    with ExitStack() as open_links:
        heads = [open_links.enter_context(connected(shipped.port)) for _ in range(20)]
        idle = [open_links.enter_context(connected(shipped.port)) for _ in range(20)]
        bodies = [open_links.enter_context(connected(shipped.port)) for _ in range(20)]
        for link in heads:
            link.sendall(b"POST /ingest/batches HTTP/1.1\r\n")
        for link in bodies:
            link.sendall(request[: len(request) // 2])
        started = time.monotonic()
        while time.monotonic() < started + gate.HEAD_SECONDS / 2:
            for link in heads:
                link.sendall(b"X: y\r\n")  # a field now and then, as slow-loris does
            assert is_well(shipped, token)
            time.sleep(1.0)
        assert {hear(link).status for link in heads} == {408}
        assert {hear(link).status for link in idle} == {0}
        assert {hear(link).status for link in bodies} == {408}
    refused = shipped.health()["connections_refused"]
    assert refused["slow_head"] >= 20
    assert refused["idle"] >= 20


def test_bodies_that_are_only_announced_take_no_room_from_others(shipped: Shipped, token: str) -> None:
    start = head(Authorization=f"Bearer {token}", Content_Length=BATCH_BYTES_MAX)
    with ExitStack() as open_links:
        links = [open_links.enter_context(connected(shipped.port)) for _ in range(150)]
        for link in links:
            link.sendall(start + b"DGTB")
        time.sleep(1.0)
        assert is_well(shipped, token)
        assert shipped.health()["bytes_held"] < 2**20


def test_a_thousand_idle_connections_keep_nobody_out(shipped: Shipped, token: str) -> None:
    before = shipped.rss_mb()
    with ExitStack() as open_links:
        for _ in range(1000):
            open_links.enter_context(connected(shipped.port))
        assert is_well(shipped, token)
        assert shipped.health()["connections"] >= 900
        assert shipped.rss_mb() < before + 100


def test_a_guesser_is_limited_and_agents_at_the_same_address_get_in(shipped: Shipped, token: str) -> None:
    before = shipped.health()
    said = [ask(shipped.port, batch_request(f"dga_guess{number}", BODY)).status for number in range(FAILURES_MAX + 10)]
    assert set(said) <= {401, 429}
    assert said[-1] == 429
    later = new_token()
    assert is_well(shipped, token)
    wait_until_known(shipped, later)
    assert shipped.health()["guesses_refused"] >= before["guesses_refused"] + 10


def test_a_guesser_cannot_make_up_addresses(shipped: Shipped) -> None:
    said = [
        ask(shipped.port, batch_request("dga_guess", BODY, X_Forwarded_For=f"10.1.{number}.1")).status
        for number in range(3 * FAILURES_MAX)
    ]
    assert said[-1] == 429


def test_the_log_stays_short_under_attack(shipped: Shipped, token: str) -> None:
    before = shipped.log.read_text().count("\n")
    for _ in range(200):
        ask(shipped.port, MALFORMED["tls"])
    said = shipped.log.read_text()
    assert said.count("\n") < before + 100
    assert "gate.py" not in said  # no traceback of ours
