"""Whether an incident is silenced, kept in its row: written where a silence begins, ends or runs out, and where what the
incident says of itself changes.

A silence is a timestamp beside the workflow: it moves no state and hides nothing, it only keeps from waking people.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from django.db.models import QuerySet

from console.incidents.models import Incident, State
from console.incidents.record import DETECTOR, Actor, record
from console.silences.matching import Matcher, fits, stored_matchers
from console.silences.models import Silence
from ingest.models import Node, Rank

MATTERS: Final = frozenset({"culprits", "culprit_nodes", "component", "symptom"})
NODES_MAX: Final = 64
SILENCES_MAX: Final = 200


def said_by(incident: Incident, job: str) -> dict[str, Sequence[str]]:
    """What matchers can be fitted to; nothing where it is not known."""
    return {
        "job": (job,),
        "node": incident.culprit_nodes if incident.nodes_known else (),
        "rack": _all_known(incident.culprit_racks) if incident.nodes_known else (),
        "cluster": _all_known(incident.clusters),
        "symptom": (incident.symptom,),
        "component": (incident.component,) if incident.component else (),
        "incident": (str(incident.pk),),
    }


def in_force(team_id: int, now: datetime) -> QuerySet[Silence]:
    """The team's silences of this moment, the one that lasts longest first."""
    found = Silence.objects.filter(team=team_id, starts_at__lte=now, ends_at__gt=now)
    return found.order_by("-ends_at", "id")[:SILENCES_MAX]


def settle(incident: Incident, now: datetime, actor: Actor = DETECTOR, why: str = "") -> None:
    """Make the row say what silences it now. Called with the row held; writes nothing when nothing changes."""
    if incident.state == State.RESOLVED and incident.silence_id is None:
        return
    wanted = covering(incident, in_force(incident.team_id, now))
    if says(incident, wanted):
        return
    if wanted is None:
        over = "It is resolved: nothing is left to silence." if incident.state == State.RESOLVED else ""
        note = why or over or "What silenced it no longer does."
        record(incident, actor, "unsilenced", {"silence": None, "silenced_until": None}, now, note=note)
        return
    fields: dict[str, Any] = {"silence": wanted, "silenced_until": wanted.ends_at}
    record(incident, actor, "silenced", fields, now, after=str(wanted.pk), note=silence_words(wanted))


def silence_words(silence: Silence) -> str:
    until = f"{silence.ends_at:%Y-%m-%d %H:%M} UTC"
    return f"{silence.kind.capitalize()} {silence.pk} of {silence.made_by} until {until}: {silence.reason}"


def placed(attempt_id: int, ranks: Sequence[int]) -> dict[str, Any]:
    """The columns that say where all these ranks run; not known when one has no node, or they are on too many nodes."""
    known = Rank.objects.filter(attempt=attempt_id, rank__in=ranks, replaced=False)
    where = set(known.values_list("rank", "node__name", "node__rack")) if ranks else set()
    nodes = sorted({node for _, node, _ in where})
    racks = sorted({rack for _, node, rack in where if node in nodes[:NODES_MAX]})
    are_all = {rank for rank, _, _ in where} == set(ranks) and len(nodes) <= NODES_MAX
    said = {"culprit_nodes": nodes[:NODES_MAX], "nodes_known": are_all, "culprit_racks": racks}
    return {**said, "clusters": clusters_of(attempt_id)}


def clusters_of(attempt_id: int) -> list[str]:
    """Where the attempt's nodes stand; "" is among them when a node does not say."""
    found = Node.objects.filter(attempt=attempt_id).order_by("cluster").values_list("cluster", flat=True).distinct()
    return list(found[:NODES_MAX])


def _all_known(places: Sequence[str]) -> Sequence[str]:
    """Nothing when one of them is not known."""
    return () if "" in places else places


def covering(incident: Incident, silences: Iterable[Silence]) -> Silence | None:
    """The first of them that covers the incident; what is resolved needs none."""
    if incident.state == State.RESOLVED:
        return None
    return next((one for one in silences if fits(matchers_of(one), said_by(incident, incident.job.name))), None)


def says(incident: Incident, silence: Silence | None) -> bool:
    """Whether the row already says that this is what silences it."""
    wanted = (silence.pk, silence.ends_at) if silence else (None, None)
    return wanted == (incident.silence_id, incident.silenced_until)


def matchers_of(silence: Silence) -> tuple[Matcher, ...]:
    return stored_matchers(silence.matchers)
