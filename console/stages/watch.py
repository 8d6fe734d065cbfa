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
from statistics import median
from typing import Any, Final

import numpy as np
from celery.exceptions import SoftTimeLimitExceeded
from django.db import InterfaceError, OperationalError, connection, transaction
from django.db.models import F, Max, Q
from django.utils import timezone

from console.incidents.thresholds import settings_of
from console.incidents.wanted_pace import wanted_since_ns
from console.stages.models import StageCursor, StagePacket
from console.stages.store import store_packet
from ingest.models import Attempt, Node
from ingest.read import latest_data_ns, read_window
from ingest.window import STAGE_TABLES, Window
from rca.frontier.cutting import Cursor, Cut, after, cut
from rca.frontier.entered import Last, entered, last_of, settled_stage
from rca.frontier.gates import gates_of
from rca.frontier.groups import Group, groups_of
from rca.frontier.moved import Pace, Verdict, moved
from rca.frontier.packet import Packet, packet_of
from rca.frontier.steps import Steps, schemas_of, steps_of
from rca.frontier.told import verdict_json
from rca.settings import SECOND_NS, Settings

log = logging.getLogger(__name__)
STAGES_LOCK: Final = 0x44474F59  # first key of the advisory lock of this pass; the second is the attempt
STRETCH_NS: Final = 120 * SECOND_NS  # what is read at once, beside the steps before it that are not cut yet
STRETCHES_MAX: Final = 10
TRIES_MAX: Final = 3  # what cannot be cut in so many passes is stepped over
ENDED_AGO: Final = timedelta(days=1)  # of what ended longer ago no traces are kept
ENDED_MAX: Final = 100  # ended attempts of one pass; the others' turn comes with the next
WHOLE: Final = "*"  # the "role" of what fails for all groups
NOT_ITS_FAULT: Final = (SoftTimeLimitExceeded, OperationalError, InterfaceError)
QUIET_NS: Final = 60 * SECOND_NS  # a job that has never sent stages is asked again after so long
USUAL_KEPT: Final = 32
OPS_NS: Final = 15 * SECOND_NS
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
    newest_ns, is_over = latest_data_ns(attempt.pk) + 1, attempt.state == Attempt.State.ENDED
    if newest_ns == 1 or (not is_over and at.is_empty and at.read_ns and newest_ns < at.read_ns + QUIET_NS):
        return 0
    if not at.read_ns:
        at.read_ns = _first_ns(attempt.pk, newest_ns)
    thresholds, stored = settings_of(attempt.job_id), 0
    for _ in range(STRETCHES_MAX):
        end_ns = min(newest_ns, at.read_ns + STRETCH_NS)
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


def _first_ns(attempt_id: int, newest_ns: int) -> int:
    """When the attempt was first heard of."""
    first = (
        Node.objects.filter(attempt=attempt_id, first_ns__gt=0).order_by("first_ns").values_list("first_ns", flat=True)
    )
    return int(first[0]) if first else newest_ns - STRETCH_NS


def _stretch(attempt: Attempt, at: StageCursor, end_ns: int, newest_ns: int, settings: Settings) -> tuple[int, bool]:
    """Cut what came up to end_ns, one group after the other; how many packets, and whether no group has to be tried again."""
    window = read_window(attempt.pk, at.read_ns - _back_ns(settings), end_ns, STAGE_TABLES)
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
                at.groups[group.role] = asdict(_beyond(own))
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
            cursor = replace(cursor, step=int(one.steps[-1]), ended_ns=one.end_ns)
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
    before = _usual(attempt_id, group.role, one)
    told = _with_ops(attempt_id, window, one, one.ranks[:1])
    reference = _reference(before) if len(before) >= settings.stage_usual_windows else None
    packet = packet_of(one, group, told, gates_of(settings), reference)
    paces = [Pace(row.lasting_s, row.error_s, _exposed(row)) for row in before]
    found = moved(packet.report, packet.pace, paces, settings)
    last, settled = None, ""
    if found.verdict in (Verdict.ROUTED, Verdict.UNLOCALISED):
        last, settled = _entered(attempt_id, packet, window)
    body = {**packet.body, "usual_s": packet.usual_s, "verdict": verdict_json(found, last, settled, packet)}
    leader = packet.report.leader if packet.report.leader is not None else last.rank if last else None
    return StagePacket(
        attempt_id=attempt_id, role=group.role[:200], ended_at=datetime.fromtimestamp(one.end_ns / 1e9, UTC),
        start_ns=one.start_ns, end_ns=one.end_ns, first_step=int(one.steps[0]), last_step=int(one.steps[-1]),
        n_ranks=len(one.ranks), verdict=found.verdict.value, stage=(settled or packet.report.stage)[:64], leader=leader,
        step_s=packet.step_s, lasting_s=packet.pace.step_s,
        usual_s=found.usual_s, error_s=packet.pace.error_s, body=_storable(body),
    )  # fmt: skip


def _usual(attempt_id: int, role: str, one: Cut) -> list[StagePacket]:
    """The windows of the same group and stages in which nothing had moved, newest first."""
    normal = [Verdict.LEARNING.value, Verdict.USUAL.value, Verdict.FASTER.value]
    rows = StagePacket.objects.filter(
        attempt=attempt_id, role=role[:200], verdict__in=normal, end_ns__lt=one.end_ns,
        start_ns__gte=wanted_since_ns(attempt_id),
    )  # fmt: skip
    names = list(one.stages.names)
    return [row for row in rows.order_by("-end_ns")[:USUAL_KEPT] if row.body["stages"] == names]


def _reference(before: Sequence[StagePacket]) -> dict[str, float]:
    """Ordered stage → what it took while the job was as usual."""
    return {stage: median(row.body["usual_s"][stage] for row in before) for stage in before[0].body["usual_s"]}


def _exposed(row: StagePacket) -> dict[str, float]:
    return {stage: share * row.step_s for stage, share in row.body["report"]["shares"].items()}


def _with_ops(attempt_id: int, window: Window, one: Cut, ranks: Sequence[int] | None) -> Window:
    """The window with op rows of the cut's newest seconds, of the nodes of these ranks (None: of all)."""
    start_ns = max(one.start_ns, one.end_ns - OPS_NS)
    ops = read_window(attempt_id, start_ns, one.end_ns + SECOND_NS, ("op",), ranks=ranks).rows("op")
    return replace(window, tables={**window.tables, "op": ops})


def _entered(attempt_id: int, packet: Packet, window: Window) -> tuple[Last | None, str]:
    """Who enters the group's ops last in this window, and the stage that settles."""
    told = entered(packet.cut, _with_ops(attempt_id, window, packet.cut, None))
    last = last_of(told, packet.step_s) if told is not None else None
    if last is None:
        return None, ""
    return last, settled_stage(packet.cut, last, packet.report.stage, packet.report.labels)


def _storable(body: dict[str, Any]) -> dict[str, Any]:
    """Without what PostgreSQL takes in no JSON; NaN and infinity are refused here, not by the database."""
    found: dict[str, Any] = json.loads(_ESCAPED.sub("", json.dumps(body, allow_nan=False)))
    return found
