"""What retention let go of, counted for ever: traces that were evidence, or that were to be, and are no more.

One row per kind in the database, because who lets go is a task in whichever worker has time. Shown by `/metrics` and the
doctor; which window or hour it was is in the log.
"""

from __future__ import annotations

from typing import Final

from django.db import connection

from ingest.models import LetGo

KINDS: Final = {
    "windows": "pinned windows of incidents resolved longer ago than evidence is kept",
    "windows_cut": "pinned windows longer than a day, of which the rest is not kept",
    "dumps": "requests for dumps and what was answered, older than they are kept or beyond what a team may keep",
    "dumps_refused": "requests for dumps not made, since incidents' evidence takes all that a team may keep",
    "hours": "hours of traces dropped before all that was pinned or unsummed of them was saved",
}


def note_let_go(kind: str, n: int) -> int:
    """Count what was let go of; one of KINDS. Raises django.db.Error."""
    if n:
        with connection.cursor() as cursor:
            cursor.execute(_NOTE, [kind, n])
    return n


def read_let_go() -> dict[str, int]:
    """Kind → how many so far."""
    return dict.fromkeys(KINDS, 0) | dict(LetGo.objects.values_list("kind", "n"))


_NOTE: Final = """
INSERT INTO ingest_letgo AS known (kind, n, last_at) VALUES (%s, %s, now())
ON CONFLICT (kind) DO UPDATE SET n = known.n + excluded.n, last_at = excluded.last_at
"""
