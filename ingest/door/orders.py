"""Open requests for dumps, as one ingest process last read them: told in the answers to batches, free while there are none.

Read once a second (one look into an index while nothing is open), so that several processes need not speak to each
other. A node is told in every answer until it has answered every look; its agent remembers what it was asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from psycopg import AsyncConnection

from ingest.door.dumps import ANSWERED, EXPECTED

Key = tuple[int, str]
"""(team id, job name)."""


@dataclass(frozen=True, slots=True)
class _Open:
    order: dict[str, Any]
    answered: frozenset[str]


class Orders:
    """What the nodes of which job are asked for. `read` once a second, `of` for each batch."""

    def __init__(self) -> None:
        self._open: dict[Key, _Open] = {}

    def of(self, team_id: int, job: str, node: str) -> list[dict[str, Any]]:
        """What this node of the job should be told."""
        if not self._open:
            return []
        found = self._open.get((team_id, job))
        return [] if found is None or node in found.answered else [found.order]

    async def read(self, connection: AsyncConnection[Any]) -> None:
        """Read what is open; what has been answered by all, or by nobody in time, is closed."""
        cursor = await connection.execute(_OPEN)
        rows = await cursor.fetchall()
        self._open = {
            (team_id, job): _Open(_order(*asked), frozenset(answered or ()))
            for team_id, job, is_due, answered, *asked in rows
            if is_due
        }
        if rows:
            await connection.execute(_CLOSE)


def _order(pk: int, kinds: list[str], ranks: list[int] | None, looks: int, apart_s: float) -> dict[str, Any]:
    return {"request": pk, "kinds": kinds, "ranks": ranks, "looks": looks, "apart_s": apart_s}


_OPEN: Final = f"""
SELECT j.team_id, j.name, r.expires_at > now(), (SELECT array_agg(a.node_name) FROM ({ANSWERED}) a WHERE a.request_id = r.id),
    r.id, r.kinds, r.ranks, r.looks, r.apart_s
FROM ingest_dumprequest r JOIN ingest_attempt t ON t.id = r.attempt_id JOIN ingest_job j ON j.id = t.job_id
WHERE r.state = 'open'
"""
_CLOSE: Final = f"""
UPDATE ingest_dumprequest r SET state = CASE WHEN r.expires_at < now() THEN 'expired' ELSE 'answered' END
WHERE r.state = 'open' AND (r.expires_at < now() OR NOT EXISTS (
    SELECT 1 FROM ({EXPECTED}) e WHERE e.request_id = r.id
    AND NOT EXISTS (SELECT 1 FROM ({ANSWERED}) a WHERE a.request_id = r.id AND a.node_name = e.node_name)
))
"""
