"""What ingest writes once a second rather than per batch: refusals, who was heard, and upkeep.

Counts of accepted batches are exact because they are committed with the batch (store.py), sums because the store knows
what they contain (writers.py); what is here may lose its last second when the process dies.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from psycopg import AsyncConnection

from ingest.sums.rollup import OpBatch
from ingest.traces.store import StoredBatch
from ingest.traces.writers import Commit, Writer
from nccl_instrument.wire import Rows

REFUSALS_MAX: Final = 10_000
REASON_CHARACTERS_MAX: Final = 300

Refused = tuple[int, str, str]
"""(team id, job name, node name); names are empty when the bytes did not say them."""


@dataclass(slots=True)
class Ledger:
    """The counts of one ingest process. gone: (node id, pid) → Rank.gone_ns to write."""

    writer: Writer = field(default_factory=Writer)
    heard: dict[int, int] = field(default_factory=dict)
    marks: set[int] = field(default_factory=set)
    gone: dict[tuple[int, int], int] = field(default_factory=dict)
    refused: Counter[Refused] = field(default_factory=Counter)
    reasons: dict[int, str] = field(default_factory=dict)
    tokens_used: set[int] = field(default_factory=set)
    batches_stored: int = 0
    requests_refused: Counter[int] = field(default_factory=Counter)

    def stored(self, commit: Commit, batch: StoredBatch, ops: Rows) -> None:
        """This commit stored a batch for the first time."""
        self.batches_stored += 1
        self.writer.stored(commit, OpBatch(batch.attempt_id, batch.node_id, batch.boot_pk, batch.shift_ns, ops))
        self.heard[batch.attempt_id] = max(self.heard.get(batch.attempt_id, 0), batch.received_ns)
        self.marks.add(batch.attempt_id)

    def refuse(self, team_id: int, job: str, node: str, reason: str) -> None:
        """A batch was refused. Beyond REFUSALS_MAX different names it counts for the team alone."""
        key = (team_id, job, node)
        if key not in self.refused and len(self.refused) >= REFUSALS_MAX:
            key = (team_id, "", "")
        self.refused[key] += 1
        self.reasons[team_id] = reason[:REASON_CHARACTERS_MAX]

    async def write(self, connection: AsyncConnection[Any]) -> None:
        """Write everything that changed. What fails to be written is kept for the next time."""
        await self._write_heard(connection)
        await self._write_gone(connection)
        await self._write_refused(connection)
        await self._write_tokens(connection)

    async def _write_heard(self, connection: AsyncConnection[Any]) -> None:
        heard = dict(self.heard)
        for attempt_id, received_ns in heard.items():
            at = datetime.fromtimestamp(received_ns / 1e9, UTC)
            await connection.execute(
                "UPDATE ingest_attempt SET last_received_at = greatest(last_received_at, %s) WHERE id = %s",
                [at, attempt_id],
            )
        self.heard = {key: at for key, at in self.heard.items() if heard.get(key) != at}

    async def _write_gone(self, connection: AsyncConnection[Any]) -> None:
        gone = dict(self.gone)
        for (node_id, pid), at_ns in gone.items():
            await connection.execute(
                "UPDATE ingest_rank SET gone_ns = %s WHERE node_id = %s AND pid = %s AND NOT replaced",
                [at_ns, node_id, pid],
            )
        self.gone = {key: at_ns for key, at_ns in self.gone.items() if gone.get(key) != at_ns}

    async def _write_refused(self, connection: AsyncConnection[Any]) -> None:
        refused, self.refused = self.refused, Counter()
        try:
            async with connection.transaction():
                of_teams: Counter[int] = Counter()
                for (team_id, _, _), n in refused.items():
                    of_teams[team_id] += n
                for team_id, n in sorted(of_teams.items()):
                    await connection.execute(_REFUSED_TEAM, [n, self.reasons.get(team_id, ""), team_id])
                named = [(*key, n) for key, n in refused.items() if key[2]]
                if named:
                    await connection.execute(_REFUSED_NODES, [list(column) for column in zip(*named, strict=True)])
        except BaseException:
            self.refused += refused
            raise

    async def _write_tokens(self, connection: AsyncConnection[Any]) -> None:
        used = list(self.tokens_used)
        if used:
            await connection.execute("UPDATE ingest_agenttoken SET last_used_at = now() WHERE id = ANY(%s)", [used])
            self.tokens_used.difference_update(used)


_REFUSED_TEAM = """
UPDATE ingest_team SET batches_refused = batches_refused + %s, last_refusal = %s, last_refused_at = now() WHERE id = %s
"""
_REFUSED_NODES = """
WITH given AS (
    SELECT * FROM unnest(%s::bigint[], %s::text[], %s::text[], %s::bigint[]) AS g (team_id, job, node, n)
), locked AS (
    SELECT node.id, given.n FROM given
    JOIN ingest_job j ON j.team_id = given.team_id AND j.name = given.job
    JOIN ingest_attempt a ON a.job_id = j.id AND a.state = 'running'
    JOIN ingest_node node ON node.attempt_id = a.id AND node.name = given.node
    ORDER BY node.id FOR UPDATE OF node
)
UPDATE ingest_node SET batches_refused = batches_refused + locked.n FROM locked WHERE ingest_node.id = locked.id
"""
"""Commits lock their nodes by id too: in another order the two could wait for each other."""
