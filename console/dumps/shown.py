"""Dumps as REST answers: the requests of an incident or a job, their summaries, and the stacks of one rank.

What a worker summarised is read as it is; only the stacks of one or two ranks are read here, which is little.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from console.dumps.models import DumpSummary
from console.incidents.rows import iso, iso_from_ns
from ingest.door import dumps
from ingest.door.dumps import DumpPart, parts_of, progress_of
from ingest.models import DumpRequest, Rank
from nccl_instrument.dumps import STACKS
from rca.dumps.dump_parts import process_of
from rca.findings import to_json
from rca.stacks.process import TRAINER, Process, Stack
from rca.stacks.view import KINDS, against, as_lines, majority

REQUESTS_SHOWN: Final = 10
PLACES_MAX: Final = 100_000
COORDINATES: Final = ("tp", "pp", "dp", "ep")
NO_STACKS: Final[dict[str, Any]] = {
    "looks": 1, "commands": [], "groups": [], "other_threads": [], "tree": None, "silent": [], "silent_count": 0, "left_out": 0,
}  # fmt: skip
NO_RECORDER: Final[dict[str, Any]] = {
    "version": "", "backend": "", "groups": [], "last_ops": [], "findings": [], "refused": {}, "silent": [],
    "silent_count": 0, "refused_count": 0,
    "left_out": {"groups": 0, "rows": 0, "last_ops": 0},
}  # fmt: skip

Json = dict[str, Any]


def dumps_answer(attempt_id: int, requests: Sequence[DumpRequest]) -> Json:
    """requests, newest first, and whether a person may ask now."""
    why = dumps.why_not(attempt_id, by_person=True)
    return {
        "requests": [request_row(one) for one in requests[:REQUESTS_SHOWN]],
        "can_ask": not why,
        "why_not": why,
    }


def request_row(request: DumpRequest) -> Json:
    progress = progress_of(request.pk)
    return {
        "id": request.pk,
        "asked_at": iso(request.asked_at),
        "asked_by": request.asked_by or "detector",
        "kinds": list(request.kinds),
        "state": request.state,
        "nodes_expected": progress.nodes_expected,
        "nodes_answered": progress.nodes_answered,
        "ranks_answered": progress.ranks_answered,
        "silent": [to_json(one) for one in progress.silent],
        "silent_count": progress.silent_count,
        "left_out": request.left_out,
    }


def chosen(requests: Sequence[DumpRequest], number: int | None, kind: str) -> DumpRequest | None:
    """The request of this number, else the newest that was asked for such dumps and has a summary.

    DumpRequest.DoesNotExist when the number is of none of these.
    """
    if number is not None:
        found = next((one for one in requests if one.pk == number), None)
        if found is None:
            raise DumpRequest.DoesNotExist
        return found
    summarised = set(DumpSummary.objects.filter(request__in=requests).values_list("request_id", flat=True))
    asked = [one for one in requests if kind in one.kinds]
    return next((one for one in asked if one.pk in summarised), asked[0] if asked else None)


def stacks_answer(attempt_id: int, request: DumpRequest | None) -> Json:
    """The summary of the request's stacks and where the ranks sit; empty while nothing has come."""
    summary = DumpSummary.objects.filter(request=request).first() if request is not None else None
    stacks = summary.stacks if summary is not None else None
    return {
        "request": request.pk if request is not None else None,
        "taken_at": iso_from_ns(summary.taken_ns) if summary is not None and stacks else None,
        "order": {"places": places_of(attempt_id)},
        **(stacks or NO_STACKS),
    }


def recorder_answer(request: DumpRequest | None) -> Json:
    """The summary of the request's recordings; empty while nothing has come."""
    summary = DumpSummary.objects.filter(request=request).first() if request is not None else None
    recorder = summary.recorder if summary is not None else None
    return {"request": request.pk if request is not None else None, **(recorder or NO_RECORDER)}


def places_of(attempt_id: int) -> list[Json]:
    """Where every rank sits: node and coordinates, null where nobody said."""
    rows = Rank.objects.filter(attempt=attempt_id, replaced=False, rank__gte=0).order_by("rank")
    return [
        {
            "rank": rank,
            "node": node,
            **{name: at if at >= 0 else None for name, at in zip(COORDINATES, where, strict=True)},
        }
        for rank, node, *where in rows.values_list("rank", "node__name", *COORDINATES)[:PLACES_MAX]
    ]


def rank_answer(request: DumpRequest | None, rank: int, other: int | None) -> Json:
    """The processes of a rank with their raw text, against the majority's trainer or another rank's."""
    parts = parts_of([request.pk], kinds=[STACKS], ranks=[rank]) if request is not None else []
    theirs = _stack_of(request, other) if other is not None else _majority(request)
    by_pid: dict[int, list[DumpPart]] = {}
    for part in parts:
        by_pid.setdefault(part.pid, []).append(part)
    return {"rank": rank, "processes": [_process(those, theirs) for those in by_pid.values()]}


def _process(parts: Sequence[DumpPart], theirs: Stack) -> Json:
    read = [(part, process_of(part)) for part in parts]
    newest = read[-1][1]
    is_trainer = not newest.silent and newest.kind == TRAINER
    return {
        "pid": parts[0].pid,
        "parent": parts[0].parent or None,
        "kind": "trainer" if newest.silent and not parts[0].parent else KINDS.get(newest.kind, "other"),
        "command": parts[0].command,
        "silent": newest.silent,
        "looks": [
            {"taken_at": iso_from_ns(part.taken_ns), "text": as_lines(one)} for part, one in read if not one.silent
        ],
        "against_majority": against(newest.main, theirs) if theirs and is_trainer else [],
    }


def _stack_of(request: DumpRequest | None, rank: int) -> Stack:
    """What another rank's trainer was doing at the last look."""
    parts = parts_of([request.pk], kinds=[STACKS], ranks=[rank]) if request is not None else []
    trainers: list[Process] = [one for one in map(process_of, parts) if not one.silent and one.kind == TRAINER]
    return trainers[-1].main if trainers else ()


def _majority(request: DumpRequest | None) -> Stack:
    """What most trainers were doing, by the summary."""
    summary = DumpSummary.objects.filter(request=request).first() if request is not None else None
    return majority(summary.stacks) if summary is not None else ()
