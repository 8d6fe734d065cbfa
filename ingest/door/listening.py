"""Since when ingest could hear, and since when it has heard of an attempt: silence is no news while nobody listens.

Written once a second. Of whom we hear is noted before what was received is, so that after an outage of our own (ingest, its
database, the network before it) the gap is seen before it is closed; that we listen is noted when all else was written.
Nodes return at different times then, so a node that has not spoken yet is judged only when the others have been heard
without a gap for long enough that it would have returned.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from psycopg import AsyncConnection

from ingest.models import Attempt, Listening

GAP: Final = timedelta(seconds=5)
"""Every node of a running attempt sends once a second: nothing from any of them for so long is a gap."""
STALE: Final = timedelta(seconds=3)
RETURN: Final = timedelta(seconds=10)
"""Agents knock every five seconds at most."""
ROW: Final = 1


async def note_heard(connection: AsyncConnection[Any]) -> None:
    """Note of which attempts nobody was heard lately, and of which somebody is again."""
    await connection.execute(_UNHEARD, {"gap": GAP})
    await connection.execute(_HEARD, {"gap": GAP})


async def note_listening(connection: AsyncConnection[Any]) -> None:
    """Note that ingest can receive and write."""
    await connection.execute(_LISTENING, {"row": ROW, "gap": GAP})


def listening_since(now: datetime) -> datetime | None:
    """Since when batches could be received without a gap; None while they cannot."""
    found = Listening.objects.filter(pk=ROW).first()
    return found.since if found is not None and now - found.until <= GAP else None


def hears(now: datetime) -> bool:
    """Whether whoever is not heard now is silent: ingest receives, and has for long enough that all would have returned.

    Stricter than GAP: ingest is known to be away before the nodes that it no longer hears could be called silent.
    """
    found = Listening.objects.filter(pk=ROW).first()
    return found is not None and now - found.until <= STALE and now - found.since >= RETURN


def heard_since_ns(attempt: Attempt, now_ns: int) -> int:
    """Since when some node of the attempt has been heard at any time, unix ns; now_ns while none is."""
    last_ns = int(attempt.last_received_at.timestamp() * 1e9)
    if attempt.heard_since is None or now_ns - last_ns > GAP.total_seconds() * 1e9:
        return now_ns
    return int(attempt.heard_since.astimezone(UTC).timestamp() * 1e9)


_LISTENING: Final = """
INSERT INTO ingest_listening AS known (id, since, until) VALUES (%(row)s, now(), now())
ON CONFLICT (id) DO UPDATE SET
    since = CASE WHEN now() - known.until > %(gap)s THEN now() ELSE known.since END, until = now()
"""
_UNHEARD: Final = """
UPDATE ingest_attempt SET heard_since = NULL
WHERE state = 'running' AND heard_since IS NOT NULL AND last_received_at < now() - %(gap)s
"""
_HEARD: Final = """
UPDATE ingest_attempt SET heard_since = now()
WHERE state = 'running' AND heard_since IS NULL AND last_received_at >= now() - %(gap)s
"""
