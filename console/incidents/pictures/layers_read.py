"""Reading a layer: of an incident or of a job, now or at an earlier moment."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from django.db.models import Case, Count, F, Max, Q, When

from console.dumps.models import DumpSummary
from console.dumps.wanted import requests_for
from console.incidents.lifecycle import BadAct
from console.incidents.models import ConditionState, Incident
from console.incidents.pictures import layers_lag, layers_wire
from console.incidents.pictures.evidence import newest_diagnosis
from console.incidents.pictures.grid import WORLD_MAX
from console.incidents.pictures.layers import By, Layer, Values, make_layer, nothing_known
from console.incidents.pictures.layers_kept import stack_classes, stage_lateness
from console.incidents.pictures.layers_wire import against_usual, sent_by_nics, sent_by_ranks
from console.incidents.pictures.moments import first_data_ns
from console.incidents.rows import iso_from_ns
from console.stages.models import StageCursor, StagePacket
from console.stages.read import MOVED, recording_of
from ingest.door.dumps import requests_of
from ingest.models import Attempt, DumpRequest, Rank
from ingest.read import latest_data_ns, read_window
from ingest.window import Window
from nccl_instrument.dumps import STACKS

SECOND: Final = 1_000_000_000
WINDOWS_BACK_NS: Final = 600 * SECOND
"""Windows of stages that ended longer before the moment tell nothing of it: a step that does not end has none."""
SETTLED_NS: Final = 30 * SECOND
MOMENT_NS: Final = SECOND // 10
"""Moments are told apart to this: two people who drag the time share what is read."""
TRAFFIC_ROWS_MAX: Final = 1_000_000
"""About 150 MB in the web process; of jobs that say more in a second their NICs are asked."""
NODES_ASKED: Final = 8
"""So many nodes, spread over the job, are asked how much the loudest of them says, and what was sent before an incident."""
BEFORE_NS: Final = SECOND
SECONDS_UNKNOWN: Final = 1
"""So many are read where none of those measured anything: what the others say may be much."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Whose layer, of which moment: at_ns, or the newest where None. end_ns: of what is known of it."""

    attempt: Attempt
    incident: Incident | None
    at_ns: int | None
    end_ns: int
    n_ranks: int

    @property
    def is_over(self) -> bool:
        """Whether nodes have told all that they are expected to tell of that moment."""
        if self.incident is not None and self.incident.condition == ConditionState.CLEAR:
            return True
        return self.at_ns is not None and self.at_ns < latest_data_ns(self.attempt.pk) - SETTLED_NS


def asked_of(attempt: Attempt, incident: Incident | None, at_ns: int | None) -> Asked:
    """While an incident fires, and of a job: now; afterwards: at the end of the incident's window. Raises BadAct."""
    newest_ns = latest_data_ns(attempt.pk)
    is_known = newest_ns > 0 and first_data_ns(attempt.pk) <= (newest_ns if at_ns is None else at_ns) <= newest_ns
    if at_ns is not None and not is_known:
        raise BadAct(f"Of this attempt nothing is known of that time; its newest data is of {iso_from_ns(newest_ns)}.")
    is_over = incident is not None and incident.condition == ConditionState.CLEAR
    end_ns = min(incident.window_end_ns, newest_ns) if incident is not None and is_over else newest_ns
    known = Rank.objects.filter(attempt=attempt, replaced=False).aggregate(most=Max("rank"))["most"]
    n_ranks = min(max(attempt.world_size, (-1 if known is None else known) + 1), WORLD_MAX)
    near_ns = None if at_ns is None else at_ns - at_ns % MOMENT_NS
    return Asked(attempt, incident, near_ns, end_ns if near_ns is None else near_ns, n_ranks)


def read_layer(by: By, asked: Asked) -> Layer:
    """Seconds of many ranks are read for some: whoever calls this keeps the answer."""
    found = _READERS[by](asked)
    is_settled = asked.is_over and not found.is_open and not found.nothing
    return make_layer(by, found, iso_from_ns(found.at_ns), is_settled, iso_from_ns(found.until_ns))


def _op_lag(asked: Asked) -> Values:
    start_ns = asked.end_ns - layers_lag.BACK_NS
    tables, end_ns = layers_lag.TABLES, asked.end_ns + layers_lag.AHEAD_NS
    window = read_window(asked.attempt.pk, start_ns, end_ns, tables, late=tables)
    diagnosis = newest_diagnosis(asked.incident) if asked.incident is not None else None
    clocks = diagnosis.clocks if diagnosis is not None else ()
    ahead_ns = {one.node: one.offset_ns for one in clocks if abs(one.offset_ns) > one.error_ns}
    return layers_lag.op_lag(window, asked.end_ns, asked.n_ranks, ahead_ns)


def _bandwidth(asked: Asked) -> Values:
    window = _traffic(asked)
    if window is not None:
        measured = sent_by_ranks(window, asked.n_ranks)
        if not measured.nothing:
            before = _before(asked, layers_wire.TRAFFIC_NS, ("traffic",))
            return measured if before is None else against_usual(measured, sent_by_ranks(before, asked.n_ranks))
    start_ns = asked.end_ns - layers_wire.NIC_NS
    nics = read_window(asked.attempt.pk, start_ns, asked.end_ns + 1, layers_wire.NIC_TABLES, now_ns=asked.end_ns)
    why = "its transfers are too many to be added up" if window is None else "nodes measured no transfers then"
    found = sent_by_nics(nics, asked.n_ranks, why)
    before = _before(asked, layers_wire.NIC_NS, layers_wire.NIC_TABLES)
    return found if before is None else against_usual(found, sent_by_nics(before, asked.n_ranks, why))


def _before(asked: Asked, span_ns: int, tables: Sequence[str]) -> Window | None:
    """Of some nodes what was sent before the incident's first symptom, of a job before its newest one's; None without any."""
    incident = asked.incident or Incident.objects.filter(attempt=asked.attempt).order_by("pk").last()
    if incident is None or not incident.first_symptom_ns:
        return None
    end_ns = incident.first_symptom_ns - BEFORE_NS
    return read_window(asked.attempt.pk, end_ns - span_ns, end_ns, tables, end_ns, nodes=_some_nodes(asked.attempt))


def _some_nodes(attempt: Attempt) -> list[str]:
    """NODES_ASKED of its nodes, spread over the job."""
    nodes = list(attempt.nodes.order_by("name").values_list("name", flat=True))
    spread = sorted({len(nodes) * part // NODES_ASKED for part in range(NODES_ASKED)} & set(range(len(nodes))))
    return [nodes[at] for at in spread]


def _traffic(asked: Asked) -> Window | None:
    """The newest seconds in which all nodes measured no more than can be read, if none says more than the loudest of those
    that are asked; None: not one second."""
    attempt_id, start_ns, end_ns = asked.attempt.pk, asked.end_ns - layers_wire.TRAFFIC_NS, asked.end_ns + 1
    some = read_window(attempt_id, start_ns, end_ns, ("traffic",), nodes=_some_nodes(asked.attempt))
    said_by = some.rows("traffic")["node"]
    loudest = int(np.bincount(said_by[said_by >= 0]).max(initial=0))
    a_second = loudest * asked.attempt.nodes.count() * SECOND / layers_wire.TRAFFIC_NS
    seconds = math.floor(TRAFFIC_ROWS_MAX / a_second) if a_second else SECONDS_UNKNOWN
    if seconds < 1:
        return None
    start_ns = max(start_ns, asked.end_ns - seconds * SECOND)
    return read_window(attempt_id, start_ns, end_ns, ("traffic",))


def _stack_class(asked: Asked) -> Values:
    requests = requests_of(asked.attempt.pk) if asked.incident is None else requests_for(asked.incident)
    asked_for = [one for one in requests if STACKS in one.kinds]
    summary = _summary(asked_for, asked.at_ns)
    if summary is None:
        before = "" if asked.at_ns is None else " before this moment"
        why = (
            "no stacks were taken" + before
            if not asked_for or before
            else "the stacks that were asked for have not come"
        )
        return nothing_known(asked.n_ranks, why)
    found = stack_classes(summary.stacks or {}, summary.taken_ns, asked.n_ranks)
    return dataclasses.replace(found, is_open=asked.at_ns is None or _may_still_come(asked_for))


def _may_still_come(requests: Sequence[DumpRequest]) -> bool:
    """Whether a request waits for nodes, or holds answers that are in no summary yet. Now others may be made at any time."""
    kept = DumpRequest.objects.filter(pk__in=[one.pk for one in requests]).annotate(came=Count("answers"))
    unread = Q(summary=None, came__gt=0) | Q(summary__n_answers__lt=F("came"))
    return kept.filter(Q(state=DumpRequest.State.OPEN) | unread).exists()


def _summary(requests: Sequence[DumpRequest], at_ns: int | None) -> DumpSummary | None:
    """Of the newest stacks, of those taken until at_ns."""
    found = DumpSummary.objects.filter(request__in=[one.pk for one in requests], stacks__isnull=False)
    if at_ns is not None:
        found = found.filter(taken_ns__lte=at_ns)
    return found.order_by("-taken_ns", "-request").first()


def _stage_lateness(asked: Asked) -> Values:
    if not recording_of(asked.attempt).is_recorded:
        return nothing_known(asked.n_ranks, "no stages are recorded")
    packets = StagePacket.objects.filter(attempt=asked.attempt)
    rows = packets.filter(end_ns__gte=asked.end_ns - WINDOWS_BACK_NS)
    if asked.at_ns is not None or asked.is_over:
        rows = rows.filter(start_ns__lte=asked.end_ns)
    # Of an incident the newest window whose step had moved, else the newest.
    moved = Case(When(verdict__in=MOVED, then=1), default=0)
    order = ("role", "-moved", "-end_ns") if asked.incident is not None else ("role", "-end_ns")
    chosen = rows.annotate(moved=moved).order_by(*order).distinct("role")
    found = stage_lateness([(row.role, row.body) for row in chosen], asked.n_ranks)
    newest = packets.order_by("role", "-end_ns").distinct("role").values_list("end_ns", flat=True)
    is_open = any(end_ns <= asked.end_ns for end_ns in newest) and not _has_cut_all(asked.attempt)
    return dataclasses.replace(found, is_open=is_open)


def _has_cut_all(attempt: Attempt) -> bool:
    """Of an attempt that ended: whether its last windows were closed."""
    return StageCursor.objects.filter(attempt=attempt, finished_ns__gt=0).exists()


_READERS: Final = {
    "op_lag": _op_lag, "bandwidth": _bandwidth, "stack_class": _stack_class, "stage_lateness": _stage_lateness,
}  # fmt: skip
