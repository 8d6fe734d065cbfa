"""Reading traces: windows of an attempt, its nodes and its roll-ups.

A window is cut from whole batches (stored.py); only the table groups that are asked for are read. What a look needs of
a job that goes on, and a diagnosis of one that stands still, is less: narrow.py.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np
from django.db import connection
from django.db.models import Sum

from ingest.models import Attempt, Communicator, Node, OpRollup
from ingest.sums.rollup import BIN, bus_share, quantiles_ns
from ingest.traces.cutting import GROUP_OF
from ingest.traces.frame import read_frame
from ingest.traces.stored import Reading, read_groups
from ingest.window import TRACE_TABLES, Window


@dataclass(frozen=True, slots=True)
class RunningAttempt:
    """An attempt somebody should look at. n_ranks: processes known; world_size 0 unknown."""

    id: int
    number: int
    job_id: int
    job: str
    team_id: int
    world_size: int
    started_at: datetime
    last_received_at: datetime


@dataclass(frozen=True, slots=True)
class RollupPoint:
    """Ops of one communicator and kind that ended in the 10 s from bucket_ns. Quantiles are 0 when no end is known.

    n_ops counts op records: one per rank that reported, so an AllReduce of eight ranks counts eight. bytes_per_s: bytes of
    the calls over the time they took (algorithm bandwidth, mean over time); bus_bytes_per_s: the same as NCCL's tests
    state it, comparable with the link's speed; None unknown.
    """

    comm_id: int
    func: int
    bucket_ns: int
    n_ops: int
    bytes: int
    n_timed: int
    duration_mean_ns: int
    duration_p50_ns: int
    duration_p90_ns: int
    duration_p99_ns: int
    duration_max_ns: int
    bytes_per_s: float | None
    bus_bytes_per_s: float | None


def running_attempts() -> list[RunningAttempt]:
    """Every running attempt, by id."""
    found = Attempt.objects.filter(state=Attempt.State.RUNNING).select_related("job").order_by("pk")
    return [
        RunningAttempt(
            a.pk, a.number, a.job_id, a.job.name, a.job.team_id, a.world_size, a.started_at, a.last_received_at
        )
        for a in found
    ]


def latest_data_ns(attempt_id: int) -> int:
    """The newest data time of any of the attempt's nodes, unix ns; 0 when there is none."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT max(watermark_ns) FROM ingest_node WHERE attempt_id = %s", [attempt_id])
        return int(cursor.fetchone()[0] or 0)


def read_nodes(attempt_id: int) -> list[Node]:
    """The attempt's nodes by name, with everything counted of them."""
    return list(Node.objects.filter(attempt_id=attempt_id).order_by("name"))


def read_strays(attempt_id: int) -> dict[str, int]:
    """Node → batches that living processes cut for attempts this one displaced: nobody looks at those."""
    attempt = Attempt.objects.get(pk=attempt_id)
    displaced = Attempt.objects.filter(
        job_id=attempt.job_id, number__lt=attempt.number, ended_at__gte=attempt.started_at
    )
    nodes = Node.objects.filter(attempt__in=displaced, batches_after_end__gt=0)
    counts = nodes.values("name").annotate(n=Sum("batches_after_end")).order_by("name")
    return {str(row["name"]): int(row["n"]) for row in counts}


def read_window(
    attempt_id: int,
    start_ns: int,
    end_ns: int,
    tables: Sequence[str] = TRACE_TABLES,
    now_ns: int | None = None,
    *,
    nodes: Collection[str] | None = None,
    ranks: Collection[int] | None = None,
    late: Collection[str] = (),
) -> Window:
    """Everything known of the attempt in [start_ns, end_ns). Raises Attempt.DoesNotExist, KeyError for no table.

    nodes, ranks: read trace rows of these nodes and of the nodes of these ranks only, whole nodes; None for all. What
    the window says of nodes, ranks and members stays that of the whole attempt. late: those of `tables` that are cut out of
    their batches when they are asked for: on few nodes, where Window.rows_on asks.
    """
    frame = read_frame(attempt_id, start_ns, end_ns, now_ns)
    groups = sorted({GROUP_OF[table] for table in tables})
    wanted = None if nodes is None and ranks is None else frame.roster.nodes_of(nodes or (), ranks or ())
    return frame.window(*read_groups(Reading(attempt_id, start_ns, end_ns, groups, wanted)), tables, late=late)


def has_new_batches(attempt_id: int, start_ns: int, end_ns: int, since: datetime) -> bool:
    """Whether a batch that touches [start_ns, end_ns) was received after `since`: late news of that time."""
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT EXISTS (SELECT 1 FROM ingest_trace_batch WHERE attempt_id = %s AND end_ns >= %s AND start_ns < %s"
            " AND received_at > %s)",
            [attempt_id, start_ns, end_ns, since],
        )
        return bool(cursor.fetchone()[0])


def read_rollups(attempt_id: int, start_ns: int, end_ns: int) -> list[RollupPoint]:
    """Roll-ups of the buckets that begin in [start_ns, end_ns), by time; parts of several ingest processes added up."""
    rows = OpRollup.objects.filter(attempt_id=attempt_id, bucket_ns__gte=start_ns, bucket_ns__lt=end_ns)
    parts: dict[tuple[int, int, int], list[OpRollup]] = {}
    for row in rows.order_by("bucket_ns", "comm_id", "func"):
        parts.setdefault((row.bucket_ns, row.comm_id, row.func), []).append(row)
    sizes = dict(Communicator.objects.filter(attempt_id=attempt_id).values_list("comm_id", "n_ranks"))
    return [_add_up(same, sizes.get(comm_id, 0)) for (_, comm_id, _), same in parts.items()]


def ops_counted_sql(attempt: str) -> str:
    """A SELECT of how many op records an attempt's roll-ups count, to stand in a statement of one's own.

    attempt: the expression of its id. Parameters: `ops_from`, `ops_to`; of buckets that begin in [from, to), unix ns.
    """
    return (
        f"SELECT coalesce(sum(n_ops), 0)::bigint FROM {OpRollup._meta.db_table}"
        f" WHERE attempt_id = {attempt} AND bucket_ns >= %(ops_from)s AND bucket_ns < %(ops_to)s"
    )


def _add_up(parts: Sequence[OpRollup], n_ranks: int) -> RollupPoint:
    first, n_timed, duration_ns = parts[0], sum(part.n_timed for part in parts), sum(p.duration_sum_ns for p in parts)
    longest_ns = max(part.duration_max_ns for part in parts)
    bins = np.concatenate([np.frombuffer(part.bins, BIN) for part in parts])
    p50_ns, p90_ns, p99_ns = quantiles_ns(bins, (0.5, 0.9, 0.99), longest_ns)
    bandwidth = sum(part.bytes_timed for part in parts) * 10**9 / duration_ns if duration_ns else None
    share = bus_share(first.func, n_ranks)
    return RollupPoint(
        comm_id=first.comm_id % 2**64,
        func=first.func,
        bucket_ns=first.bucket_ns,
        n_ops=sum(part.n_ops for part in parts),
        bytes=sum(part.bytes for part in parts),
        n_timed=n_timed,
        duration_mean_ns=duration_ns // n_timed if n_timed else 0,
        duration_p50_ns=p50_ns,
        duration_p90_ns=p90_ns,
        duration_p99_ns=p99_ns,
        duration_max_ns=longest_ns,
        bytes_per_s=bandwidth,
        bus_bytes_per_s=None if bandwidth is None or share is None else bandwidth * share,
    )
