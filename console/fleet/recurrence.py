"""Who is blamed again and again: incidents of the last weeks by node, GPU and NIC, across all jobs of the teams.

Counted is what stays with the machine: the node's name, the GPU by its own identity (else by its number on the node), the NIC
by its name on the node; GPU and NIC only where the fault's component can be theirs, so that nobody swaps the GPU of a rank whose
NIC was down. An incident that people found to be a false alarm counts for nobody. Every query is bounded, and what
was left out is counted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, timedelta
from typing import Final

from django.utils import timezone

from console.incidents.models import Alarm, Incident
from console.incidents.rows import iso
from ingest.models import Rank
from rca.findings import Component

DAYS_MAX: Final = 90
INCIDENTS_MAX: Final = 500
RANKS_MAX: Final = 20_000
SHOWN_MAX: Final = 100
NUMBERS_SHOWN: Final = 20
OF_COMPONENT: Final[dict[str, tuple[str, ...]]] = {
    Component.GPU: ("node", "gpu"),
    Component.COPY: ("node", "gpu"),
    Component.PROCESS: ("node", "gpu"),  # one whose GPU reported an error looks like any other
    Component.NIC: ("node", "nic"),
    Component.NETWORK: ("node", "nic"),
    Component.NODE: ("node",),
    Component.PROXY: ("node",),
    Component.SOFTWARE: ("node",),
}
"""Which places a fault of that component counts for; of an unknown one, for all."""


@dataclass(frozen=True, slots=True)
class Recurrence:
    """A node, GPU or NIC and the incidents whose culprits ran there. days: date in UTC → how many began that day."""

    kind: str
    name: str
    node: str
    n_incidents: int
    newest_at: str
    incidents: list[int]
    days: dict[str, int]


@dataclass(frozen=True, slots=True)
class Recurrences:
    """Most often blamed first. left_out: incidents beyond the newest INCIDENTS_MAX, of which nothing is counted, and places."""

    since: str
    rows: list[Recurrence]
    n_incidents: int
    left_out: int


Place = tuple[str, str, str]


def read_recurrences(team_ids: Sequence[int], days: int, nodes: Sequence[str] | None = None) -> Recurrences:
    """nodes: only places on these."""
    since = timezone.now() - timedelta(days=min(days, DAYS_MAX))
    blamed = Incident.objects.filter(team__in=team_ids, opened_at__gte=since, n_culprits__gt=0).exclude(
        review=Alarm.FALSE
    )
    newest = list(blamed.order_by("-id")[:INCIDENTS_MAX])
    at: dict[Place, list[Incident]] = {}
    places = _places(newest)
    for incident in newest:
        kinds = OF_COMPONENT.get(incident.component, ("node", "gpu", "nic"))
        ran = [place for rank in incident.culprits for place in places.get((incident.attempt_id, rank), ())]
        mine = [place for place in ran if place[0] in kinds]
        mine += [("node", node, node) for node in incident.culprit_nodes]
        for place in dict.fromkeys(mine):
            at.setdefault(place, []).append(incident)
    rows = [_row(place, found) for place, found in at.items() if nodes is None or place[2] in nodes]
    rows.sort(key=lambda row: (-row.n_incidents, row.kind, row.name))
    left_out = blamed.count() - len(newest) + max(len(rows) - SHOWN_MAX, 0)
    return Recurrences(iso(since) or "", rows[:SHOWN_MAX], len(newest), left_out)


def _places(incidents: Sequence[Incident]) -> dict[tuple[int, int], list[Place]]:
    """(attempt, rank) → node, GPU and NIC it ran on."""
    attempts, ranks = {one.attempt_id for one in incidents}, {rank for one in incidents for rank in one.culprits}
    known = Rank.objects.filter(attempt__in=attempts, rank__in=ranks, replaced=False).order_by("-attempt")
    columns = known.values_list("attempt", "rank", "node__name", "local_rank", "gpu_uuid", "nic")[:RANKS_MAX]
    return {(attempt, rank): list(_of(node, local, gpu, nic)) for attempt, rank, node, local, gpu, nic in columns}


def _of(node: str, local_rank: int, gpu_uuid: str, nic: str) -> Iterator[Place]:
    yield "node", node, node
    if gpu_uuid or local_rank >= 0:
        yield "gpu", gpu_uuid or f"GPU {local_rank} of {node}", node
    if nic:
        yield "nic", f"{nic} of {node}", node


def _row(place: Place, found: Sequence[Incident]) -> Recurrence:
    kind, name, node = place
    days: dict[str, int] = {}
    for one in found:
        day = one.opened_at.astimezone(UTC).date().isoformat()
        days[day] = days.get(day, 0) + 1
    numbers = [one.pk for one in found]
    return Recurrence(kind, name, node, len(found), iso(found[0].opened_at) or "", numbers[:NUMBERS_SHOWN], days)
