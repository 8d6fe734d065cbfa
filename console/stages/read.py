"""What pages, looks and diagnoses read of window packets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import QuerySet

from console.incidents.rows import iso_from_ns
from console.stages.models import StageCursor, StagePacket
from ingest.models import Attempt
from rca.findings import Symptom, SymptomKind
from rca.frontier.moved import Verdict
from rca.frontier.told import Told, told_of
from rca.settings import SECOND_NS

WINDOWS_MAX: Final = 400
WINDOWS_DEFAULT: Final = 120
FRESH_NS: Final = 90 * SECOND_NS
"""A window that ended longer ago than this, in data time, is no reason to open an incident."""
AROUND_NS: Final = 90 * SECOND_NS
MOVED: Final = (Verdict.ROUTED.value, Verdict.UNLOCALISED.value)


@dataclass(frozen=True, slots=True)
class WindowRow:
    """A window in a list. verdict: learning, usual, faster, routed or unlocalised. shares: broad stage → of exposed time."""

    id: int
    role: str
    started_at: str | None
    ended_at: str | None
    start_ns: int
    end_ns: int
    first_step: int
    last_step: int
    n_ranks: int
    verdict: str
    labels: list[str]
    is_strong: bool
    stage: str
    leader: int | None
    step_s: float
    usual_s: float | None
    shares: dict[str, float]
    next_look: str


@dataclass(frozen=True, slots=True)
class Recording:
    """Whether an attempt records stages at all. gaps: stretches that could not be cut and were stepped over; failed: why the
    newest pass did not end, '' when it did. missed: steps of which nothing had come, or not in time, when windows were cut."""

    is_recorded: bool
    gaps: int
    failed: str
    missed: int = 0


def recording_of(attempt: Attempt) -> Recording:
    """What is known of the recording of an attempt."""
    at = StageCursor.objects.filter(attempt=attempt).first()
    if at is None:
        return Recording(False, 0, "")
    missed = sum(int(held.get("missed", 0)) for held in at.groups.values())
    return Recording(not at.is_empty, at.gaps, at.failed, missed)


def roles_of(attempt: Attempt) -> list[str]:
    """The groups of an attempt that have windows."""
    found = StagePacket.objects.filter(attempt=attempt).order_by("role").values_list("role", flat=True).distinct()
    return list(found)


def role_of(attempt: Attempt, rank: int, span: tuple[int, int]) -> str | None:
    """The group of a rank, as far as a window that touches [start_ns, end_ns) shows it: of large groups windows list the ranks
    that differ most."""
    rows = _touching(StagePacket.objects.filter(attempt=attempt, body__ranks__rank__contains=[rank]), span)
    return rows.order_by("-end_ns").values_list("role", flat=True).first()


def windows_of(
    attempt: Attempt, role: str | None = None, span: tuple[int, int] | None = None, limit: int = WINDOWS_DEFAULT
) -> list[StagePacket]:
    """The newest windows, oldest first. span: only those that touch [start_ns, end_ns)."""
    rows = StagePacket.objects.filter(attempt=attempt)
    if role is not None:
        rows = rows.filter(role=role)
    if span is not None:
        rows = _touching(rows, span)
    return list(rows.order_by("-end_ns")[: min(limit, WINDOWS_MAX)])[::-1]


def _touching(rows: QuerySet[StagePacket], span: tuple[int, int]) -> QuerySet[StagePacket]:
    return rows.filter(end_ns__gte=span[0], start_ns__lt=span[1])


def window_row(packet: StagePacket) -> WindowRow:
    report, verdict = packet.body["report"], packet.body["verdict"]
    return WindowRow(
        id=packet.pk, role=packet.role, started_at=iso_from_ns(packet.start_ns), ended_at=iso_from_ns(packet.end_ns),
        start_ns=packet.start_ns, end_ns=packet.end_ns, first_step=packet.first_step, last_step=packet.last_step,
        n_ranks=packet.n_ranks, verdict=packet.verdict, labels=list(report["labels"]), is_strong=report["is_strong"],
        stage=packet.stage, leader=packet.leader, step_s=packet.step_s, usual_s=packet.usual_s or None,
        shares=report["shares"], next_look=verdict["next_look"],
    )  # fmt: skip


def told_around(attempt_id: int, start_ns: int, end_ns: int) -> list[Told]:
    """Of every group the window that tells most of this time: the newest that moved, else the newest."""
    rows = StagePacket.objects.filter(attempt=attempt_id, end_ns__gte=start_ns, start_ns__lt=end_ns + AROUND_NS)
    found: dict[str, StagePacket] = {}
    for row in rows.order_by("end_ns"):
        kept = found.get(row.role)
        if kept is None or row.verdict in MOVED or kept.verdict not in MOVED:
            found[row.role] = row
    return [told_of(row.role, row.body) for row in found.values()]


def stage_symptom(attempt: Attempt, now_ns: int) -> Symptom | None:
    """The symptom that the newest windows are: one that is routed, as long as it is the newest of its group."""
    newest: dict[str, StagePacket] = {}
    for row in StagePacket.objects.filter(attempt=attempt, end_ns__gte=now_ns - FRESH_NS).order_by("end_ns"):
        newest[row.role] = row
    routed = [row for row in newest.values() if row.verdict == Verdict.ROUTED]
    return _symptom(attempt, max(routed, key=_grown), now_ns) if routed else None


def _grown(row: StagePacket) -> float:
    return row.step_s / row.usual_s if row.usual_s else 0.0


def _symptom(attempt: Attempt, row: StagePacket, now_ns: int) -> Symptom:
    of = f" of {row.role}" if row.role else ""
    return Symptom(
        kind=SymptomKind.STRAGGLER, job=attempt.job.name, attempt=attempt.number, at_ns=row.start_ns, seen_ns=now_ns,
        comm_id=0, ranks=() if row.leader is None else (row.leader,),
        sentence=f"Steps{of} take {row.step_s * 1e3:.0f} ms, usually {row.usual_s * 1e3:.0f} ms: most of it in {row.stage}.",
        numbers={
            "iteration_s": row.step_s, "iteration_usual_s": row.usual_s,
            "stage_share": float(max(row.body["report"]["shares"].values())),
        },
    )  # fmt: skip


def led_by(packets: Sequence[StagePacket]) -> list[dict[str, Any]]:
    """Which ranks led how many of the windows that moved, most first."""
    counts: dict[int, int] = {}
    moved = [one for one in packets if one.verdict in MOVED]
    for one in moved:
        if one.leader is not None:
            counts[one.leader] = counts.get(one.leader, 0) + 1
    ranked = sorted(counts.items(), key=lambda pair: -pair[1])
    return [{"rank": rank, "windows": n, "of": len(moved)} for rank, n in ranked]
