"""Cuts what a job's recorders sent into windows, labels them, and keeps the packets.

Called regularly for every running attempt, and for one that has ended until its last window is cut. It goes on from a
cursor in data time, stretch by stretch, so that a worker that was away catches up. Rows are read once; op rows only of
one rank, for the wait model, and of all ranks where a step has moved.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import numpy as np
from celery.exceptions import SoftTimeLimitExceeded
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import F, Max, Min, Q, QuerySet
from django.utils import timezone

from console.incidents.acts.wanted_pace import wanted_since_ns
from console.incidents.watching.thresholds import settings_of
from console.stages import reach
from console.stages.models import StageCursor, StagePacket
from console.stages.store import store_packet
from console.stages.trouble import bouts_of
from ingest.models import Attempt, Node
from ingest.read import read_window
from ingest.window import STAGE_TABLES, Window
from rca.frontier.cutting import Cursor, Cut, after, beyond, cut
from rca.frontier.entered import Last, entered, last_of, settled_stage
from rca.frontier.groups import Group, groups_of
from rca.frontier.judging import judge
from rca.frontier.moved import Pace, Verdict
from rca.frontier.normal import FIRST_KEPT, NEWEST_KEPT, Normal, Seen
from rca.frontier.packet import Packet, report_json
from rca.frontier.report import Report
from rca.frontier.steps import Steps, schemas_of, steps_of
from rca.frontier.told import told_of, verdict_json
from rca.settings import SECOND_NS, Settings

log = logging.getLogger(__name__)
STAGES_LOCK: Final = 0x44474F59  # first key of the advisory lock of this pass; the second is the attempt
STRETCHES_MAX: Final = 10
TRIES_MAX: Final = 3  # what cannot be cut in so many passes is stepped over
ENDED_AGO: Final = timedelta(days=1)  # of what ended longer ago no traces are kept
ENDED_MAX: Final = 100  # ended attempts of one pass; the others' turn comes with the next
WHOLE: Final = "*"  # the "role" of what fails for all groups
NOT_ITS_FAULT: Final = (SoftTimeLimitExceeded, OperationalError, InterfaceError)
QUIET_NS: Final = 60 * SECOND_NS  # a job that has never sent stages is asked again after so long
OPS_NS: Final = 15 * SECOND_NS
HELD_NS: Final = 60 * SECOND_NS  # less than read.FRESH_NS, so that what was waited for may still open an incident
_ESCAPED: Final = re.compile(r"\\u(?:0000|d[89a-f][0-9a-f]{2})")


def watch_stages(attempt_id: int) -> int:
    """Cut what has come; how many packets were stored. Returns at once while somebody else does it."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_try_advisory_lock(%s, %s)", [STAGES_LOCK, attempt_id])
        if not cursor.fetchone()[0]:
            return 0
        try:
            attempt = Attempt.objects.select_related("job").filter(pk=attempt_id).first()
            return _catch_up(attempt) if attempt is not None else 0
        finally:
            cursor.execute("SELECT pg_advisory_unlock(%s, %s)", [STAGES_LOCK, attempt_id])


def unfinished() -> list[int]:
    """Ended attempts that may have left steps which are not cut, those that ended first before others."""
    ended = Attempt.objects.filter(state=Attempt.State.ENDED, ended_at__gte=timezone.now() - ENDED_AGO)
    heard = ended.annotate(newest_ns=Max("nodes__watermark_ns")).filter(newest_ns__gt=0)
    left = heard.filter(Q(stage_cursor=None) | Q(stage_cursor__finished_ns__lte=F("newest_ns")))
    return list(left.order_by("ended_at", "pk").values_list("pk", flat=True)[:ENDED_MAX])


def _catch_up(attempt: Attempt) -> int:
    at, _ = StageCursor.objects.get_or_create(attempt=attempt)
    newest_ns, is_over = reach.newest_ns(attempt.pk) + 1, attempt.state == Attempt.State.ENDED
    if newest_ns == 1 or (not is_over and at.is_empty and at.read_ns and newest_ns < at.read_ns + QUIET_NS):
        return 0
    if not at.read_ns:
        at.read_ns = _first_ns(attempt.pk, newest_ns)
    newest_ns = newest_ns if is_over else max(_complete_ns(attempt.pk, newest_ns), at.read_ns)
    thresholds, stretch_ns, stored = settings_of(attempt.job_id), reach.stretch_ns(attempt.pk), 0
    for _ in range(STRETCHES_MAX):
        end_ns = min(newest_ns, at.read_ns + stretch_ns)
        n_stored, is_done = _tried(attempt, at, end_ns, newest_ns, thresholds)
        stored += n_stored
        if is_done:
            at.read_ns = end_ns
            at.finished_ns = newest_ns if is_over and end_ns >= newest_ns else 0
        at.save()
        if not is_done or end_ns >= newest_ns:
            break
    return stored


def _tried(attempt: Attempt, at: StageCursor, end_ns: int, newest_ns: int, settings: Settings) -> tuple[int, bool]:
    """How many packets a stretch gave, and whether it is done with: also when it failed too often."""
    at.failed = ""
    try:
        found = _stretch(attempt, at, end_ns, newest_ns, settings)
    except (OperationalError, InterfaceError):  # the database is away: no stretch's fault
        raise
    except Exception as error:  # whatever it is, the next pass would fail on it again
        return 0, _is_given_up(at, WHOLE, error)
    at.tries.pop(WHOLE, None)
    return found


def _is_given_up(at: StageCursor, role: str, error: Exception) -> bool:
    """Say why a pass failed; whether it has so often that what it failed on is stepped over."""
    log.error("the stages of attempt %s cannot be cut", at.attempt_id, exc_info=error)
    at.failed = f"{type(error).__name__}: {error}".replace("\0", "")[:300]
    at.tries[role] = at.tries.get(role, 0) + 1
    if at.tries[role] < TRIES_MAX:
        return False
    del at.tries[role]
    at.gaps += 1
    return True


def _complete_ns(attempt_id: int, newest_ns: int) -> int:
    """Up to when nodes have told all they will: fresh batches overtake those of a spool, and a node may be behind the others.
    Neither is waited for longer than HELD_NS."""
    nodes = Node.objects.filter(attempt=attempt_id, watermark_ns__gt=0)
    if nodes.filter(catching_up=True).exists():
        return newest_ns - HELD_NS
    behind = nodes.filter(watermark_ns__gte=newest_ns - HELD_NS).aggregate(least=Min("watermark_ns"))["least"]
    return int(behind) + 1 if behind is not None else newest_ns


def _first_ns(attempt_id: int, newest_ns: int) -> int:
    """When the attempt was first heard of."""
    first = (
        Node.objects.filter(attempt=attempt_id, first_ns__gt=0).order_by("first_ns").values_list("first_ns", flat=True)
    )
    return int(first[0]) if first else newest_ns - reach.STRETCH_NS


def _stretch(attempt: Attempt, at: StageCursor, end_ns: int, newest_ns: int, settings: Settings) -> tuple[int, bool]:
    """Cut what came up to end_ns, one group after the other; how many packets, and whether no group has to be tried again."""
    window = read_window(attempt.pk, reach.start_ns(at.groups, at.read_ns, _back_ns(settings)), end_ns, STAGE_TABLES)
    if not len(window.rows("stage")):
        return 0, True
    at.is_empty = False
    steps, stored, is_done = steps_of(window), 0, True
    is_last = attempt.state == Attempt.State.ENDED and end_ns >= newest_ns
    for group in groups_of(window):
        own = steps.where(np.isin(steps.rank, group.ranks))
        try:
            stored += _cut_group(at, group, own, window, settings, is_last=is_last)
            at.tries.pop(group.role, None)
        except NOT_ITS_FAULT:
            raise
        except Exception as error:  # one group's rows must not keep the others' from being cut
            if _is_given_up(at, group.role, error):
                at.groups[group.role] = asdict(replace(_beyond(own), missed=_cursor_of(at, group.role).missed))
            else:
                is_done = False
    return stored, is_done


def _back_ns(settings: Settings) -> int:
    """How long before what was read the steps begin that are not cut yet, at most: a window, and one long step."""
    return settings.stage_window_ns * 5 // 4


def _cut_group(
    at: StageCursor, group: Group, steps: Steps, window: Window, settings: Settings, *, is_last: bool
) -> int:
    """Cut the steps of one group and keep its packets; how many."""
    own, cursor = after(steps, _cursor_of(at, group.role), settings)
    batch = cut(own, schemas_of(window), group.ranks, window.end_ns, settings, is_last=is_last)
    for one in batch.cuts:
        with transaction.atomic():
            store_packet(_packet(at.attempt_id, one, group, window, settings))
            cursor = beyond(cursor, one)
            at.groups[group.role] = asdict(cursor)
            at.save()
    if batch.step >= 0:
        cursor = replace(cursor, step=batch.step, ended_ns=batch.ended_ns)
    at.groups[group.role] = asdict(cursor)
    return len(batch.cuts)


def _beyond(steps: Steps) -> Cursor:
    """The cursor that leaves all of these out."""
    if not len(steps.step):
        return Cursor()
    return Cursor(int(steps.step.max()), int(steps.aligned_ns.max()), int(steps.step.min()))


def _cursor_of(at: StageCursor, role: str) -> Cursor:
    held = at.groups.get(role)
    return Cursor(**held) if held else Cursor()


def _packet(attempt_id: int, one: Cut, group: Group, window: Window, settings: Settings) -> StagePacket:
    """The packet of a window, judged against those before it."""
    told = _with_ops(attempt_id, window, one, one.ranks[:1])
    found = judge(one, group, told, _normal(attempt_id, group.role, one), settings)
    packet, report, last, settled = found.packet, found.report, None, ""
    if found.moved.has_moved:
        last, settled = _entered(attempt_id, packet, report, window)
    body = {**packet.body, "usual_s": packet.usual_s, "verdict": verdict_json(found.moved, last, settled, report)}
    if found.moved.has_moved:
        body["lasting"] = report_json(report)
    leader = told_of(group.role, body).rank if found.moved.has_moved else report.leader
    return StagePacket(
        attempt_id=attempt_id, role=group.role[:200], ended_at=datetime.fromtimestamp(one.end_ns / 1e9, UTC),
        start_ns=one.start_ns, end_ns=one.end_ns, first_step=int(one.steps[0]), last_step=int(one.steps[-1]),
        n_ranks=len(one.ranks), verdict=found.moved.verdict.value, stage=(settled or report.stage)[:64], leader=leader,
        step_s=packet.step_s, lasting_s=packet.pace.step_s,
        usual_s=found.moved.usual_s, error_s=packet.pace.error_s, body=_storable(body),
    )  # fmt: skip


def _normal(attempt_id: int, role: str, one: Cut) -> Normal:
    """The newest and the first windows of the same group and stages in which nothing had moved, and no incident says other."""
    normal, since_ns = [Verdict.LEARNING.value, Verdict.USUAL.value, Verdict.FASTER.value], wanted_since_ns(attempt_id)
    rows = StagePacket.objects.filter(
        attempt=attempt_id, role=role[:200], verdict__in=normal, end_ns__lt=one.end_ns,
        start_ns__gte=since_ns, body__stages=list(one.stages.names),
    )  # fmt: skip
    for first_ns, last_ns in bouts_of(attempt_id, since_ns):
        rows = rows.exclude(start_ns__lte=last_ns, end_ns__gte=first_ns)
    return Normal(_seen(rows.order_by("-end_ns")[:NEWEST_KEPT])[::-1], _seen(rows.order_by("end_ns")[:FIRST_KEPT]))


def _seen(rows: QuerySet[StagePacket]) -> tuple[Seen, ...]:
    """What a normal needs of packets, without the steps, which are most of them."""
    columns = ("lasting_s", "error_s", "step_s", "body__report__shares", "body__usual_s", "body__ranks")
    return tuple(
        Seen(Pace(lasting_s, error_s, {stage: share * step_s for stage, share in shares.items()}), usual_s, ranks)
        for lasting_s, error_s, step_s, shares, usual_s, ranks in rows.values_list(*columns)
    )


def _with_ops(attempt_id: int, window: Window, one: Cut, ranks: Sequence[int] | None) -> Window:
    """The window with op rows of the cut's newest seconds, of the nodes of these ranks (None: of all)."""
    start_ns = max(one.start_ns, one.end_ns - OPS_NS)
    ops = read_window(attempt_id, start_ns, one.end_ns + SECOND_NS, ("op",), ranks=ranks).rows("op")
    return replace(window, tables={**window.tables, "op": ops})


def _entered(attempt_id: int, packet: Packet, report: Report, window: Window) -> tuple[Last | None, str]:
    """Who enters the group's ops last in this window, and the stage that settles."""
    told = entered(packet.cut, _with_ops(attempt_id, window, packet.cut, None))
    last = last_of(told, packet.step_s) if told is not None else None
    if last is None:
        return None, ""
    return last, settled_stage(packet.cut, last, report.stage, report.labels)


def _storable(body: dict[str, Any]) -> dict[str, Any]:
    """Without what PostgreSQL takes in no JSON; NaN and infinity are refused here, not by the database."""
    found: dict[str, Any] = json.loads(_ESCAPED.sub("", json.dumps(body, allow_nan=False)))
    return found
