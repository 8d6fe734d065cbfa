"""What an incident's newest diagnosis tells somebody who reads it in a ticket: where the culprits run, why, what to do next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from console.incidents.models import Incident
from console.incidents.pictures.evidence import newest_diagnosis
from ingest.models import Rank
from rca.findings import Evidence

PLACES_MAX: Final = 4
EVIDENCE_MAX: Final = 3
EVIDENCE_CHARS_MAX: Final = 200
ADVICE_CHARS_MAX: Final = 1500


def known_of(incident: Incident) -> dict[str, Any]:
    """places, evidence and advice of a Message; nothing of them while nobody is named."""
    diagnosis = newest_diagnosis(incident)
    finding = diagnosis.findings[0] if diagnosis and diagnosis.findings else None
    if finding is None:
        return {}
    return {
        "places": tuple(_places(incident, finding.culprits or tuple(sorted(finding.suspects)))),
        "evidence": tuple(_fact(one)[:EVIDENCE_CHARS_MAX] for one in finding.evidence[:EVIDENCE_MAX]),
        "advice": " ".join(finding.advice.split())[:ADVICE_CHARS_MAX],
    }


def _places(incident: Incident, ranks: tuple[int, ...]) -> Iterator[str]:
    shown = Rank.objects.filter(attempt=incident.attempt_id, rank__in=ranks[:PLACES_MAX], replaced=False)
    for rank, *place in shown.order_by("rank").values_list("rank", "node__name", "gpu_bus_id", "nic", "pid"):
        named = zip(("", "GPU ", "NIC ", "process "), place, strict=True)
        yield f"rank {rank}: " + ", ".join(f"{what}{value}" for what, value in named if value)
    if len(ranks) > PLACES_MAX:
        yield f"and {len(ranks) - PLACES_MAX} more"


def _fact(one: Evidence) -> str:
    whose = "" if one.rank is None else f" (rank {one.rank})"
    return f"{one.what}: {one.value} {one.unit}".rstrip() + whose
