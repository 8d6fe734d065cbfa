"""From an HTTP request to an answer: authenticate, cap, read, decode, hand to the committer, wait for the commit.

Nothing is read before the token is good and the length is known and small enough, and nothing is inflated before the
promised size fits what memory may be held. Every refusal is counted by status; a batch with a broken structure is also
counted for its team and node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import parse_qs

import psycopg
from django.db import Error as DjangoDatabaseError
from psycopg_pool import PoolTimeout

from ingest.door.arrival import Arrival, receive_batch
from ingest.door.auth import Bearer, TooManyFailures, Unauthorised
from ingest.door.dumps import NoMoreRoom, NoSuchRequest, receive_dumps
from ingest.door.limits import OverLimit
from ingest.door.numbers import Scattered
from ingest.door.refusals import REFUSALS, batch_words
from ingest.door.server import Server
from ingest.operations import may_see
from ingest.traces.committer import GivenUp, NoRoom, NotStored, QueueFull, Receipt, StoreAway
from ingest.traces.space import RETRY_AFTER_SECONDS, Space
from nccl_instrument.dumps import BODY_BYTES_MAX, BadDump
from nccl_instrument.wire import BATCH_BYTES_MAX, BadBatch, claimed_names, promised_bytes

READ_SECONDS: Final = 15.0
COMMIT_SECONDS: Final = 30.0
BYTES_HELD_MAX: Final = 256 * 2**20
PER_TOKEN_SHARE: Final = 0.75  # of it: room for the largest batch, and whoever holds that much keeps no other team out
DUMPS_WAITING_MAX: Final = 64
DECODED_COPIES: Final = 2  # rows and their byte planes
THREAD_BYTES: Final = 2 * 2**20  # inflating more than this would keep the event loop from others
AGE_NS_MAX: Final = 30 * 86_400_000_000_000
AGE_HEADER: Final = b"diogenes-batch-age-ns"
QUERY_BYTES_MAX: Final = 2048
SERVICE: Final = "diogenes ingest"

Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Answer:
    """Status, JSON body and further headers."""

    status: int
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)


class _Refused(Exception):
    def __init__(self, status: int, error: str, **headers: str) -> None:
        super().__init__(error)
        self.answer = Answer(status, {"error": error}, {name.replace("_", "-"): v for name, v in headers.items()})


async def answer_batch(server: Server, scope: MutableMapping[str, Any], receive: Receive) -> Answer:
    """Answer POST /ingest/batches: 200 after commit, else why not."""
    try:
        return await _answer_batch(server, scope, receive)
    except _Refused as refused:
        server.ledger.requests_refused[refused.answer.status] += 1
        return refused.answer


async def answer_dumps(server: Server, scope: MutableMapping[str, Any], receive: Receive) -> Answer:
    """Answer POST /ingest/dumps: 200 after commit, else why not."""
    try:
        return await _answer_dumps(server, scope, receive)
    except _Refused as refused:
        server.ledger.requests_refused[refused.answer.status] += 1
        return refused.answer


async def answer_knock(server: Server, scope: MutableMapping[str, Any]) -> Answer:
    """Answer OPTIONS /ingest/batches: would a batch with this token be read? A question is no refused batch: not counted."""
    try:
        await _authenticate(server, dict(scope["headers"]), (scope.get("client") or ("unix",))[0])
        return Answer(200, {"status": "the token is good"})
    except _Refused as refused:
        return refused.answer


async def answer_health(server: Server, scope: MutableMapping[str, Any]) -> Answer:
    """Answer GET /ingest/health: 200 while the database answers, else 503; the counts for who has the metrics token."""
    authorization = dict(scope["headers"]).get(b"authorization", b"").decode("latin-1")
    counts = server.counts() if may_see(authorization, is_private=False) else {}
    is_there = await server.presence.is_there()
    status = "ok" if is_there else "the database is away"
    return Answer(200 if is_there else 503, {"status": status, "service": SERVICE, **counts})


async def _answer_batch(server: Server, scope: MutableMapping[str, Any], receive: Receive) -> Answer:
    headers = dict(scope["headers"])
    bearer = await _authenticate(server, headers, (scope.get("client") or ("unix",))[0])
    length = _length(headers)
    if (space := server.space.space).is_short:
        raise _no_room(space, connection="close")
    held = _Held(server, bearer)
    try:
        body = await _read(receive, length, held)
        return await _take(server, bearer, body, time.time_ns(), _age_ns(headers), held)
    finally:
        held.release()


async def take_batch(server: Server, bearer: Bearer, body: bytes, received_ns: int, age_ns: int | None) -> Answer:
    """Decode, store and answer a batch that came by another road than HTTP: the same answers mean the same."""
    held = _Held(server, bearer)
    try:
        held.add(len(body))
        return await _take(server, bearer, body, received_ns, age_ns, held)
    except _Refused as refused:
        server.ledger.requests_refused[refused.answer.status] += 1
        return refused.answer
    finally:
        held.release()


async def answer_orders(server: Server, scope: MutableMapping[str, Any]) -> Answer:
    """Answer GET /ingest/orders?job=…&node=…: dumps that the node is asked for, which agents on another road cannot be told."""
    try:
        bearer = await _authenticate(server, dict(scope["headers"]), (scope.get("client") or ("unix",))[0])
    except _Refused as refused:
        return refused.answer
    asked = parse_qs(scope.get("query_string", b"")[:QUERY_BYTES_MAX].decode("latin-1"))
    job, node = (asked.get(name, [""])[0] for name in ("job", "node"))
    orders = server.orders.of(bearer.team_id, job, node)
    return Answer(200, {"dumps": orders} if orders else {})


async def _take(
    server: Server, bearer: Bearer, body: bytes, received_ns: int, age_ns: int | None, held: _Held
) -> Answer:
    """200 after commit. Raises _Refused."""
    held.add(promised_bytes(body) * DECODED_COPIES)
    arrival = await _decode(server, bearer, body, received_ns, age_ns)
    receipt = await _commit(server, arrival)
    answer: dict[str, Any] = {"duplicate": receipt.duplicate}
    if orders := server.orders.of(bearer.team_id, arrival.batch.job, arrival.batch.node):
        answer["dumps"] = orders
    if receipt.resend:
        answer["resend"] = list(receipt.resend)
    if arrival.n_dropped:
        answer["rows_dropped"] = arrival.n_dropped
    return Answer(200, answer)


async def _answer_dumps(server: Server, scope: MutableMapping[str, Any], receive: Receive) -> Answer:
    headers = dict(scope["headers"])
    bearer = await _authenticate(server, headers, (scope.get("client") or ("unix",))[0])
    length = _length(headers, BODY_BYTES_MAX)
    if (space := server.space.space).is_short:
        raise _no_room(space, connection="close")
    if server.dumps_waiting >= DUMPS_WAITING_MAX:
        raise _Refused(429, "too many dumps are waiting", retry_after="2", connection="close")
    held, loop = _Held(server, bearer), asyncio.get_running_loop()
    server.dumps_waiting += 1
    try:
        body = await _read(receive, length, held)
        held.add(len(body))  # once more: its parts
        is_new = await loop.run_in_executor(server.dumper, receive_dumps, bearer.team_id, body)
    except BadDump as error:
        server.ledger.refuse(bearer.team_id, "", "", f"dumps: {error}")
        raise _Refused(400, str(error)) from error
    except NoSuchRequest as error:
        raise _Refused(410, str(error)) from error
    except NoMoreRoom as error:
        raise _Refused(413, str(error)) from error
    except DjangoDatabaseError as error:
        raise _Refused(503, "the dumps could not be stored this time", retry_after="2") from error
    finally:
        server.dumps_waiting -= 1
        held.release()
    server.dumps_stored += is_new
    return Answer(200, {"duplicate": not is_new})


async def _authenticate(server: Server, headers: dict[bytes, bytes], client: str) -> Bearer:
    authorization = headers.get(b"authorization", b"").decode("latin-1")
    try:
        bearer = await server.tokens.bearer(authorization, client)
    except Unauthorised as error:
        refused = _Refused(401, "no valid agent token", www_authenticate="Bearer", connection="close")
        raise refused from error
    except TooManyFailures as error:
        raise _Refused(429, str(error), retry_after=str(error.retry_after), connection="close") from error
    except (psycopg.Error, PoolTimeout) as error:
        if (space := server.space.space).is_short:  # that is why
            raise _no_room(space, connection="close") from error
        raise _Refused(503, "the database is away", retry_after="2", connection="close") from error
    server.ledger.tokens_used.add(bearer.token_id)
    return bearer


def _length(headers: dict[bytes, bytes], most: int = BATCH_BYTES_MAX) -> int:
    raw = headers.get(b"content-length", b"")
    if not raw.isdigit() or len(raw) > 18:
        raise _Refused(411, "Content-Length is required", connection="close")
    length = int(raw)
    if length > most:
        raise _Refused(413, f"{length} bytes, at most {most}", connection="close")
    return length


class _Held:
    """Memory this request may be holding, counted against what all may hold together, and all of one token.

    A body counts as it arrives: what is only announced takes no room from others.
    """

    def __init__(self, server: Server, bearer: Bearer) -> None:
        self._server, self._token = server, bearer.token_id
        self._bytes = 0

    def add(self, n_bytes: int) -> None:
        of_token = self._server.bytes_held_by[self._token] + n_bytes
        if self._server.bytes_held + n_bytes > BYTES_HELD_MAX or of_token > BYTES_HELD_MAX * PER_TOKEN_SHARE:
            raise _Refused(429, "too many batches at once", retry_after="1", connection="close")
        self._server.bytes_held += n_bytes
        self._server.bytes_held_by[self._token] = of_token
        self._bytes += n_bytes

    def release(self) -> None:
        self._server.bytes_held -= self._bytes
        self._server.bytes_held_by[self._token] -= self._bytes
        if not self._server.bytes_held_by[self._token]:
            del self._server.bytes_held_by[self._token]


async def _read(receive: Receive, length: int, held: _Held) -> bytes:
    try:
        async with asyncio.timeout(READ_SECONDS):
            return await _read_all(receive, length, held)
    except TimeoutError as error:
        raise _Refused(408, f"the body did not arrive within {READ_SECONDS:.0f} s", connection="close") from error


async def _read_all(receive: Receive, length: int, held: _Held) -> bytes:
    parts, n_bytes, more = [], 0, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Refused(400, "the client went away")
        part = message.get("body", b"")
        n_bytes += len(part)
        if n_bytes > length:
            raise _Refused(413, "more bytes than Content-Length says", connection="close")
        held.add(len(part))
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


async def _decode(server: Server, bearer: Bearer, body: bytes, received_ns: int, age_ns: int | None) -> Arrival:
    try:
        if promised_bytes(body) > THREAD_BYTES:
            return await asyncio.to_thread(receive_batch, bearer.team_id, body, received_ns, age_ns)
        return receive_batch(bearer.team_id, body, received_ns, age_ns)
    except BadBatch as error:
        job, node = claimed_names(body)
        server.ledger.refuse(bearer.team_id, job, node, str(error))
        REFUSALS.note(400, str(error), {"job": job, "node": node})
        raise _Refused(400, str(error)) from error


async def _commit(server: Server, arrival: Arrival) -> Receipt:
    try:
        return await asyncio.wait_for(server.committer.submit(arrival), COMMIT_SECONDS)
    except QueueFull as error:
        raise _Refused(429, "too many batches are waiting", retry_after="1") from error
    except TimeoutError as error:  # its turn did not come; it may be stored all the same, and its next try says so
        raise _Refused(429, "too many batches are waiting", retry_after="2") from error
    except NoRoom as error:
        server.space.note_full()
        raise _no_room(server.space.space) from error
    except StoreAway as error:
        raise _Refused(503, error.says, retry_after="2") from error
    except Scattered as error:
        _count_refusal(server, arrival, str(error))
        raise _Refused(429, str(error), retry_after="10") from error
    except OverLimit as error:
        _count_refusal(server, arrival, str(error))
        REFUSALS.note(400, str(error), batch_words(arrival.batch))
        raise _Refused(400, str(error)) from error
    except GivenUp as error:
        _count_refusal(server, arrival, str(error))
        raise _Refused(410, str(error)) from error
    except NotStored as error:
        _count_refusal(server, arrival, "the batch could not be stored; why is in the log of ingest")
        raise _Refused(500, "the batch could not be stored") from error


def _no_room(space: Space, **headers: str) -> _Refused:
    return _Refused(507, space.says, retry_after=str(RETRY_AFTER_SECONDS), **headers)


def _count_refusal(server: Server, arrival: Arrival, reason: str) -> None:
    server.ledger.refuse(arrival.team_id, arrival.batch.job, arrival.batch.node, reason)


def _age_ns(headers: dict[bytes, bytes]) -> int | None:
    """How long ago the node says the batch was cut, by its monotonic clock."""
    raw = headers.get(AGE_HEADER, b"")
    return min(int(raw), AGE_NS_MAX) if raw.isdigit() and len(raw) <= 18 else None
