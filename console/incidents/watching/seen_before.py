""" "Seen before": earlier incidents of the team whose culprits sat where this one's sit.

A GPU, a NIC or a node that was blamed last week is suspect before any rule has run, also in another job. Compared is what
stays with the machine: the node's name, the GPU's number on it (or its own identity, wherever it was moved to), the
NIC's name. Every query is bounded.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from django.db.models import Exists, OuterRef, Q, QuerySet

from console.incidents.models import Incident
from console.incidents.rows import iso
from ingest.models import Rank

LOOKED_BACK: Final = timedelta(days=30)
EARLIER_MAX: Final = 200
SHOWN_MAX: Final = 20
PLACES_MAX: Final = 20_000
NO_RANK: Final = -1


@dataclass(frozen=True, slots=True)
class SeenBefore:
    """An earlier incident. what: what its culprits share with this one's, the smallest part first. ranks: those of then."""

    incident: int
    at: str
    what: str
    ranks: list[int]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank ran; local_rank is -1, texts are empty where unknown."""

    rank: int
    node: str
    local_rank: int
    gpu_uuid: str
    nic: str


def read_seen_before(incident: Incident) -> list[SeenBefore]:
    """Newest first, at most SHOWN_MAX; [] while nobody is blamed."""
    mine = list(_places([incident.attempt_id], incident.culprits).get(incident.attempt_id, []))
    mine += _beyond(incident, mine)
    if not mine:
        return []
    earlier = list(_candidates(incident, mine))
    culprits = {rank for one in earlier for rank in one.culprits}
    places = _places({one.attempt_id for one in earlier}, culprits)
    found = []
    for one in earlier:
        then = [place for place in places.get(one.attempt_id, []) if place.rank in one.culprits]
        then += _beyond(one, then)
        if (what := _shared(mine, then)) is not None:
            found.append(SeenBefore(one.pk, iso(one.opened_at) or "", *what))
    return found[:SHOWN_MAX]


def _beyond(incident: Incident, known: Sequence[Place]) -> list[Place]:
    """Nodes of culprits that an incident has more of than it keeps, as of a whole rack: of these no rank is told."""
    if incident.n_culprits <= len(incident.culprits):
        return []
    told = {place.node for place in known}
    return [Place(NO_RANK, node, -1, "", "") for node in incident.culprit_nodes if node not in told]


def _candidates(incident: Incident, mine: Sequence[Place]) -> QuerySet[Incident]:
    """The newest earlier incidents with a culprit, of attempts that ran on these nodes or with these GPUs."""
    nodes, gpus = {place.node for place in mine}, {place.gpu_uuid for place in mine if place.gpu_uuid}
    there = Rank.objects.filter(Q(node__name__in=nodes) | Q(gpu_uuid__in=gpus), attempt=OuterRef("attempt"))
    since = incident.opened_at - LOOKED_BACK
    earlier = Incident.objects.filter(team=incident.team_id, pk__lt=incident.pk, opened_at__gte=since, n_culprits__gt=0)
    return earlier.filter(Exists(there)).order_by("-id")[:EARLIER_MAX]


def _places(attempts: Collection[int], ranks: Collection[int]) -> dict[int, list[Place]]:
    """Attempt → where these ranks ran in it."""
    known = Rank.objects.filter(attempt__in=attempts, rank__in=ranks, replaced=False).order_by("attempt", "rank")
    columns = known.values_list("attempt", "rank", "node__name", "local_rank", "gpu_uuid", "nic")
    found: dict[int, list[Place]] = {}
    for attempt, rank, node, local_rank, gpu_uuid, nic in columns[:PLACES_MAX]:
        found.setdefault(attempt, []).append(Place(rank, node, local_rank, gpu_uuid, nic))
    return found


def _shared(mine: Sequence[Place], then: Sequence[Place]) -> tuple[str, list[int]] | None:
    """What the places of now and then share, in words, and the ranks of then; None when nothing."""
    gpus: dict[str, None] = {}
    nics: dict[str, None] = {}
    nodes: dict[str, None] = {}
    ranks = set()
    for now in mine:
        for was in then:
            if not _is_near(now, was):
                continue
            ranks.update({was.rank} - {NO_RANK})
            if _is_same_gpu(now, was):
                moved = f", then in {was.node}" if was.node != now.node else ""
                gpus[f"GPU {now.local_rank if now.local_rank >= 0 else now.gpu_uuid} of {now.node}{moved}"] = None
            if now.node == was.node and now.nic and now.nic == was.nic:
                nics[f"NIC {now.nic} of {now.node}"] = None
            if now.node == was.node:
                nodes[f"node {now.node}"] = None
    parts = [*gpus, *nics] or [*nodes]
    return (", ".join(parts[:4]), sorted(ranks)) if parts else None


def _is_near(now: Place, was: Place) -> bool:
    return now.node == was.node or _is_same_gpu(now, was)


def _is_same_gpu(now: Place, was: Place) -> bool:
    """By its own identity where both tell it, else by its number on the node."""
    if now.gpu_uuid and was.gpu_uuid:
        return now.gpu_uuid == was.gpu_uuid
    return now.node == was.node and now.local_rank >= 0 and now.local_rank == was.local_rank
