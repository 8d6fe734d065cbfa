"""The topology grid kept current for whoever looks: drawn by workers, kept in Valkey, sent as what has changed.

A grid of 100,000 ranks takes seconds to read from the traces, so no page waits for that: the newest one lies ready, and
while somebody has an incident open it is drawn again every second or as often as the machine can. Nobody looks: nothing is
drawn. Kept are the whole grid, packed, for a page that opens; the states alone, for a page that fell behind; and the last
frames between them. Whoever draws holds a lock, so frames have one writer.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import hashlib
import json
import logging
import secrets
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, get_type_hints

import numpy as np
import redis
import redis.asyncio
from celery.exceptions import SoftTimeLimitExceeded
from django.conf import settings
from redis.exceptions import LockError

from console.dashboard.schema import an_object, schema_of
from console.incidents.models import ConditionState, Incident
from console.incidents.pictures.evidence import SECOND, incident_grid, unheard_ns
from console.incidents.pictures.grid import Grid
from console.incidents.pictures.layers import Numbered
from console.incidents.pictures.topology_frames import States, frame_between, frame_of_age, frame_of_all
from console.incidents.streams import STREAMS_RANG, UNREACHABLE, Heard, Position
from console.operations.metrics import GRID_FRAMES, GRIDS_FAILED
from ingest.read import latest_data_ns

log = logging.getLogger(__name__)
WANTED_KEY: Final = "dgs:topology:wanted"
WANTED_SECONDS: Final = 12
TRIED_KEY: Final = "dgs:topology:tried"
DRAWING_KEY: Final = "dgs:topology:drawing"
DRAWING_SECONDS: Final = 1.0
"""After so long a worker begins no other grid."""
KEEP_SECONDS: Final = 24 * 3600
LOCK_SECONDS: Final = 120
FRAMES_KEPT: Final = 32
TEXTS_MAX: Final = 4096
"""Texts only become more within an epoch; beyond so many it ends and the page fetches the grid anew."""
PACKED_EVERY_S: Final = 10.0
OLD_SECONDS: Final = 5.0
"""A grid looked at last so long ago is drawn by who asks: whoever should draw it does not, or nobody looked at it."""
ASKER_WAITS_S: Final = 5.0
READY_MAX: Final = 8
READY_SECONDS: Final = 60
"""Of so many firing incidents the grid lies ready, and is at most so old."""
AGE_STEP_S: Final = 10
"""Of a job of which nothing is heard the ages are drawn again so often, and that nobody is known to be well."""
CHANGING: Final = ("at", "state", "note", "last_seen_ms_ago")
PACKED: Final = an_object(
    **{
        name: {"anyOf": [schema_of(Numbered), schema_of(kind)]} if kind == list[str] else schema_of(kind)
        for name, kind in get_type_hints(Grid).items()
    },
    stream=an_object(name=str, epoch=str, offset=int),
)
"""The packed grid, for the API's document: columns of texts are numbered unless they are empty."""
_LEVEL: Final = 1  # packing 100,000 ranks well takes longer than sending them


def topology_stream(number: int) -> str:
    return f"topology:{number}"


def topology_number(stream: str) -> int | None:
    """The number of the incident whose grid the stream is of; None for other streams."""
    kind, _, number = stream.partition(":")
    return int(number) if kind == "topology" else None


def want(number: int) -> None:
    """Somebody looks, or soon will. Raises one of UNREACHABLE."""
    _client(settings.REDIS_URL).zadd(WANTED_KEY, {str(number): time.time() + WANTED_SECONDS})


async def want_on_loop(client: redis.asyncio.Redis, number: int) -> None:
    await client.zadd(WANTED_KEY, {str(number): time.time() + WANTED_SECONDS})


def wanted() -> list[int]:
    """Numbers of the incidents that somebody looks at. Raises one of UNREACHABLE."""
    client = _client(settings.REDIS_URL)
    client.zremrangebyscore(WANTED_KEY, "-inf", time.time())
    return [int(number) for number in client.zrange(WANTED_KEY, 0, -1)]


def draw_wanted() -> None:
    """Draw what somebody looks at; of the newest firing incidents also what was not drawn for a while, as pages open on them.

    One that cannot be drawn leaves the others be. One process draws at a time, and not for long: the others of its worker
    deliver. What it does not come to is first the next time.
    """
    client = _client(settings.REDIS_URL)
    lock = client.lock(DRAWING_KEY, timeout=LOCK_SECONDS, blocking=False)
    if not lock.acquire():
        return
    try:
        stop_at = time.monotonic() + DRAWING_SECONDS
        for number in _due(client):
            client.zadd(TRIED_KEY, {str(number): time.time()})
            _draw_safely(number)
            if time.monotonic() > stop_at:
                return
    finally:
        with contextlib.suppress(LockError):
            lock.release()


def _due(client: Any) -> list[int]:
    """Numbers of the incidents to draw, the one tried longest ago first."""
    client.zremrangebyscore(TRIED_KEY, "-inf", time.time() - KEEP_SECONDS)
    tried = {int(number): at for number, at in client.zrange(TRIED_KEY, 0, -1, withscores=True)}
    firing = Incident.objects.filter(condition=ConditionState.FIRING)
    newest = firing.order_by("-id").values_list("pk", flat=True)[:READY_MAX]
    late = time.time() - READY_SECONDS
    due = {*wanted(), *(number for number in newest if tried.get(number, 0) < late)}
    return sorted(due, key=lambda number: tried.get(number, 0))


def _draw_safely(number: int) -> None:
    try:
        draw(number)
    except (*UNREACHABLE, SoftTimeLimitExceeded):
        raise
    except Exception:
        GRIDS_FAILED.inc()
        log.exception("a grid could not be drawn", extra={"incident": number})


def draw(number: int, wait_s: float = 0) -> None:
    """Draw the incident's grid anew and send what has changed. While somebody else draws it: wait so long, then leave it."""
    client = _client(settings.REDIS_URL)
    lock = client.lock(f"dgs:topology:{number}:lock", timeout=LOCK_SECONDS, blocking_timeout=wait_s)
    if not lock.acquire():
        return
    try:
        incident = Incident.objects.filter(pk=number).first()
        if incident is None:
            return
        shows = _shows(incident)
        if client.hget(_key(number), "shows") != shows.encode() or _is_packed_behind(client, number):
            publish_grid(number, incident_grid(incident), shows)
        client.hset(_key(number), "drawn_at", time.time())
    finally:
        with contextlib.suppress(LockError):  # it took longer than the lock holds
            lock.release()


def _is_packed_behind(client: Any, number: int) -> bool:
    """Whether the packed grid is to be made anew: it lacks the newest changes, and was packed a while ago."""
    offset, packed_offset, at = client.hmget(_key(number), "offset", "packed_offset", "packed_at")
    return at is not None and offset != packed_offset and time.time() - float(at) > PACKED_EVERY_S


def packed_grid(incident: Incident) -> bytes:
    """The grid as gzipped JSON, drawn now if nobody has lately. Raises one of UNREACHABLE."""
    client, number = _client(settings.REDIS_URL), incident.pk
    want(number)
    packed, drawn_at = client.hmget(_key(number), "packed", "drawn_at")
    if drawn_at is None or time.time() - float(drawn_at) > OLD_SECONDS:
        draw(number, ASKER_WAITS_S if packed is None else 0)
        packed = client.hget(_key(number), "packed")
    return pack_unstreamed(incident) if packed is None else bytes(packed)


def pack_unstreamed(incident: Incident) -> bytes:
    """The grid drawn now, while Valkey is away: its epoch is empty, so that it is asked for again."""
    grid = incident_grid(incident)
    return pack(incident.pk, grid, _states_after(None, grid), epoch="")


def _shows(incident: Incident) -> str:
    """What the grid is drawn from: the same twice means the same grid."""
    revision = incident.revisions.order_by("-number").values_list("number", flat=True).first()  # its body is large
    is_over = incident.condition == ConditionState.CLEAR
    unheard_s = 0 if is_over else unheard_ns(incident.attempt) // SECOND
    known = (latest_data_ns(incident.attempt_id), revision or 0, unheard_s // AGE_STEP_S)
    return " ".join(map(str, (incident.condition, *known)))


def publish_grid(number: int, grid: Grid, shows: str = "") -> None:
    """Keep the grid, and tell the sockets what has changed. shows: what it was drawn from."""
    client = _client(settings.REDIS_URL)
    kept = _kept(dict(zip(_KEPT, client.hmget(_key(number), _KEPT), strict=True)))
    places = _places(grid)
    before = kept.states if kept is not None and kept.places == places else None
    after = _states_after(before, grid)
    frame = frame_between(number, before, after) if before is not None and after.epoch == before.epoch else None
    if frame is not None:
        after = dataclasses.replace(after, offset=after.offset + 1)
        frame = frame_between(number, before, after)  # type: ignore[arg-type]  # with the offset it brings pages to
    is_new = before is None or after.epoch != before.epoch
    packed = b""
    if kept is None or is_new or time.time() - kept.packed_at > PACKED_EVERY_S:
        packed = pack(number, grid, after)
    _keep(client, number, {"places": places, "shows": shows}, after, frame, packed, is_new)
    if frame is not None or is_new:
        GRID_FRAMES.inc()


def pack(number: int, grid: Grid, states: States, epoch: str | None = None) -> bytes:
    """Gzipped JSON of the whole grid: texts once each and numbered, as most of a hundred thousand are alike."""
    said = {name: _numbered(column) for name, column in dataclasses.asdict(grid).items() if name != "note"}
    said["note"] = {"texts": states.texts, "at": states.note.tolist()}
    place = {"epoch": str(states.epoch) if epoch is None else epoch, "offset": states.offset}
    said["stream"] = {"name": topology_stream(number), **place}
    return gzip.compress(json.dumps(said, separators=(",", ":")).encode(), _LEVEL)


async def read_frames(client: redis.asyncio.Redis, after: Position) -> Heard:
    """The frames after a position, or one of all where they are no longer kept; of a grid that nobody draws any more, how old
    it is. Raises one of UNREACHABLE."""
    number = int(after.name.partition(":")[2])
    stands: list[Any] = await client.hmget(_key(number), ["epoch", "offset", "drawn_at"])
    if (heard := _nothing_new(after, *stands[:2])) is not None:
        drawn_at = stands[2]
        is_same = heard.position == after and not heard.gap and drawn_at is not None
        return dataclasses.replace(heard, frames=_age(after, float(drawn_at))) if is_same else heard
    async with client.pipeline(transaction=True) as pipe:
        pipe.hmget(_key(number), "epoch", "offset", "all")
        pipe.lrange(_frames_key(number), 0, -1)
        (epoch, offset, everything), frames = await pipe.execute()
    if (heard := _nothing_new(after, epoch, offset)) is not None:  # much may have happened between the two
        return heard
    now = Position(after.name, epoch.decode(), int(offset))
    behind = now.offset - after.offset
    return Heard(now, [], frames=frames[len(frames) - behind :] if behind <= len(frames) else [everything])


def _age(at: Position, drawn_at: float) -> list[bytes]:
    """That the grid is old, where it is: whoever draws it stands still, or has too much to do."""
    age_s = time.time() - drawn_at
    if age_s < OLD_SECONDS:
        return []
    return [frame_of_age(int(at.name.partition(":")[2]), int(at.epoch), at.offset, int(age_s * 1000))]


def _nothing_new(after: Position, epoch: bytes | None, offset: bytes | None) -> Heard | None:
    """What is heard where no frames go on from `after`; None where some do."""
    if epoch is None or offset is None:
        return Heard(after, [])
    now = Position(after.name, epoch.decode(), int(offset))
    if now.epoch != after.epoch or after.offset > now.offset:
        return Heard(now, [], "the grid was laid out anew")
    return Heard(now, []) if now == after else None


@dataclass(frozen=True, slots=True)
class _Kept:
    places: bytes
    states: States
    packed_at: float


_KEPT: Final = ("places", "epoch", "offset", "state", "note", "texts", "packed_at")


def _kept(fields: dict[str, Any]) -> _Kept | None:
    if fields["state"] is None:
        return None
    state, note = np.frombuffer(fields["state"], np.uint8), np.frombuffer(fields["note"], np.uint32)
    states = States(int(fields["epoch"]), int(fields["offset"]), state, note, tuple(json.loads(fields["texts"])))
    return _Kept(fields["places"], states, float(fields["packed_at"]))


def _keep(
    client: Any, number: int, of: dict[str, Any], states: States, frame: bytes | None, packed: bytes, is_new: bool
) -> None:
    fields: dict[str, Any] = {
        "epoch": states.epoch, "offset": states.offset, **of, "state": states.state.tobytes(),
        "note": states.note.tobytes(), "texts": json.dumps(states.texts), "all": frame_of_all(number, states),
        "drawn_at": time.time(),
    }  # fmt: skip
    if packed:
        fields |= {"packed": packed, "packed_at": time.time(), "packed_offset": states.offset}
    with client.pipeline(transaction=True) as pipe:
        pipe.hset(_key(number), mapping=fields)
        pipe.expire(_key(number), KEEP_SECONDS)
        if is_new:
            pipe.delete(_frames_key(number))
        if frame is not None:
            pipe.rpush(_frames_key(number), frame)
            pipe.ltrim(_frames_key(number), -FRAMES_KEPT, -1)
            pipe.expire(_frames_key(number), KEEP_SECONDS)
        if frame is not None or is_new:
            pipe.publish(STREAMS_RANG, topology_stream(number))
        pipe.execute()


def _states_after(before: States | None, grid: Grid) -> States:
    """The grid's states at the offset of `before`; of a new epoch without one, or when its texts have become too many."""
    state = np.array(grid.state, np.uint8)
    texts = dict.fromkeys(grid.note)
    if before is not None and len(texts | dict.fromkeys(before.texts)) <= TEXTS_MAX:
        texts = dict.fromkeys(before.texts) | texts
        epoch, offset = before.epoch, before.offset
    else:
        epoch, offset = secrets.randbits(32), 0
    place = {text: at for at, text in enumerate(texts)}
    note = np.fromiter((place[text] for text in grid.note), np.uint32, len(grid.note))
    return States(epoch, offset, state, note, tuple(texts))


def _places(grid: Grid) -> bytes:
    """A fingerprint of all that does not change while the same processes run on the same nodes."""
    fixed = {name: column for name, column in dataclasses.asdict(grid).items() if name not in CHANGING}
    return hashlib.blake2b(repr(fixed).encode(), digest_size=16).hexdigest().encode()


def _numbered(column: Any) -> Any:
    """Columns of texts as their different texts and places in them; other columns as they are."""
    if not isinstance(column, list) or not column or not isinstance(column[0], str):
        return column
    place = {text: at for at, text in enumerate(dict.fromkeys(column))}
    return {"texts": list(place), "at": [place[text] for text in column]}


def _key(number: int) -> str:
    return f"dgs:topology:{number}"


def _frames_key(number: int) -> str:
    return f"dgs:topology:{number}:frames"


@lru_cache(maxsize=4)
def _client(url: str) -> Any:
    return redis.Redis.from_url(url, socket_timeout=5, socket_connect_timeout=1)
