"""Jobs and nodes as rows for pages and live messages.

A state is only as good as the data below it: what has not been heard of is silent or unknown, never running.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import QuerySet
from django.utils import timezone

from console.dashboard.job_state import JobKnown, read_known
from console.incidents.live import JobRow, JobState
from console.incidents.models import LOOK_FAILED, Look
from console.incidents.rows import iso, iso_from_ns
from ingest.door.listening import hears
from ingest.health import read_health
from ingest.models import Attempt, Job, Node, Rank
from ingest.read import read_nodes, read_strays, read_window
from nccl_instrument.tables import PORT_STATES
from rca.findings import SymptomKind
from rca.triggers.normal import normal_from_json

SECOND: Final = 1_000_000_000
REPORTING_NS: Final = 5 * SECOND
STAGES_NS: Final = 150 * SECOND  # a window of stages takes a minute, and is cut when it is over
RATE_SECONDS: Final = 10
JOBS_MAX: Final = 200
NODES_MAX: Final = 5000
LOOKS_SHOWN_MAX: Final = 50
UNSEEN_SECONDS: Final = 30.0  # data that nobody has looked at for so long: three regular looks were missed


@dataclass(frozen=True, slots=True)
class LookRow:
    """What one look of the trigger saw. kind: the symptom's, empty when nothing was wrong."""

    at: str
    kind: str
    saw: str
    thresholds: dict[str, float]


@dataclass(frozen=True, slots=True)
class NicRow:
    name: str
    port_state: str
    speed_mbps: int | None


@dataclass(frozen=True, slots=True)
class NodeRow:
    """A node of a job's newest attempt, with everything counted of it. strays: batches it cut for displaced attempts.

    cluster, rack: as its agent declares them; empty where it does not.
    """

    job: str
    attempt: int
    name: str
    cluster: str
    rack: str
    state: str
    last_seen_at: str | None
    watermark_at: str | None
    clock_offset_ms: float | None
    batches: int
    batches_refused: int
    rows_dropped: int
    losses: dict[str, int]
    strays: int
    n_ranks: int
    nics: list[NicRow]


def visible_jobs(team_ids: Sequence[int]) -> QuerySet[Job]:
    return Job.objects.filter(team__in=team_ids).select_related("team")


def read_job_rows(team_ids: Sequence[int]) -> list[JobRow]:
    """The newest jobs of these teams."""
    return _rows_of(list(visible_jobs(team_ids).order_by("-id")[:JOBS_MAX]))


def read_job_row(job: Job) -> JobRow:
    """A job as its newest attempt shows it."""
    return _rows_of([job])[0]


def _rows_of(jobs: Sequence[Job]) -> list[JobRow]:
    now = time.time_ns()
    since = (now // SECOND // RATE_SECONDS - 1) * RATE_SECONDS * SECOND  # the last whole ten seconds began
    known = read_known([job.pk for job in jobs], now - REPORTING_NS, (since, now), now - STAGES_NS)
    return [_row_of(job, known[job.pk], now - since) if job.pk in known else _unheard(job) for job in jobs]


def _row_of(job: Job, known: JobKnown, counted_ns: int) -> JobRow:
    """counted_ns: how long its ops were counted."""
    ops_per_s = round(known.n_ops * SECOND / counted_ns, 1) if known.n_reporting else None
    state = _job_state(known, ops_per_s)
    return JobRow(
        id=job.pk,
        name=job.name,
        team=job.team.name,
        attempt=known.number,
        state=state,
        n_ranks=known.n_ranks,
        world_size=known.world_size,
        n_nodes=known.n_nodes,
        nodes_reporting=known.n_reporting,
        last_data_at=iso_from_ns(known.newest_ns),
        ops_per_s=0.0 if state == "stuck" and ops_per_s else ops_per_s,  # the average still holds what came before
        op_interval_ms=_op_interval_ms(known),
        looked_at=iso(known.seen_at) if known.seen_at else None,
        incident=known.open_incident,
    )


def read_looks(job: Job) -> list[LookRow]:
    """The newest looks at the job's newest attempt."""
    attempt = newest_attempt(job)
    looks = Look.objects.filter(attempt=attempt).order_by("-id")[:LOOKS_SHOWN_MAX] if attempt else []
    return [LookRow(iso(look.taken_at) or "", look.kind, look.saw, look.thresholds) for look in looks]


def read_node_rows(team_ids: Sequence[int]) -> list[NodeRow]:
    """Every node of the newest attempt of every job."""
    rows: list[NodeRow] = []
    for job in visible_jobs(team_ids).order_by("-id")[:JOBS_MAX]:
        if len(rows) < NODES_MAX and (attempt := newest_attempt(job)) is not None:
            rows += _node_rows(job, attempt)
    return rows[:NODES_MAX]


def newest_attempt(job: Job) -> Attempt | None:
    return Attempt.objects.filter(job=job).order_by("-number").first()


def is_reporting(node: Node) -> bool:
    return node.received_ns > _reporting_since_ns()


def _reporting_since_ns() -> int:
    return time.time_ns() - REPORTING_NS


def unheard_state() -> str:
    """What a node is that does not report: silent only while ingest would hear it; else refused (our disk is short) or
    unheard (ingest is away, or only just back)."""
    if hears(timezone.now()):
        return "silent"
    return "refused" if read_health().space.is_short else "unheard"


def node_state(node: Node, unheard: str, has_ended: bool = False) -> str:
    """reporting, catching_up (late, not silent), ended, or what `unheard_state` says."""
    if has_ended:
        return "ended"
    if not is_reporting(node):
        return unheard
    return "catching_up" if node.catching_up else "reporting"


def _job_state(known: JobKnown, ops_per_s: float | None) -> JobState:
    """What the machine sees, whatever people have resolved: a hang that goes on is stuck, not idle; who is slow still runs."""
    if known.state == Attempt.State.ENDED:
        return "ended"
    if not known.n_nodes:
        return "unknown"
    if not known.n_reporting:
        return "silent" if hears(timezone.now()) else "unknown"
    if _is_unseen(known):
        return "unknown"
    if known.is_hung or _is_seen_as(SymptomKind.SILENCE, known):
        return "stuck"
    if known.look_kind == LOOK_FAILED:
        return "unknown"
    if known.look_kind == SymptomKind.FAILURE:
        return "stuck"
    if known.n_catching_up:
        return "catching_up"
    if known.is_slow or _is_seen_as(SymptomKind.STRAGGLER, known):
        return "slow"
    return "running" if ops_per_s or known.has_steps else "idle"  # of some jobs only stages are known


def _is_seen_as(kind: SymptomKind, known: JobKnown) -> bool:
    """Whether this is what looks see of an incident that people reported: its own symptom says nothing of the job."""
    return known.is_reported and known.look_kind == kind


def _is_unseen(known: JobKnown) -> bool:
    """Whether nobody looks any more, so that nobody can say how the job is: data has waited for a look too long."""
    is_new = known.look_seen_ns is None or known.newest_ns >= known.look_seen_ns
    last_at = known.started_at if known.looked_at is None else known.looked_at
    return is_new and timezone.now() - last_at > timedelta(seconds=UNSEEN_SECONDS)


def _unheard(job: Job) -> JobRow:
    return JobRow(
        id=job.pk, name=job.name, team=job.team.name, attempt=0, state="unknown", n_ranks=0, world_size=0, n_nodes=0,
        nodes_reporting=0, last_data_at=None, ops_per_s=None, op_interval_ms=None, looked_at=None, incident=None,
    )  # fmt: skip


def _op_interval_ms(known: JobKnown) -> float | None:
    """The median of the watched ranks' op intervals, once there are any."""
    interval_ns = normal_from_json({"intervals": known.intervals}).quantile_ns(0.5)
    return round(interval_ns / 1e6, 3) if interval_ns else None


def node_rows_of(job: Job, attempt: Attempt, name: str) -> list[NodeRow]:
    """One node of an attempt."""
    return _node_rows(job, attempt, name)


def _node_rows(job: Job, attempt: Attempt, only: str = "") -> list[NodeRow]:
    has_ended = attempt.state == Attempt.State.ENDED
    n_ranks = _ranks_by_node(attempt)
    nodes = [node for node in read_nodes(attempt.pk) if only in ("", node.name)]
    nics = _nics_by_node(attempt, nodes)
    strays = {} if has_ended else read_strays(attempt.pk)
    unheard = unheard_state()
    return [
        NodeRow(
            job=job.name,
            attempt=attempt.number,
            name=node.name,
            cluster=node.cluster,
            rack=node.rack,
            state=node_state(node, unheard, has_ended),
            last_seen_at=iso_from_ns(node.received_ns),
            watermark_at=iso_from_ns(node.watermark_ns),
            clock_offset_ms=round(node.clock_offset_ns / 1e6, 1) if node.wrong_clock else None,
            batches=node.batches,
            batches_refused=node.batches_refused,
            rows_dropped=node.rows_dropped,
            losses={kind: int(count) for kind, count in node.losses.items()},
            strays=strays.get(node.name, 0),
            n_ranks=n_ranks.get(node.pk, 0),
            nics=nics.get(node.name, []),
        )
        for node in nodes
    ]


def _ranks_by_node(attempt: Attempt) -> dict[int, int]:
    known = Rank.objects.filter(attempt=attempt, replaced=False).values_list("node_id", "pid").distinct()
    counts: dict[int, int] = {}
    for node_id, _ in known:
        counts[node_id] = counts.get(node_id, 0) + 1
    return counts


def _nics_by_node(attempt: Attempt, nodes: list[Node]) -> dict[str, list[NicRow]]:
    """The newest row of each NIC in the last seconds of the attempt's data."""
    newest = max((node.watermark_ns for node in nodes), default=0)
    if not newest:
        return {}
    window = read_window(attempt.pk, newest - 3 * SECOND, newest + 1, tables=("nic",))
    rows = window.rows("nic")
    latest: dict[tuple[int, int], Any] = {}
    for row in rows[rows["tick_ns"].argsort()]:
        latest[int(row["node"]), int(row["index"])] = row
    nics: dict[str, list[NicRow]] = {}
    for (node, _), row in sorted(latest.items()):
        name, speed = row["name"].decode("utf-8", "replace"), int(row["speed_mbps"])
        found = NicRow(name, PORT_STATES[int(row["port_state"])], speed or None)
        nics.setdefault(str(window.nodes[node]["name"]), []).append(found)
    return nics
