"""Dumps that came, read once: for the diagnosis, and as the summary that pages show.

Reading those of ten thousand ranks takes seconds, so it is done by workers only; what was read lately is kept in the
worker's memory, since every look that diagnoses asks for it again.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

from django.core.cache import cache
from django.db.models import Count
from django.utils import timezone

from console.dumps.models import DumpSummary
from console.dumps.wanted import BEFORE, asked_since, began_at
from console.incidents.models import ConditionState, Incident
from ingest.door.dumps import bytes_of, parts_of, ranks_asked
from ingest.models import Communicator, DumpAnswer, DumpRequest
from nccl_instrument.dumps import KINDS
from rca.dumps.dumped import Dumped, dumped_of, with_dumps
from rca.dumps.dumped_view import views_of
from rca.findings import Diagnosis, SymptomKind
from rca.settings import Settings

KEPT: Final = 2  # jobs whose dumps stay in memory
LOOK_BYTES_MAX: Final = 4 * 2**20
"""Compressed. Of so much (two hundred ranks) reading takes a second or two, which a look may spend; more is left to the task
that reads dumps, and the look goes on without."""
OWED_SECONDS: Final = 300

_NOT_STORABLE: Final = re.compile(r"(?<!\\)((?:\\\\)*)\\u(?:0000|d[89a-f][0-9a-f]{2})")

Key = tuple[tuple[str, int, int], ...]
"""(kind, request, how many answers it has), of every kind."""


def answers_of(request_ids: Iterable[int]) -> dict[int, int]:
    """Request → how many answers of nodes came, of those that have any."""
    counted = DumpAnswer.objects.filter(request__in=list(request_ids)).values("request").annotate(n=Count("pk"))
    return {row["request"]: row["n"] for row in counted}


def dumps_of(incident: Incident) -> Dumped | None:
    """Of every kind the newest that came since the trouble began; None while there is none."""
    requests = asked_since(incident.attempt_id, began_at(incident) - BEFORE)
    return read_newest(requests)


def read_newest(requests: list[DumpRequest]) -> Dumped | None:
    """Of every kind what came for the newest of these requests that has any; None when nothing came."""
    key = _key_of(requests)
    return _read(key) if key else None


def _key_of(requests: list[DumpRequest]) -> Key:
    n_answers = answers_of(one.pk for one in requests)
    key: list[tuple[str, int, int]] = []
    for kind in KINDS:
        newest = next((one for one in requests if kind in one.kinds and one.pk in n_answers), None)
        if newest is not None:
            key.append((kind, newest.pk, n_answers[newest.pk]))
    return tuple(key)


_kept: OrderedDict[Key, Dumped] = OrderedDict()


def _read(key: Key) -> Dumped:
    if key not in _kept:
        roster = {kind: ranks_asked(request) for kind, request, _ in key}
        _kept[key] = dumped_of((part for kind, request, _ in key for part in parts_of([request], kinds=[kind])), roster)
        while len(_kept) > KEPT:
            _kept.popitem(last=False)
    _kept.move_to_end(key)
    return _kept[key]


def is_at_hand(incident: Incident) -> bool:
    """Whether the incident's dumps, if there are any, can be had at once: read before, or little."""
    key = _key_of(asked_since(incident.attempt_id, began_at(incident) - BEFORE))
    return key in _kept or bytes_of({pk for _, pk, _ in key}) <= LOOK_BYTES_MAX


def owe(attempt_id: int) -> None:
    """A diagnosis with the dumps is due, by the task that reads them."""
    cache.set(_owed(attempt_id), uuid.uuid4().hex, OWED_SECONDS)


def debt_of(attempt_id: int) -> str:
    """Which diagnosis with the dumps is due; '' when none is."""
    debt = cache.get(_owed(attempt_id))
    return debt if debt is not None and debt != cache.get(_settled(attempt_id)) else ""


def settle(attempt_id: int, debt: str) -> None:
    """That one is stored. What was owed meanwhile stays due: nothing is deleted, so two workers cannot undo each other."""
    cache.set(_settled(attempt_id), debt, OWED_SECONDS)


def _owed(attempt_id: int) -> str:
    return f"dumps-owed:{attempt_id}"


def _settled(attempt_id: int) -> str:
    return f"dumps-settled:{attempt_id}"


def fused(incident: Incident, diagnosis: Diagnosis, thresholds: Settings) -> Diagnosis:
    """`diagnosis` with the dumps of the incident; without them where there are none.

    Dumps of a job that has gone on meanwhile tell nothing of the stall, unless they were already part of the answer.
    """
    if not _counts(incident):
        return diagnosis
    dumped = dumps_of(incident)
    if dumped is None:
        return diagnosis
    has_traces = Communicator.objects.filter(attempt=incident.attempt_id).exists()
    return with_dumps(diagnosis, dumped, thresholds, has_traces=has_traces)


def _counts(incident: Incident) -> bool:
    if incident.condition == ConditionState.FIRING or incident.symptom == SymptomKind.EXTERNAL:
        return True
    newest = incident.revisions.order_by("-number").first()
    return newest is not None and bool(newest.body.get("agreement"))


def storable(text: str) -> str:
    """JSON text, ASCII, without what PostgreSQL takes in no JSON: NUL, and halves of characters."""
    return _NOT_STORABLE.sub(r"\1\\ufffd", text)


def summarise(request: DumpRequest, n_answers: int, *, is_ripe: bool) -> DumpSummary:
    """Make what pages show of this request, from everything that has come."""
    began = time.monotonic()
    dumped = _read(tuple((kind, request.pk, n_answers) for kind in KINDS if kind in request.kinds))
    views = json.loads(storable(json.dumps(views_of(dumped))))
    made = {
        "n_answers": n_answers, "made_at": timezone.now(), "taken_ns": dumped.taken_ns, "stacks": views["stacks"],
        "recorder": views["recorder"], "took_s": round(time.monotonic() - began, 3), "is_ripe": is_ripe,
    }  # fmt: skip
    return DumpSummary.objects.update_or_create(request=request, defaults=made)[0]
