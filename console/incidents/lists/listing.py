"""Lists of incidents: filters, facets, search, pages by cursor, and the neighbours of one in its list.

Every query starts from the caller's teams. The facets are counted in one query, each with every other filter applied. A
page is asked for by the number it continues from, so that incidents that open meanwhile move nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from django.db.models import Case, CharField, Count, F, Func, JSONField, Q, QuerySet, TextField, Value, When
from django.db.models.functions import Cast, Coalesce, NullIf
from django.utils import timezone

from console.incidents.live import IncidentRow
from console.incidents.models import Incident, State
from console.incidents.read import visible_incidents
from console.incidents.rows import incident_row

PAGE_SIZE: Final = 50
FACETS: Final = ("state", "symptom", "severity", "job", "who", "node", "rack", "cluster", "team")
NOBODY: Final = "nobody"
UNKNOWN: Final = "unknown"
"""How a rack or cluster is shown that no agent declared."""
VALUES_MAX: Final = 100
CURSOR: Final = re.compile(r"^([on])(\d{1,15})$")
RANK: Final = re.compile(r"^rank (\d{1,7})$")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a list shows. filters: facet → values, of which one must hold. text: looked for in headlines, job names,
    nodes and numbers; "rank 12" in the suspects.
    """

    filters: Mapping[str, Sequence[str]]
    text: str = ""


@dataclass(frozen=True, slots=True)
class IncidentPage:
    """One page of a filtered list, newest first. newer, older: cursors, None at the ends. facets: name → value → how
    many, with every other filter applied.
    """

    total: int
    newer: str | None
    older: str | None
    incidents: list[IncidentRow]
    facets: dict[str, dict[str, int]]


def wanted_from(query: Mapping[str, str], me: str) -> Wanted:
    """The filters of an address; `who=me` is the caller."""
    filters = {name: [part for part in query.get(name, "").split(",") if part][:VALUES_MAX] for name in FACETS}
    filters["who"] = [me if who == "me" else who for who in filters["who"]]
    return Wanted(filters, query.get("q", "").strip()[:200])


def read_page(team_ids: Sequence[int], wanted: Wanted, cursor: str = "") -> IncidentPage:
    """Incidents that match; from the newest one when the cursor is none of ours."""
    searched = _searched(team_ids, wanted.text)
    found = _filtered(searched, wanted.filters)
    rows, has_newer, has_older = _rows_at(found, cursor)
    return IncidentPage(
        total=found.count(),
        newer=f"n{rows[0].pk}" if rows and has_newer else None,
        older=f"o{rows[-1].pk}" if rows and has_older else None,
        incidents=[incident_row(incident) for incident in rows],
        facets=_facets(searched, wanted.filters),
    )


def read_neighbours(number: int, team_ids: Sequence[int], wanted: Wanted) -> tuple[int | None, int | None]:
    """Numbers of the incidents before and after this one in the list."""
    found = _filtered(_searched(team_ids, wanted.text), wanted.filters)
    before = found.filter(pk__lt=number).order_by("-id").values_list("pk", flat=True).first()
    after = found.filter(pk__gt=number).order_by("id").values_list("pk", flat=True).first()
    return before, after


def _rows_at(found: QuerySet[Incident], cursor: str) -> tuple[list[Incident], bool, bool]:
    """The rows of the page, and whether there are newer and older ones."""
    known = CURSOR.match(cursor)
    if known and known[1] == "n":
        newer = list(found.filter(pk__gt=int(known[2])).order_by("id")[: PAGE_SIZE + 1])
        return newer[:PAGE_SIZE][::-1], len(newer) > PAGE_SIZE, bool(newer)
    if known:
        found = found.filter(pk__lt=int(known[2]))
    older = list(found.order_by("-id")[: PAGE_SIZE + 1])
    return older[:PAGE_SIZE], known is not None, len(older) > PAGE_SIZE


def _status() -> Case:
    """What is shown as the state: what follows from another incident, or is silenced, waits for nobody."""
    return Case(
        When(state=State.RESOLVED, then=Value("resolved")),
        When(Q(attached_to__isnull=False) & ~Q(attached_to__state=State.RESOLVED), then=Value("attached")),
        When(state=State.ACKNOWLEDGED, then=Value("acknowledged")),
        When(silenced_until__gt=timezone.now(), then=Value("silenced")),
        default=Value("open"),
        output_field=CharField(),
    )


def _who() -> Coalesce:
    """Who handles it, or did: whom it is assigned to, else who acknowledged it."""
    taken = Case(When(~Q(state=State.OPEN), then=F("acknowledged_by")), default=None, output_field=CharField())
    return Coalesce(NullIf(F("assignee"), Value("")), taken, Value(NOBODY), output_field=CharField())


def _searched(team_ids: Sequence[int], text: str) -> QuerySet[Incident]:
    return visible_incidents(team_ids).annotate(shown_state=_status(), handled_by=_who()).filter(_matching(text))


COLUMNS: Final = {
    "state": "shown_state", "symptom": "symptom", "severity": "severity", "job": "job__name", "who": "handled_by",
    "team": "team__name",
}  # fmt: skip
LISTS: Final = {"node": "culprit_nodes", "rack": "culprit_racks", "cluster": "clusters"}
"""Facets of which an incident has several values."""


def _filtered(found: QuerySet[Incident], filters: Mapping[str, Sequence[str]], but: str = "") -> QuerySet[Incident]:
    for name, values in filters.items():
        if not values or name == but:
            continue
        fits = _any_of(LISTS[name], values) if name in LISTS else Q(**{f"{COLUMNS[name]}__in": values})
        found = found.filter(fits)
    return found


def _any_of(column: str, values: Sequence[str]) -> Q:
    chosen = Q()
    for value in values:
        chosen |= Q(**{f"{column}__contains": [value]})
        if value == UNKNOWN:
            chosen |= Q(**{f"{column}__contains": [""]}) | (Q(clusters=[]) if column == "clusters" else Q())
    return chosen


def _matching(text: str) -> Q:
    if not text:
        return Q()
    found = Q(job__name__icontains=text) | Q(culprit_nodes__contains=[text])
    if rank := RANK.match(text):  # rank 4 is not in "rank 40"
        found |= Q(headline__iregex=rf"\mranks? {int(rank[1])}\M") | Q(suspects__contains=[int(rank[1])])
    else:
        found |= Q(headline__icontains=text)
    number = text.removeprefix("#")
    return found | Q(pk=int(number)) if number.isascii() and number.isdigit() and len(number) < 16 else found


def _facets(searched: QuerySet[Incident], filters: Mapping[str, Sequence[str]]) -> dict[str, dict[str, int]]:
    """All facets in one query: how often each value occurs, the most frequent first."""
    parts = [_counted(_filtered(searched, filters, but=name), name) for name in FACETS]
    counts: dict[str, dict[str, int]] = {name: {} for name in FACETS}
    for name, value, n in parts[0].union(*parts[1:], all=True):
        shown = UNKNOWN if name in LISTS and value == "" else value
        counts[name][shown] = counts[name].get(shown, 0) + n
    return {name: dict(sorted(found.items(), key=lambda one: (-one[1], one[0]))) for name, found in counts.items()}


def _counted(found: QuerySet[Incident], name: str) -> QuerySet[Any, Any]:
    value = _each(LISTS[name]) if name in LISTS else Cast(F(COLUMNS[name]), TextField())
    rows = found.order_by().annotate(facet=Value(name, output_field=TextField()), value=value)
    return rows.values_list("facet", "value").annotate(n=Count("id")).order_by("-n")[:VALUES_MAX]


def _each(column: str) -> Func:
    """Every value of a list, "" where it is not known: as of an incident of which no cluster was noted."""
    held: F | Case = F(column)
    if column == "clusters":
        held = Case(When(clusters=[], then=Value([""], JSONField())), default=held, output_field=JSONField())
    return Func(held, function="jsonb_array_elements_text", output_field=TextField())
