"""The berths of boots that were heard before, in one query: nothing about them has to be decided again.

An ingest process that starts knows no berth, and every agent of the cluster comes to it at once. What an agent says after
its first batches is who lives, and twice a minute the same table of communicators; so when the newest attempt runs, knows
all of those processes, and the node says nothing but what was stored of it, that is where the boot goes on. In every
other case roster.py decides, under the job's lock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from django.db import connection

from ingest.door.arrival import Arrival
from ingest.door.clock import BootClock
from nccl_instrument.wire import Rows, TraceBatch

MEMBER = np.dtype([("comm_id", "<u8"), ("comm_rank", "<i4")])
DIGEST_BYTES: Final = 8
TABLES_KEPT: Final = 16


@dataclass(frozen=True, slots=True)
class KnownBoot:
    """Rows a boot's batches belong to. gone_ns: pid → Rank.gone_ns of the node's processes. members: (m,) MEMBER."""

    job_id: int
    attempt_id: int
    node_id: int
    boot_pk: int
    clock: BootClock
    gone_ns: dict[int, int]
    members: npt.NDArray[np.void]


_FIND = """
SELECT g.place, j.id, a.id, n.id, b.id, b.sync_ns, b.newest_mono_ns, b.pace, n.comm_tables,
    (SELECT array_agg(ARRAY[r.pid, r.gone_ns]) FROM ingest_rank r WHERE r.node_id = n.id AND NOT r.replaced),
    (SELECT array_agg(ARRAY[c.comm_id, m.comm_rank]) FROM ingest_rank r JOIN ingest_commmember m ON m.process_id = r.id
        JOIN ingest_communicator c ON c.id = m.communicator_id WHERE r.node_id = n.id)
FROM unnest(%s::int[], %s::bigint[], %s::text[], %s::text[], %s::bytea[]) AS g(place, team_id, job, node, boot_id)
JOIN ingest_job j ON j.team_id = g.team_id AND j.name = g.job
JOIN ingest_boot b ON b.job_id = j.id AND b.node_name = g.node AND b.boot_id = g.boot_id
JOIN ingest_attempt a ON a.job_id = j.id AND a.state = 'running'
    AND a.number = (SELECT max(number) FROM ingest_attempt WHERE job_id = j.id)
JOIN ingest_node n ON n.attempt_id = a.id AND n.name = g.node
WHERE NOT EXISTS (SELECT 1 FROM ingest_rank r WHERE r.node_id = n.id AND r.replaced)
"""


def find_again(arrivals: Sequence[Arrival]) -> list[KnownBoot | None]:
    """Where the boot of each arrival goes on; None when roster.py has to decide."""
    asked = [(place, one) for place, one in enumerate(arrivals) if pids_of(one.batch)]
    found: list[KnownBoot | None] = [None] * len(arrivals)
    if not asked:
        return found
    rows = [(place, a.team_id, a.batch.job, a.batch.node, a.batch.boot_id) for place, a in asked]
    with connection.cursor() as cursor:
        cursor.execute(_FIND, [list(column) for column in zip(*rows, strict=True)])
        for place, *row in cursor.fetchall():
            found[place] = _known(arrivals[place].batch, row)
    return found


def pids_of(batch: TraceBatch) -> frozenset[int]:
    """Processes the batch speaks of."""
    return frozenset(batch.rows("process")["pid"].tolist() + batch.rows("comm")["pid"].tolist())


def digest_of(rows: Rows) -> bytes:
    """A whole table of comm rows, to know it again: the same in every process."""
    return hashlib.blake2b(rows.tobytes(), digest_size=DIGEST_BYTES).digest()


def _known(batch: TraceBatch, row: Sequence[Any]) -> KnownBoot | None:
    job_id, attempt_id, node_id, boot_pk, sync_ns, newest_mono_ns, pace, tables, processes, pairs = row
    gone_ns = {int(pid): int(at_ns) for pid, at_ns in processes or ()}
    if not pids_of(batch) <= gone_ns.keys() or not _is_stored(batch.rows("comm"), bytes(tables)):
        return None
    clock = BootClock(sync_ns, newest_mono_ns, pace)
    return KnownBoot(job_id, attempt_id, node_id, boot_pk, clock, gone_ns, as_members(pairs or []))


def _is_stored(rows: Rows, tables: bytes) -> bool:
    """Whether these comm rows are one of the tables (Node.comm_tables) that were stored."""
    known = (tables[at : at + DIGEST_BYTES] for at in range(0, len(tables), DIGEST_BYTES))
    return not len(rows) or digest_of(rows) in known


def as_members(pairs: Sequence[Sequence[int]]) -> npt.NDArray[np.void]:
    """(m,) MEMBER of pairs (comm_id as stored, comm_rank)."""
    members = np.zeros(len(pairs), MEMBER)
    numbers = np.array(pairs, np.int64).reshape(-1, 2)
    members["comm_id"], members["comm_rank"] = numbers[:, 0].view(np.uint64), numbers[:, 1]
    return members
