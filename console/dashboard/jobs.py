"""Jobs and nodes as rows for pages and live messages.

A state is only as good as the data below it: what has not been heard of is silent or unknown, never running.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from django.db.models import Count, Max, Q, QuerySet
from django.utils import timezone

from console.incidents.live import JobRow, JobState
from console.incidents.models import LOOK_FAILED, ConditionState, Incident, JobNormal, Look, State
from console.incidents.rows import iso, iso_from_ns
from console.stages.models import StagePacket
from ingest.door.listening import hears
from ingest.health import read_health
from ingest.models import Attempt, Job, Node, Rank
from ingest.read import count_ops, read_nodes, read_strays, read_window
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
    return [read_job_row(job) for job in visible_jobs(team_ids).order_by("-id")[:JOBS_MAX]]


def read_job_row(job: Job) -> JobRow:
    """A job as its newest attempt shows it."""
    attempt = newest_attempt(job)
    if attempt is None:
        return _unheard(job)
    nodes = _nodes_together(attempt)
    following = Incident.objects.filter(attempt=attempt).exclude(state=State.RESOLVED, condition=ConditionState.CLEAR)
    incidents = list(following.order_by("id").only("state", "condition", "symptom"))
    incident = next((one for one in incidents if one.state != State.RESOLVED), None)
    firing = any(one.condition != ConditionState.CLEAR and one.symptom != SymptomKind.IDLE for one in incidents)
    look = seen = newest_look(attempt)
    if look is not None and look.kind == LOOK_FAILED:
        seen = Look.objects.filter(attempt=attempt).exclude(kind=LOOK_FAILED).order_by("-id").first()
    ops_per_s = _ops_per_s(attempt.pk) if nodes.n_reporting else None
    state = _job_state(attempt, nodes, firing, ops_per_s, look)
    return JobRow(
        id=job.pk,
        name=job.name,
        team=job.team.name,
        attempt=attempt.number,
        state=state,
        n_ranks=_count_ranks(attempt, is_reporting=state != "ended" and nodes.n_reporting < nodes.n),
        world_size=attempt.world_size,
        n_nodes=nodes.n,
        nodes_reporting=nodes.n_reporting,
        last_data_at=iso_from_ns(nodes.newest_ns),
        ops_per_s=0.0 if state == "stuck" and ops_per_s else ops_per_s,  # the average still holds what came before
        op_interval_ms=_op_interval_ms(attempt),
        looked_at=iso(seen.taken_at) if seen else None,
        incident=incident.pk if incident else None,
    )


@dataclass(frozen=True, slots=True)
class _Nodes:
    """All nodes of an attempt together: a job's row is made with every look, and a thousand of them are slow to load."""

    n: int
    n_reporting: int
    newest_ns: int
    is_catching_up: bool


def _nodes_together(attempt: Attempt) -> _Nodes:
    found = Node.objects.filter(attempt=attempt).aggregate(
        n=Count("pk"), n_reporting=Count("pk", filter=Q(received_ns__gt=_reporting_since_ns())),
        newest_ns=Max("watermark_ns"), n_catching_up=Count("pk", filter=Q(catching_up=True)),
    )  # fmt: skip
    return _Nodes(found["n"], found["n_reporting"], found["newest_ns"] or 0, found["n_catching_up"] > 0)


def _count_ranks(attempt: Attempt, is_reporting: bool) -> int:
    """Known ranks, on all nodes or on those that report."""
    known = Rank.objects.filter(attempt=attempt, rank__gte=0, replaced=False)
    if is_reporting:
        known = known.filter(node__received_ns__gt=_reporting_since_ns())
    return int(known.aggregate(n=Count("rank", distinct=True))["n"])


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


def newest_look(attempt: Attempt) -> Look | None:
    """The newest look, be it one that failed."""
    return Look.objects.filter(attempt=attempt).order_by("-id").first()


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


def _job_state(attempt: Attempt, nodes: _Nodes, firing: bool, ops_per_s: float | None, look: Look | None) -> JobState:
    """What the machine sees, whatever people have resolved: a hang that goes on is stuck, not idle."""
    if attempt.state == Attempt.State.ENDED:
        return "ended"
    if not nodes.n:
        return "unknown"
    if not nodes.n_reporting:
        return "silent" if hears(timezone.now()) else "unknown"
    if _is_unseen(attempt, nodes, look):
        return "unknown"
    if firing:
        return "stuck"
    if look is not None and look.kind == LOOK_FAILED:
        return "unknown"
    if look is not None and look.kind == SymptomKind.FAILURE:
        return "stuck"
    if nodes.is_catching_up:
        return "catching_up"
    return "running" if ops_per_s or _steps_lately(attempt) else "idle"


def _steps_lately(attempt: Attempt) -> bool:
    """Whether windows of stages come in: of jobs of which no op is traced."""
    return StagePacket.objects.filter(attempt=attempt, end_ns__gte=time.time_ns() - STAGES_NS).exists()


def _is_unseen(attempt: Attempt, nodes: _Nodes, look: Look | None) -> bool:
    """Whether nobody looks any more, so that nobody can say how the job is: data has waited for a look too long."""
    is_new = look is None or nodes.newest_ns >= look.seen_ns
    last_at = attempt.started_at if look is None else look.taken_at
    return is_new and timezone.now() - last_at > timedelta(seconds=UNSEEN_SECONDS)


def _unheard(job: Job) -> JobRow:
    return JobRow(
        id=job.pk, name=job.name, team=job.team.name, attempt=0, state="unknown", n_ranks=0, world_size=0, n_nodes=0,
        nodes_reporting=0, last_data_at=None, ops_per_s=None, op_interval_ms=None, looked_at=None, incident=None,
    )  # fmt: skip


def _ops_per_s(attempt_id: int) -> float:
    """Op records per second (an AllReduce of eight ranks counts eight) since the last whole ten seconds began."""
    now = time.time_ns()
    start = (now // SECOND // RATE_SECONDS - 1) * RATE_SECONDS * SECOND
    return round(count_ops(attempt_id, start, now) * SECOND / (now - start), 1)


def _op_interval_ms(attempt: Attempt) -> float | None:
    """The median of the watched ranks' op intervals, once there are any."""
    intervals = JobNormal.objects.filter(attempt=attempt).values_list("body__intervals", flat=True).first()
    interval_ns = normal_from_json({"intervals": intervals or {}}).quantile_ns(0.5)
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
