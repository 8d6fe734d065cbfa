"""Dumps: asking the agents of an attempt for stacks, Flight Recorder dumps and raw epochs, and keeping what they answer.

A request is a row; every ingest process reads the open ones once a second and tells them in its answers to batches
(orders.py). What comes is stored as it came, compressed, once per node, boot and look, within limits that count what they
leave out. Who analyses reads the parts; how far a request has got is counted from what is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import Error as DatabaseError
from django.db import IntegrityError, connection, transaction
from django.db.models import BigIntegerField, F, Func, Sum
from django.utils import timezone

from ingest.door import limits
from ingest.door.marks import mark_dumped
from ingest.models import Attempt, DumpRequest, PinnedWindow, StoredDump
from ingest.traces.let_go import note_let_go
from nccl_instrument.dumps import ALL_KINDS, EPOCHS, KINDS, LOOKS_MAX, Arrived, Dumps, Part, Silent, decode_dumps

LIFE: Final = timedelta(seconds=60)
LATE: Final = timedelta(seconds=60)
"""Answers are still taken so long after the request has expired: they were on the way."""
APART_S: Final = 2.0
BETWEEN: Final = timedelta(seconds=60)
"""Between two requests that the program makes for itself."""
RANKS_MAX: Final = 2000
SILENT_MAX: Final = 200
PART_BYTES: Final = 512
"""What a part takes besides what was dumped."""


class TooSoon(Exception):
    """A request is under way, or the last one was a moment ago; the message says which."""


class NoSuchRequest(Exception):
    """Nobody asked this node for it, or so long ago that it does not count any more."""


class NoMoreRoom(Exception):
    """The request's dumps take so much that not even another reason is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DumpPart(Arrived):
    """One dump of one process as it is stored, for this request."""

    request: int


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a request is. ranks_answered: ranks of which something was taken. silent: the first SILENT_MAX by rank."""

    nodes_expected: int
    nodes_answered: int
    ranks_answered: int
    silent: tuple[Silent, ...]
    silent_count: int


def ask_dumps(
    attempt_id: int,
    kinds: Sequence[str] = KINDS,
    ranks: Collection[int] | None = None,
    *,
    looks: int = LOOKS_MAX,
    asked_by: str = "",
) -> DumpRequest:
    """Ask the agents of an attempt. ranks: None for all; asked_by: a person's name, or the program asks for itself.

    Raises TooSoon, and ValueError for what cannot be asked.
    """
    wanted = None if ranks is None else sorted(set(ranks))
    if not kinds or any(kind not in ALL_KINDS for kind in kinds) or not 1 <= looks <= LOOKS_MAX:
        raise ValueError(f"kinds are {', '.join(ALL_KINDS)}, looks 1 to {LOOKS_MAX}")
    if wanted is not None and not (0 < len(wanted) <= RANKS_MAX and wanted[0] >= 0):
        raise ValueError(f"name 1 to {RANKS_MAX} ranks, or none for all")
    if why := why_not(attempt_id, by_person=bool(asked_by)):
        raise TooSoon(why)
    attempt = Attempt.objects.select_related("job").get(pk=attempt_id)
    _make_room(attempt.job.team_id)
    now = timezone.now()
    try:
        with transaction.atomic():
            return DumpRequest.objects.create(
                attempt=attempt, kinds=sorted(set(kinds)), ranks=wanted, looks=looks, apart_s=APART_S,
                asked_by=asked_by[:150], asked_at=now, expires_at=now + LIFE,
            )  # fmt: skip
    except IntegrityError as error:  # somebody else was faster
        raise TooSoon(why_not(attempt_id, by_person=True) or "another request was made just now") from error


def why_not(attempt_id: int, *, by_person: bool) -> str:
    """Why no dumps can be asked for now; '' when they can. Raises Attempt.DoesNotExist."""
    if Attempt.objects.get(pk=attempt_id).state != Attempt.State.RUNNING:
        return "This attempt of the job has ended: there is nobody left to ask."
    now = timezone.now()
    close_expired(now)
    newest = DumpRequest.objects.filter(attempt_id=attempt_id).order_by("-asked_at", "-pk").first()
    if newest is None:
        return ""
    if newest.state == DumpRequest.State.OPEN:
        return "A request is under way; it takes a minute at most."
    if not by_person and now - newest.asked_at < BETWEEN:
        return f"The last request was {(now - newest.asked_at).total_seconds():.0f} s ago."
    return ""


def close_expired(now: datetime) -> int:
    """Close requests that nobody answers any more; how many."""
    over = DumpRequest.objects.filter(state=DumpRequest.State.OPEN, expires_at__lt=now)
    return over.update(state=DumpRequest.State.EXPIRED)


def requests_of(attempt_id: int) -> list[DumpRequest]:
    """The attempt's requests, newest first."""
    return list(DumpRequest.objects.filter(attempt_id=attempt_id).order_by("-asked_at", "-pk"))


def parts_of(
    request_ids: Collection[int],
    *,
    kinds: Collection[str] = KINDS,
    ranks: Collection[int] | None = None,
    looks: Collection[int] | None = None,
) -> list[DumpPart]:
    """What came for these requests, by rank, process and look, narrowed where asked for."""
    found = StoredDump.objects.filter(answer__request_id__in=list(request_ids), kind__in=list(kinds))
    if ranks is not None:
        found = found.filter(rank__in=list(ranks))
    if looks is not None:
        found = found.filter(answer__look__in=list(looks))
    return [_part(row) for row in found.order_by(*_ORDER).values_list(*_COLUMNS)]


def each_part(request_id: int) -> Iterator[DumpPart]:
    """All that came for a request, in the same order, one after the other: together it may be more than memory holds."""
    found = StoredDump.objects.filter(answer__request=request_id)
    for pk in list(found.order_by(*_ORDER).values_list("pk", flat=True)):
        row = found.filter(pk=pk).values_list(*_COLUMNS).first()
        if row is not None:
            yield _part(row)


def _part(row: Sequence[Any]) -> DumpPart:
    return DumpPart(**dict(zip(_FIELDS, (*row[:-1], bytes(row[-1])), strict=True)))


_ORDER: Final = ("rank", "parent", "pid", "answer__look", "pk")
_COLUMNS: Final = (
    "answer__request_id", "answer__node_name", "answer__look", "kind", "rank", "pid", "parent", "command", "taken_ns",
    "silent", "by", "length", "packed",
)  # fmt: skip
_FIELDS: Final = ("request", "node", "look", *_COLUMNS[3:])


def store_dumps(team_id: int, dumps: Dumps) -> bool:
    """Keep what a node answered; whether it is new. Raises NoSuchRequest, NoMoreRoom, django.db.Error."""
    with transaction.atomic(), connection.cursor() as cursor:
        request = DumpRequest.objects.filter(
            pk=dumps.request, attempt__job__team_id=team_id, attempt__job__name=dumps.job,
            attempt__nodes__name=dumps.node, expires_at__gte=timezone.now() - LATE, looks__gte=dumps.look,
        ).first()  # fmt: skip
        if request is None:
            raise NoSuchRequest("nobody asked this node for these dumps, or it was too long ago")
        cursor.execute(_ANSWER, [request.pk, dumps.node, dumps.boot, dumps.look])
        row = cursor.fetchone()
        if row is not None:
            parts = _within(request, dumps.parts)
            StoredDump.objects.bulk_create([_row(row[0], part) for part in parts], batch_size=500)
            grown = PART_BYTES * (len(parts) + 1) + sum(len(part.packed) for part in parts)
            n_left_out = sum(before.length > after.length for before, after in zip(dumps.parts, parts, strict=True))
            # Last: it locks the row that all nodes share, until the commit.
            counted = DumpRequest.objects.filter(pk=request.pk)
            counted.update(bytes=F("bytes") + grown, left_out=F("left_out") + n_left_out)
        return row is not None


def receive_dumps(team_id: int, body: bytes) -> bool:
    """Decode and keep what a node answered; whether it is new. Raises BadDump, NoSuchRequest, NoMoreRoom, django.db.Error.

    For a thread of its own.
    """
    dumps = decode_dumps(body)
    try:
        is_new = store_dumps(team_id, dumps)
    except DatabaseError:
        connection.close()  # it may be broken, and nothing else would notice in this thread
        raise
    if is_new:
        mark_dumped([dumps.request])
    return is_new


def ranks_asked(request_id: int) -> dict[int, str]:
    """Rank that was asked for → its node. Raises DumpRequest.DoesNotExist."""
    request = DumpRequest.objects.get(pk=request_id)
    return {rank: node for node, rank in _ranks_of(request, _expected(request))}


def progress_of(request_id: int) -> Progress:
    """How far the request is. Raises DumpRequest.DoesNotExist."""
    request = DumpRequest.objects.get(pk=request_id)
    expected, answered = set(_expected(request)), _answered(request)
    rows = StoredDump.objects.filter(answer__request=request, parent=0)
    taken = rows.filter(length__gt=0).values_list("rank", "kind").distinct()
    has = {(rank, kind) for rank, kind in taken}
    silent = {
        (rank, kind): Silent(rank, node, kind, why)
        for rank, node, kind, why in rows.filter(length=0).values_list("rank", "answer__node_name", "kind", "silent")
        if (rank, kind) not in has
    }
    for node, rank in _ranks_of(request, expected - answered):
        silent |= {
            (rank, kind): Silent(rank, node, kind, "its node has not answered")
            for kind in request.kinds
            if (rank, kind) not in has and (rank, kind) not in silent
        }
    first = tuple(silent[key] for key in sorted(silent)[:SILENT_MAX])
    return Progress(len(expected | answered), len(answered), len({rank for rank, _ in has}), first, len(silent))


def drop_dumps_before(before: datetime) -> int:
    """Let go of requests older than that, with all that came, counted; how many. Evidence stays: what was asked for within
    a stretch of traces that is pinned."""
    old = DumpRequest.objects.filter(asked_at__lt=before).values_list("pk", "attempt_id", "asked_at")
    return _let_go([pk for pk, attempt_id, asked_at in old if not _is_pinned(attempt_id, asked_at)])


def _is_pinned(attempt_id: int, asked_at: datetime) -> bool:
    asked_ns = int(asked_at.timestamp() * 1e9)
    return PinnedWindow.objects.filter(attempt=attempt_id, start_ns__lte=asked_ns, end_ns__gt=asked_ns).exists()


def _row(answer_id: int, part: Part) -> StoredDump:
    return StoredDump(
        answer_id=answer_id, kind=part.kind, rank=part.rank, pid=part.pid, parent=part.parent, command=part.command,
        taken_ns=part.taken_ns, silent=part.silent, by=part.by, length=part.length, packed=part.packed,
    )  # fmt: skip


def _within(request: DumpRequest, parts: Sequence[Part]) -> list[Part]:
    """The parts, without what there is no room for. Raises NoMoreRoom.

    Answers that are being stored at this moment are not counted yet: the limit may be passed by those few.
    """
    room = limits.DUMP_REQUEST_BYTES_MAX - request.bytes - PART_BYTES * (len(parts) + 1)
    if room < 0:
        raise NoMoreRoom(f"the dumps of this request take {limits.DUMP_REQUEST_BYTES_MAX >> 20} MiB: no more are kept")
    epochs_room = min(room, room - limits.DUMP_REQUEST_BYTES_MAX + limits.DUMP_EPOCHS_BYTES_MAX)
    kept, n_bytes = [], 0
    for part in parts:
        if n_bytes + len(part.packed) > (epochs_room if part.kind == EPOCHS else room):
            most = limits.DUMP_EPOCHS_BYTES_MAX if part.kind == EPOCHS else limits.DUMP_REQUEST_BYTES_MAX
            why = f"left out: the dumps of this request take more than {most >> 20} MiB"
            part = replace(part, silent=why, length=0, packed=b"")
        n_bytes += len(part.packed)
        kept.append(part)
    return kept


def bytes_of(request_ids: Collection[int], kinds: Collection[str] = KINDS) -> int:
    """What the dumps of these kinds take that came for these requests, as they are stored."""
    found = StoredDump.objects.filter(answer__request_id__in=list(request_ids), kind__in=list(kinds))
    size = Func(F("packed"), function="octet_length", output_field=BigIntegerField())
    return int(found.aggregate(n=Sum(size))["n"] or 0)


def _make_room(team_id: int) -> None:
    """Let go of the team's oldest requests until a new one fits whatever it brings, but not of evidence. Raises TooSoon."""
    of_team = DumpRequest.objects.filter(attempt__job__team_id=team_id)
    n_open = of_team.filter(state=DumpRequest.State.OPEN).count()
    closed = of_team.exclude(state=DumpRequest.State.OPEN)
    room = limits.DUMP_TEAM_BYTES_MAX - (n_open + 1) * limits.DUMP_REQUEST_BYTES_MAX
    if room < 0:
        raise TooSoon("Too many requests of this team are under way; each takes a minute at most.")
    over = int(closed.aggregate(n=Sum("bytes"))["n"] or 0) - room
    gone = []
    for pk, attempt_id, asked_at, n_bytes in (
        closed.order_by("asked_at", "pk").values_list(*_OLDEST) if over > 0 else ()
    ):
        if over <= 0:
            break
        if not _is_pinned(attempt_id, asked_at):
            gone.append(pk)
            over -= n_bytes
    if over > 0:
        note_let_go("dumps_refused", 1)
        raise TooSoon("The dumps that incidents of this team rest on take all the room there is for dumps.")
    _let_go(gone)


_OLDEST: Final = ("pk", "attempt_id", "asked_at", "bytes")


def _let_go(request_ids: list[int]) -> int:
    DumpRequest.objects.filter(pk__in=request_ids).delete()
    return note_let_go("dumps", len(request_ids))


def _expected(request: DumpRequest) -> list[str]:
    """Nodes that have ranks that were asked for; all nodes while no rank is known."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT node_name FROM ({EXPECTED}) e WHERE request_id = %s", [request.pk])
        return [str(name) for (name,) in cursor.fetchall()]


def _answered(request: DumpRequest) -> set[str]:
    """Nodes that have answered every look."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT node_name FROM ({ANSWERED}) a WHERE request_id = %s", [request.pk])
        return {str(name) for (name,) in cursor.fetchall()}


def _ranks_of(request: DumpRequest, nodes: Collection[str]) -> list[tuple[str, int]]:
    """(node, rank) of the ranks on these nodes that were asked for."""
    found = request.attempt.ranks.filter(node__name__in=list(nodes), replaced=False, rank__gte=0)
    if request.ranks is not None:
        found = found.filter(rank__in=request.ranks)
    return list(found.values_list("node__name", "rank"))


_ANSWER: Final = """
INSERT INTO ingest_dumpanswer (request_id, node_name, boot, look, received_at) VALUES (%s, %s, %s, %s, now())
ON CONFLICT DO NOTHING RETURNING id
"""
EXPECTED: Final = """
SELECT r.id AS request_id, n.name AS node_name FROM ingest_dumprequest r JOIN ingest_node n ON n.attempt_id = r.attempt_id
WHERE EXISTS (
    SELECT 1 FROM ingest_rank k WHERE k.node_id = n.id AND NOT k.replaced
    AND (jsonb_typeof(r.ranks) IS DISTINCT FROM 'array' OR r.ranks @> to_jsonb(k.rank))
) OR NOT EXISTS (SELECT 1 FROM ingest_rank k WHERE k.attempt_id = r.attempt_id AND NOT k.replaced)
"""
ANSWERED: Final = """
SELECT a.request_id, a.node_name FROM ingest_dumpanswer a JOIN ingest_dumprequest r ON r.id = a.request_id
GROUP BY a.request_id, a.node_name, a.boot, r.looks HAVING count(DISTINCT a.look) >= r.looks
"""
