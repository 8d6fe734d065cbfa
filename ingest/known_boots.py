"""The berth of a boot that was heard before, in one query: nothing about it has to be decided again.

An ingest process that starts knows no berth, and every agent of the cluster comes to it at once. What an agent says after
its first batches is only who lives, so when the newest attempt runs and knows all of those processes, that is where the
boot goes on. In every other case roster.py decides, under the job's lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from django.db import connection

from ingest.arrival import Arrival
from ingest.clock import BootClock

MEMBER = np.dtype([("comm_id", "<u8"), ("comm_rank", "<i4")])


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
SELECT j.id, a.id, n.id, b.id, b.sync_ns, b.newest_mono_ns, b.pace,
    (SELECT array_agg(ARRAY[r.pid, r.gone_ns]) FROM ingest_rank r WHERE r.node_id = n.id AND NOT r.replaced),
    (SELECT array_agg(ARRAY[c.comm_id, m.comm_rank]) FROM ingest_rank r JOIN ingest_commmember m ON m.process_id = r.id
        JOIN ingest_communicator c ON c.id = m.communicator_id WHERE r.node_id = n.id)
FROM ingest_job j
JOIN ingest_boot b ON b.job_id = j.id AND b.node_name = %(node)s AND b.boot_id = %(boot_id)s
JOIN ingest_attempt a ON a.job_id = j.id AND a.state = 'running'
    AND a.number = (SELECT max(number) FROM ingest_attempt WHERE job_id = j.id)
JOIN ingest_node n ON n.attempt_id = a.id AND n.name = %(node)s
WHERE j.team_id = %(team_id)s AND j.name = %(job)s
    AND NOT EXISTS (SELECT 1 FROM ingest_rank r WHERE r.node_id = n.id AND r.replaced)
"""


def find_again(arrival: Arrival, pids: frozenset[int]) -> KnownBoot | None:
    """Where the boot of `arrival`, which speaks of `pids`, goes on; None when roster.py has to decide."""
    batch = arrival.batch
    if not pids or len(batch.rows("comm")):
        return None
    named: dict[str, Any] = {"team_id": arrival.team_id, "job": batch.job, "node": batch.node, "boot_id": batch.boot_id}
    with connection.cursor() as cursor:
        cursor.execute(_FIND, named)
        row: Any = cursor.fetchone()
    if row is None or not row[7]:
        return None
    gone_ns = {int(pid): int(at_ns) for pid, at_ns in row[7]}
    if not pids <= gone_ns.keys():
        return None
    job_id, attempt_id, node_id, boot_pk, sync_ns, newest_mono_ns, pace, _, pairs = row
    clock = BootClock(sync_ns, newest_mono_ns, pace)
    return KnownBoot(job_id, attempt_id, node_id, boot_pk, clock, gone_ns, _members(pairs or []))


def _members(pairs: list[list[int]]) -> npt.NDArray[np.void]:
    members = np.zeros(len(pairs), MEMBER)
    numbers = np.array(pairs, np.int64).reshape(-1, 2)
    members["comm_id"], members["comm_rank"] = numbers[:, 0].view(np.uint64), numbers[:, 1]
    return members
