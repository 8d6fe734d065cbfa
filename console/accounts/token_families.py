"""Which API tokens end together: a token with the secrets it had before, and all that was made with any of them.

A token that rotates itself makes another with itself, so what whoever had its secret may have made is always found. What a
person rotates is not made with the old secret, so it outlives it; the person's revoking of the new one ends the old one, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final

from django.db import connection
from django.utils import timezone

from console.accounts.models import ApiToken, alive

_FAMILY: Final = """
WITH RECURSIVE same AS (
    SELECT id, rotated_from_id FROM accounts_apitoken WHERE id = %s
    UNION SELECT earlier.id, earlier.rotated_from_id FROM accounts_apitoken earlier JOIN same ON earlier.id = same.rotated_from_id
), family AS (
    SELECT id FROM same
    UNION SELECT made.id FROM accounts_apitoken made JOIN family ON made.made_with_id = family.id
) SELECT id FROM family
"""
_TURNS: Final = """
WITH RECURSIVE same AS (
    SELECT rotated_from_id, made_with_id, made_at FROM accounts_apitoken WHERE id = %s AND made_at > %s
    UNION ALL SELECT earlier.rotated_from_id, earlier.made_with_id, earlier.made_at
    FROM accounts_apitoken earlier JOIN same ON earlier.id = same.rotated_from_id WHERE earlier.made_at > %s
) SELECT count(*) FROM same WHERE made_with_id = rotated_from_id
"""
_ANCESTORS: Final = """
WITH RECURSIVE known AS (
    SELECT id, rotated_from_id, made_with_id FROM accounts_apitoken WHERE id = ANY(%s)
    UNION SELECT older.id, older.rotated_from_id, older.made_with_id
    FROM accounts_apitoken older JOIN known ON older.id IN (known.rotated_from_id, known.made_with_id)
) SELECT id, rotated_from_id, made_with_id FROM known
"""


def family_of(token_id: int) -> list[int]:
    """The token, those it took the place of, and what was made with any of them, however far down."""
    with connection.cursor() as cursor:
        cursor.execute(_FAMILY, [token_id])
        return [row[0] for row in cursor.fetchall()]


def own_turns(token_id: int, since: datetime) -> int:
    """How often since then the token, in its earlier forms too, was rotated by itself."""
    with connection.cursor() as cursor:
        cursor.execute(_TURNS, [token_id, since, since])
        return int(cursor.fetchone()[0])


def taken_along(token_ids: Iterable[int], team_ids: Sequence[int]) -> dict[int, int]:
    """How many other tokens that are good end with each of these, which are of these teams."""
    shown = list(token_ids)
    good = list(ApiToken.objects.filter(alive(timezone.now()), team__in=team_ids).values_list("pk", flat=True))
    with connection.cursor() as cursor:
        cursor.execute(_ANCESTORS, [[*shown, *good]])
        rows = cursor.fetchall()
    later = {earlier: pk for pk, earlier, _ in rows if earlier is not None}
    made_with = {pk: maker for pk, _, maker in rows}
    n = Counter(end for one in good for end in _ends_of(one, made_with, later) - {one})
    return {pk: n[pk] for pk in shown}


def _ends_of(pk: int, made_with: Mapping[int, int | None], later: Mapping[int, int]) -> set[int]:
    """With which tokens this one ends: those it was made with, however far up, in each form that they took since."""
    found, maker = set[int](), made_with.get(pk)
    found.add(pk)
    while maker is not None and maker not in found:
        found.add(maker)
        maker = made_with.get(maker)
    for one in list(found):
        form = later.get(one)
        while form is not None and form not in found:
            found.add(form)
            form = later.get(form)
    return found
