"""Whatever answers at the server's address, the agent goes on: bounded memory, bounded waiting, nothing followed."""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nccl_instrument.agent.sending import post
from nccl_instrument.agent.sending.post import ANSWER_BYTES_MAX, RETRY_AFTER_S_MAX, Answer, Door
from nccl_instrument.wire import TraceBatch, encode_batch

BATCH = encode_batch(TraceBatch("job", "node", bytes(16), 0, 1, 1, {}))
OK = b"HTTP/1.1 200 OK\r\n"
Say = Callable[[socket.socket], None]


class Liar:
    """Answers each connection by `say`, once it has heard a request's end."""

    def __init__(self, say: Say) -> None:
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self.n_connections = 0
        self._say = say
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                link, _ = self._listening.accept()
            except OSError:
                return
            self.n_connections += 1
            threading.Thread(target=self._answer, args=(link,), daemon=True).start()

    def _answer(self, link: socket.socket) -> None:
        with link:
            try:
                link.recv(65536)
                self._say(link)
            except OSError:
                return

    def close(self) -> None:
        self._listening.close()


@pytest.fixture
def answered(tmp_path: Path) -> Iterator[Callable[..., Answer | OSError]]:
    """What the agent makes of an answer: an Answer, or the OSError that the uplink takes for an outage."""
    liars: list[Liar] = []
    (tmp_path / "token").write_text("secret")

    def ask(say: Say | bytes, timeout_s: float = 2.0) -> Answer | OSError:
        liars.append(Liar(say if callable(say) else lambda link: link.sendall(say)))
        door = Door(f"http://127.0.0.1:{liars[-1].port}", tmp_path / "token", timeout_s=timeout_s)
        try:
            return door.post(BATCH)
        except OSError as error:
            return error
        finally:
            door.close()

    yield ask
    for liar in liars:
        liar.close()


def endless(start: bytes, more: bytes) -> Say:
    def say(link: socket.socket) -> None:
        link.sendall(start)
        until = time.monotonic() + 10
        while time.monotonic() < until:
            link.sendall(more)

    return say


ENDLESS = {
    "body": endless(OK + b"Content-Length: 99999999999\r\n\r\n", b"x" * 65536),
    "chunks": endless(OK + b"Transfer-Encoding: chunked\r\n\r\n", b"1000\r\n" + b"x" * 4096 + b"\r\n"),
    "without a length": endless(OK + b"\r\n", b"x" * 65536),
    "fields": endless(OK, b"X: y\r\n" * 1000),
    "field": endless(OK + b"X: ", b"y" * 65536),
    "100 continue": endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "status line": endless(b"HTTP/1.1 200 ", b"O" * 65536),
}


@pytest.mark.parametrize("what", ENDLESS)
def test_an_answer_without_end_is_cut_off_soon(answered: Callable[..., Answer | OSError], what: str) -> None:
    began = time.monotonic()
    said = answered(ENDLESS[what])
    assert isinstance(said, OSError) or len(said.reason) <= 300
    assert time.monotonic() - began < 8


def test_a_server_that_drips_its_answer_does_not_hold_the_agent_for_ever(
    answered: Callable[..., Answer | OSError],
) -> None:
    def drip(link: socket.socket) -> None:
        for byte in OK + b"Content-Length: 1000\r\n\r\n" + b"x" * 1000:
            link.sendall(bytes([byte]))
            time.sleep(0.05)

    began = time.monotonic()
    answered(drip, timeout_s=1.0)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    "raw",
    [
        b"", b"\0" * 500, b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 99999 X\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", OK + b"Content-Length: x\r\n\r\nhello",
        OK + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n-5\r\n",
        OK + b"Content-Encoding: gzip\r\nContent-Length: 5\r\n\r\n\x1f\x8b\x08\0\0",
        OK + b"Content-Length: 9\r\n\r\n\xff\xfe\xfd\xfc\0\0\0\0\0", OK + b"\xff\xff: \xff\r\nContent-Length: 0\r\n\r\n",
    ],
)  # fmt: skip
def test_what_is_no_answer_is_an_outage_or_an_answer_never_an_error_of_ours(
    answered: Callable[..., Answer | OSError], raw: bytes
) -> None:
    assert isinstance(answered(raw), Answer | OSError)


def with_body(body: bytes, status: bytes = b"200 OK", *fields: bytes) -> bytes:
    lines = [b"HTTP/1.1 " + status, b"Content-Length: %d" % len(body), *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 60_000, b'{"resend":' * 10_000, b'{"resend": [[[]]], "requests": 5}', b'{"error": {"a": 1}}', b"null",
        b'{"resend": [null, {}, 1e400]}', b'{"resend": ["' + b"x" * 60_000 + b'"]}', b"9" * 50_000, b"NaN",
        b'{"error": "\\ud800"}', b'{"resend": ' + b"[1," * 20_000,
    ],
)  # fmt: skip
def test_json_of_any_shape_is_taken_for_what_it_is(answered: Callable[..., Answer | OSError], body: bytes) -> None:
    said = answered(with_body(body))
    assert isinstance(said, Answer)
    assert said.is_accepted
    assert all(len(name) <= 100 for name in said.resend)
    assert len(said.resend) <= 16


@pytest.mark.parametrize("status", [b"301 Moved", b"302 Found", b"307 Temporary Redirect", b"308 Permanent Redirect"])
def test_a_redirect_is_not_followed(answered: Callable[..., Answer | OSError], status: bytes) -> None:
    elsewhere = Liar(lambda link: link.sendall(with_body(b"{}")))
    said = answered(with_body(b"", status, b"Location: http://127.0.0.1:%d/" % elsewhere.port))
    elsewhere.close()
    assert isinstance(said, Answer)
    assert not said.is_accepted
    assert elsewhere.n_connections == 0


@pytest.mark.parametrize(
    "value",
    [
        b"-5", b"9" * 400, b"1e9", b"NaN", b"\xd9\xa3", b"0x10", b"Thu, 01 Jan 99999 00:00:00 GMT",
        b"Mon, 01 Jan 2300 00:00:00 GMT",
    ],
)  # fmt: skip
def test_a_time_to_wait_is_bounded(answered: Callable[..., Answer | OSError], value: bytes) -> None:
    said = answered(with_body(b"{}", b"429 Too Many Requests", b"Retry-After: " + value))
    assert isinstance(said, Answer)
    assert said.retry_after_s is None or 0 <= said.retry_after_s <= RETRY_AFTER_S_MAX


def test_random_answers_never_raise_anything_but_an_outage(
    answered: Callable[..., Answer | OSError], monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = random.Random(7)
    good = with_body(b'{"duplicate": false, "resend": ["comm"]}', b"200 OK", b"Retry-After: 1")
    for _ in range(150):
        raw = bytearray(good)
        for _ in range(draw.randint(1, 6)):
            raw[draw.randrange(len(raw))] = draw.randrange(256)
        assert isinstance(answered(bytes(raw[: draw.randrange(len(raw) + 1)]), timeout_s=0.5), Answer | OSError)


def test_an_answer_larger_than_may_be_read_is_not_kept(answered: Callable[..., Answer | OSError]) -> None:
    said = answered(with_body(b'{"error": "' + b"x" * ANSWER_BYTES_MAX + b'"}', b"400 Bad Request"))
    assert isinstance(said, Answer)
    assert (said.status, said.is_refused) == (400, False)  # half a sentence is nobody's
    assert len(said.reason) <= 300
    assert post.ANSWER_BYTES_MAX <= 2**20
