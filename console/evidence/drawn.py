"""An incident's pictures, drawn from what is stored of it: the grid, who waits for whom, who stood still, the lanes of flows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Final

from console.evidence.grid_picture import grid_svg
from console.evidence.lanes_picture import lanes_svg
from console.evidence.standing_picture import standing_svg
from console.evidence.svg import moments
from console.evidence.waits_picture import waits_svg
from console.incidents.lifecycle import BadAct
from console.incidents.models import Incident
from console.incidents.pictures.evidence import incident_grid, incident_lanes, incident_standing, newest_diagnosis
from ingest.models import Rank

TITLE_CHARS_MAX: Final = 160


@dataclass(frozen=True, slots=True)
class Drawing:
    """One picture. svg: empty where it could not be drawn, with the reason; left_out: what had no room in it."""

    name: str
    svg: str
    why: str = ""
    left_out: str = ""


def drawings(incident: Incident, names: Collection[str] | None = None) -> Iterator[Drawing]:
    """One after the other; one that cannot be drawn (a job too large for a window, no traces) leaves the others be."""
    title = f"Incident {incident.pk}: {incident.headline}"[:TITLE_CHARS_MAX]
    for name, draw in DRAWN.items():
        if names is not None and name not in names:
            continue
        try:
            yield draw(name, incident, title)
        except BadAct as error:
            yield Drawing(name, "", str(error))


def _topology(name: str, incident: Incident, title: str) -> Drawing:
    return Drawing(name, grid_svg(incident_grid(incident), title))


def _waits(name: str, incident: Incident, title: str) -> Drawing:
    diagnosis = newest_diagnosis(incident)
    return (
        Drawing(name, "", "there is no diagnosis yet")
        if diagnosis is None
        else Drawing(name, waits_svg(diagnosis, title))
    )


def _flows(name: str, incident: Incident, title: str) -> Drawing:
    lanes = incident_lanes(incident)
    svg, n_folded = lanes_svg(lanes, newest_diagnosis(incident), title, _nodes(incident))
    left = f"{lanes.omitted + n_folded:,} flows or ranks" if lanes.omitted + n_folded else ""
    return Drawing(name, svg, left_out=left)


def _standing(name: str, incident: Incident, title: str) -> Drawing:
    standing, diagnosis = incident_standing(incident), newest_diagnosis(incident)
    left = f"{standing.omitted:,} ranks" if standing.omitted else ""
    shared = moments(diagnosis, incident.first_symptom_ns, incident.triggered_ns)
    return Drawing(name, standing_svg(standing, diagnosis, title, _nodes(incident), shared), left_out=left)


def _nodes(incident: Incident) -> dict[int, str]:
    """rank → its node's name, where that is known."""
    known = Rank.objects.filter(attempt=incident.attempt_id, rank__gte=0, replaced=False)
    return {rank: name for rank, name in known.values_list("rank", "node__name") if name}


DRAWN: Final[dict[str, Callable[[str, Incident, str], Drawing]]] = {
    "topology": _topology, "waits": _waits, "flows": _flows, "standing": _standing,
}  # fmt: skip
