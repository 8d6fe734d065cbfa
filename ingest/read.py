"""Reading traces: windows of an attempt, its nodes and its roll-ups. The only SELECTs on the trace tables.

A window is cut from whole batches: rows of the batches that touch it are decoded, joined and shifted together as
numpy columns, then cut to the window; there is no Python per row. Only the table groups that are asked for are read.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

import numpy as np
import numpy.typing as npt
import psycopg
from django.db import connection
from django.db.models import Max, Sum

from ingest.arrival import completed_ns
from ingest.listening import heard_since_ns
from ingest.models import Attempt, Communicator, Node, OpRollup
from ingest.rollup import BIN, bus_share, quantiles_ns
from ingest.roster_columns import Roster, place_ranks, read_roster
from ingest.window import TRACE_TABLES, WINDOW_DTYPE, Rows, Window
from nccl_instrument.tables import DTYPE, GROUPS, TIME_COLUMNS
from nccl_instrument.wire import BadBatch, TraceBatch, decode_batch

log = logging.getLogger(__name__)

RECEIVED_SLACK: Final = timedelta(minutes=2)
"""Rows may be stamped this much later than they were received: tolerated clocks, ticks ahead of the anchor."""


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
    newest = Node.objects.filter(attempt_id=attempt_id).aggregate(newest=Max("watermark_ns"))["newest"]
    return int(newest or 0)


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
) -> Window:
    """Everything known of the attempt in [start_ns, end_ns). Raises Attempt.DoesNotExist, KeyError for no table.

    nodes, ranks: read trace rows of these nodes and of the nodes of these ranks only, whole nodes; None for all. What
    the window says of nodes, ranks and members stays that of the whole attempt.
    """
    attempt = Attempt.objects.select_related("job").get(pk=attempt_id)
    roster = read_roster(attempt_id, attempt.roster_version)
    groups = sorted({_GROUP_OF[table] for table in tables})
    wanted = None if nodes is None and ranks is None else roster.nodes_of(nodes or (), ranks or ())
    known = roster.nodes()
    stored, unreadable = _read_batches(attempt_id, start_ns, end_ns, groups, wanted)
    batches = _of_nodes(roster, stored)
    columns = {table: _cut(table, batches[_GROUP_OF[table]], roster, start_ns, end_ns) for table in tables}
    now_ns = time.time_ns() if now_ns is None else now_ns
    return Window(
        job=attempt.job.name,
        attempt=attempt.number,
        start_ns=start_ns,
        end_ns=end_ns,
        now_ns=now_ns,
        world_size=attempt.world_size or roster.largest_communicator(),
        nodes=known,
        ranks=roster.ranks,
        members=roster.members,
        tables=columns,
        heard_since_ns=heard_since_ns(attempt, now_ns),
        unreadable=_by_name(roster, known, unreadable),
    )


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


@dataclass(frozen=True, slots=True)
class _Group:
    """One table group of one stored batch, decoded once for all its tables."""

    node_id: int
    shift_ns: int
    end_ns: int
    held: TraceBatch


def _read_batches(
    attempt_id: int, start_ns: int, end_ns: int, groups: Sequence[str], node_ids: Sequence[int] | None
) -> tuple[dict[str, list[_Group]], Counter[int]]:
    """What was stored in batches that touch the window, by group, and node id → groups of it that cannot be read.

    Pinned batches are included once. node_ids None: all.
    """
    found: dict[str, list[_Group]] = {group: [] for group in groups}
    unreadable = Counter[int]()
    if not groups or (node_ids is not None and not node_ids):
        return found, unreadable
    received_from = datetime.fromtimestamp(max(start_ns, 0) / 1e9, UTC) - RECEIVED_SLACK
    parameters = {"attempt": attempt_id, "start": start_ns, "end": end_ns, "received_from": received_from}
    of_nodes = ""
    if node_ids is not None:
        parameters["nodes"], of_nodes = list(node_ids), "AND node_id = ANY(%(nodes)s)"
    connection.ensure_connection()
    cursor = psycopg.Cursor(connection.connection)  # binary results: Django's cursor would send bytea as hex text
    cursor.execute(_SELECT.format(columns=", ".join(groups), of_nodes=of_nodes), parameters, binary=True)
    for node_id, shift_ns, batch_end_ns, *packed in cursor:
        for group, raw in zip(groups, packed, strict=True):
            try:
                if raw is not None:
                    found[group].append(_Group(node_id, shift_ns, batch_end_ns, decode_batch(raw)))
            except BadBatch:  # damaged, or of a version that is no longer read: the rest is still worth a look
                unreadable[node_id] += 1
    if unreadable:
        n_unreadable = unreadable.total()
        log.warning("%d stored table groups of attempt %d cannot be read and are left out", n_unreadable, attempt_id)
    return found, unreadable


def _by_name(roster: Roster, nodes: Rows, counts: Mapping[int, int]) -> dict[str, int]:
    names = dict(zip(roster.node_ids.tolist(), nodes["name"].tolist(), strict=True))
    return {names[node_id]: n for node_id, n in sorted(counts.items()) if node_id in names}


def _of_nodes(roster: Roster, batches: dict[str, list[_Group]]) -> dict[str, list[_Group]]:
    """Without those of nodes that joined since the roster was read: the next window will have them."""
    known = set(roster.node_ids.tolist())
    return {group: [one for one in held if one.node_id in known] for group, held in batches.items()}


_SELECT: Final = """
SELECT node_id, shift_ns, end_ns, {columns} FROM ingest_trace_batch
WHERE attempt_id = %(attempt)s AND end_ns >= %(start)s AND start_ns < %(end)s AND received_at >= %(received_from)s
    {of_nodes}
UNION ALL
SELECT node_id, shift_ns, end_ns, {columns} FROM ingest_pinned_batch p
WHERE attempt_id = %(attempt)s AND end_ns >= %(start)s AND start_ns < %(end)s {of_nodes} AND NOT EXISTS (
    SELECT 1 FROM ingest_trace_batch t WHERE t.attempt_id = p.attempt_id AND t.end_ns = p.end_ns
    AND t.boot_pk = p.boot_pk AND t.number = p.number AND t.received_at = p.received_at
)
"""


_GROUP_OF: Final = {table: group for group, held in GROUPS.items() for table in held}


def _cut(table: str, groups: Sequence[_Group], roster: Roster, start_ns: int, end_ns: int) -> Rows:
    """The rows of `table` inside the window, with ranks and nodes joined and times in unix ns."""
    pieces = [group.held.rows(table) for group in groups]
    lengths = [len(rows) for rows in pieces]
    rows = _widened(table, pieces, sum(lengths))
    _shift(table, rows, np.repeat(_column(groups, "shift_ns"), lengths))
    node_ids = np.repeat(_column(groups, "node_id"), lengths)
    at = _when(table, rows, np.repeat(_column(groups, "end_ns"), lengths))
    inside = (at >= start_ns) & (at < end_ns)
    rows, node_ids = rows[inside], node_ids[inside]
    rows["node"] = roster.node_index(node_ids)
    rows["rank"] = place_ranks(roster, table, rows)
    return rows


def _column(groups: Sequence[_Group], name: str) -> npt.NDArray[np.int64]:
    return np.array([getattr(group, name) for group in groups], np.int64)


def _widened(table: str, pieces: Sequence[Rows], n_rows: int) -> Rows:
    """The pieces, end to end, in the window's dtype: its leading bytes are the trace table's, so bytes are copied."""
    rows = np.zeros(n_rows, WINDOW_DTYPE[table])
    if n_rows:
        flat = rows.view(np.uint8).reshape(n_rows, -1)
        packed = np.concatenate(pieces).view(np.uint8).reshape(n_rows, -1)
        flat[:, : DTYPE[table].itemsize] = packed
    return rows


def _shift(table: str, rows: Rows, shift_ns: npt.NDArray[np.int64]) -> None:
    for name in TIME_COLUMNS[table]:
        rows[name] = np.where(rows[name] != 0, rows[name] + shift_ns, 0)


def _when(table: str, rows: Rows, batch_end_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The time a row belongs to: completion of an op, tick of a sample, end of its batch for a loss."""
    if table == "op":
        return completed_ns(rows)
    return batch_end_ns if table == "loss" else rows["tick_ns"]


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
