"""Which API tokens end together: a token with the secrets it had before, and all that was made with any of them.

A token that rotates itself makes another with itself, so what whoever had its secret may have made is always found. What a
person rotates is not made with the old secret, so it outlives it; the person's revoking of the new one ends the old one, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
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


def taken_along(token_ids: Iterable[int]) -> dict[int, int]:
    """How many other tokens that are good end with each of these; of their teams, whose good ones must be among them."""
    shown = list(token_ids)
    with connection.cursor() as cursor:
        cursor.execute(_ANCESTORS, [shown])
        rows = cursor.fetchall()
    good = set(ApiToken.objects.filter(alive(timezone.now()), pk__in=shown).values_list("pk", flat=True))
    earlier, made = {row[0]: row[1] for row in rows}, defaultdict(list)
    for pk, _, made_with in rows:
        made[made_with].append(pk)
    return {pk: len(_family(pk, earlier, made) & good - {pk}) for pk in shown}


def _family(pk: int, earlier: dict[int, int | None], made: dict[int | None, list[int]]) -> set[int]:
    todo, found = [pk], set[int]()
    while (before := earlier.get(todo[-1])) is not None:
        todo.append(before)
    while todo:
        one = todo.pop()
        if one not in found:
            found.add(one)
            todo.extend(made[one])
    return found
