"""What must hold after the kills, asked of the database itself: `kills` is the one suite that looks inside.

Every acknowledged batch is there exactly once, in the boot's set and as one row; data time never ran backwards, neither
in rows nor in looks; what an agent never delivered is a loss it counted.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from console.supervisor.servers import database_url
from tests.eval.kills_load import LoadNode
from tests.eval.stack import RunningStack

Boot = tuple[str, bytes]
"""(job, boot id)"""


@dataclass
class Stored:
    """What the database holds. rows: boot → number → rows; received: boot → numbers of its set, as [from, to) ranges."""

    rows: dict[Boot, Counter[int]] = field(default_factory=dict)
    received: dict[Boot, list[tuple[int, int]]] = field(default_factory=dict)
    disorder: list[str] = field(default_factory=list)

    def has_once(self, boot: Boot, number: int) -> bool:
        is_in_set = any(low <= number < high for low, high in self.received.get(boot, []))
        return is_in_set and self.rows.get(boot, Counter())[number] == 1

    def holes(self, boot: Boot) -> int:
        """Numbers between the first and the last of this boot that never arrived."""
        ranges = self.received.get(boot, [])
        return sum(after[0] - before[1] for before, after in itertools.pairwise(ranges))

    def repeated(self) -> int:
        return sum(n - 1 for rows in self.rows.values() for n in rows.values() if n > 1)


def read_stored(stack: RunningStack) -> Stored:
    """Everything about batches and looks, and where their order is broken."""
    found = Stored()
    with psycopg.connect(database_url(Path((stack.data / "runtime").read_text())), autocommit=True) as database:
        for job, boot, ranges in database.execute(_RECEIVED):
            found.received[job, bytes(boot)] = [(part.lower, part.upper) for part in ranges]
        newest: dict[Boot, int] = {}
        for job, boot, number, end_ns in database.execute(_ROWS):
            key = (job, bytes(boot))
            found.rows.setdefault(key, Counter())[number] += 1
            if end_ns < newest.get(key, 0):
                found.disorder.append(f"batch {number} of a boot of {job} ends before the one cut earlier")
            newest[key] = end_ns
        found.disorder += [f"look {look} sees an earlier time than look {before}"
                           for look, before in database.execute(_LOOKS_BACKWARDS)]  # fmt: skip
    return found


_RECEIVED = """
SELECT j.name, b.boot_id, b.received FROM ingest_boot b JOIN ingest_job j ON j.id = b.job_id
"""
_ROWS = """
SELECT j.name, b.boot_id, t.number, t.end_ns
FROM ingest_trace_batch t JOIN ingest_boot b ON b.id = t.boot_pk JOIN ingest_job j ON j.id = b.job_id
ORDER BY t.boot_pk, t.number
"""
_LOOKS_BACKWARDS = """
SELECT id, before_id FROM (
    SELECT id, lag(id) OVER w AS before_id, seen_ns, lag(seen_ns) OVER w AS before_ns
    FROM incidents_look WINDOW w AS (PARTITION BY attempt_id ORDER BY id)
) looks WHERE seen_ns < before_ns
"""


def lost(stored: Stored, nodes: Iterable[LoadNode], job: str) -> list[str]:
    """Acknowledged batches that are not there exactly once."""
    return [
        f"batch {number} of load node {node.index}"
        for node in nodes
        for number in node.door.acknowledged
        if not stored.has_once((job, node.boot), number)
    ]


def unexplained(stored: Stored, nodes: Iterable[LoadNode], rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Batches that never arrived although nobody counted them as lost; rows: those of GET /nodes."""
    found = []
    for node in nodes:
        missing = len(node.cut_at) - len(node.door.acknowledged) - len(node.spool)
        if missing:
            found.append(f"{missing} batches of load node {node.index} are neither acknowledged nor waiting")
    holes: Counter[str] = Counter()
    for boot in stored.received:
        holes[boot[0]] += stored.holes(boot)
    counted: Counter[str] = Counter()
    for row in rows:
        counted[row["job"]] += sum(row["losses"].get(kind, 0) for kind in ("spool_batches", "refused_batches"))
    found += [f"{n} numbers of {job} never arrived, {counted[job]} are counted as lost"
              for job, n in holes.items() if n > counted[job]]  # fmt: skip
    return found


def timeline_faults(timeline: list[Mapping[str, Any]], acts: list[str]) -> list[str]:
    """What is wrong with an incident's timeline: acts missing or out of order, times that run backwards."""
    found = []
    if [row["at"] for row in timeline] != sorted(row["at"] for row in timeline):
        found.append("the timeline's times run backwards")
    notes = [row["note"] for row in timeline if row["note"] in acts]
    if notes != acts:
        missing = [act for act in acts if act not in notes]
        found.append(f"the timeline lacks {missing}" if missing else "the timeline has the acts in another order")
    if len(notes) != len(set(notes)):
        found.append("an act is in the timeline twice")
    return found
