"""An incident's evidence for the page: the windows its grid, its lanes and who stood still are drawn from.

The traces around an incident are pinned, so the same pictures can be drawn when retention has dropped the rest. Only
the seconds and tables a picture needs are read.
"""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import Final

from django.utils import timezone

from console.incidents.models import ConditionState, Incident
from console.incidents.pictures import grid, lanes
from console.incidents.read import newest_revision
from console.incidents.rows import iso, iso_from_ns
from ingest.models import Attempt, Job, Node, Rank
from ingest.read import latest_data_ns, read_window
from rca.findings import Diagnosis, WaitEdge, diagnosis_from_json
from rca.hang.standing import TABLES as STANDING_TABLES
from rca.hang.standing import Standing, standing

SECOND: Final = 1_000_000_000
GRID_NS: Final = 5 * SECOND
LANES_BEFORE_NS: Final = 10 * SECOND
LANES_NS: Final = 60 * SECOND  # lanes.TICKS_MAX at ten ticks a second
RANKS_MAX: Final = 64
VICTIMS_SHOWN: Final = 8


def newest_diagnosis(incident: Incident) -> Diagnosis | None:
    revision = newest_revision(incident)
    return diagnosis_from_json(revision.body) if revision else None


def incident_grid(incident: Incident) -> grid.Grid:
    """The grid while the incident fires: now; afterwards: at the end of its pinned window."""
    if incident.condition == ConditionState.CLEAR:
        end_ns = incident.window_end_ns
        window = read_window(incident.attempt_id, end_ns - GRID_NS, end_ns, grid.TABLES, now_ns=end_ns)
        return grid.make_grid(
            window, newest_diagnosis(incident), iso_from_ns(end_ns) or "", racks=racks_of(incident.attempt_id)
        )
    return _grid_now(incident.attempt, newest_diagnosis(incident))


def job_grid(job: Job) -> grid.Grid:
    """The grid of the job's newest attempt now. Attempt.DoesNotExist when nothing was ever heard of it."""
    attempt = Attempt.objects.filter(job=job).latest("number")
    incident = Incident.objects.filter(attempt=attempt).exclude(condition=ConditionState.CLEAR).last()
    return _grid_now(attempt, newest_diagnosis(incident) if incident else None)


def unheard_ns(attempt: Attempt) -> int:
    """For how long nothing at all has been heard of an attempt that should be running."""
    if attempt.state != Attempt.State.RUNNING:
        return 0
    return max(int((timezone.now() - attempt.last_received_at).total_seconds() * SECOND), 0)


def _grid_now(attempt: Attempt, diagnosis: Diagnosis | None) -> grid.Grid:
    end_ns = latest_data_ns(attempt.pk) + 1
    window = read_window(attempt.pk, end_ns - GRID_NS, end_ns, grid.TABLES)
    return grid.make_grid(window, diagnosis, iso(timezone.now()) or "", unheard_ns(attempt), racks_of(attempt.pk))


def racks_of(attempt_id: int) -> dict[str, str]:
    """Where the attempt's nodes stand, of those that say so."""
    return dict(Node.objects.filter(attempt=attempt_id).exclude(rack="").values_list("name", "rack"))


def incident_lanes(
    incident: Incident,
    from_ns: int | None = None,
    to_ns: int | None = None,
    ranks: Sequence[int] = (),
    limit: int = lanes.LANES_MAX,
) -> lanes.Lanes:
    """Flow lanes of `ranks`, else of the culprits and the first victims, around the first symptom unless said.

    Only the nodes of these ranks are read, and no longer a time than lanes can show.
    """
    start_ns, end_ns, newest_ns = _times(incident, from_ns, to_ns)
    chosen = list(ranks) or interesting(newest_diagnosis(incident), incident.attempt_id)
    shown = chosen[:RANKS_MAX]
    window = read_window(incident.attempt_id, start_ns, end_ns, lanes.TABLES, ranks=shown)
    drawn = lanes.make_lanes(window, shown, incident.first_symptom_ns, incident.triggered_ns, limit)
    return dataclasses.replace(drawn, newest_ns=newest_ns, omitted=drawn.omitted + len(chosen) - len(shown))


def incident_standing(incident: Incident, from_ns: int | None = None, to_ns: int | None = None) -> Standing:
    """What each rank did in the time of the lanes: culprits and those near them first, then their nodes' ranks, then others.

    Whole nodes are read, so all ranks of a node that is read are shown; no more than RANKS_MAX ranks.
    """
    start_ns, end_ns, _ = _times(incident, from_ns, to_ns)
    diagnosis = newest_diagnosis(incident)
    chosen, n_ranks = _with_their_nodes(interesting(diagnosis, incident.attempt_id), incident.attempt_id)
    window = read_window(incident.attempt_id, start_ns, end_ns, STANDING_TABLES, ranks=chosen)
    drawn = standing(window, chosen, diagnosis.clocks if diagnosis else ())
    return dataclasses.replace(drawn, omitted=n_ranks - len(chosen))


def _times(incident: Incident, from_ns: int | None, to_ns: int | None) -> tuple[int, int, int]:
    """Start and end of what is shown, and the end of what is known."""
    start_ns = from_ns if from_ns is not None else incident.first_symptom_ns - LANES_BEFORE_NS
    newest_ns = latest_data_ns(incident.attempt_id) + 1
    end_ns = max(min(newest_ns if to_ns is None else to_ns, start_ns + LANES_NS), start_ns + 1)
    return start_ns, end_ns, max(newest_ns, end_ns)


def _with_their_nodes(first: list[int], attempt_id: int) -> tuple[list[int], int]:
    """`first`, then the other ranks of their nodes, then the rest, at most RANKS_MAX; and how many ranks the job has."""
    known = Rank.objects.filter(attempt=attempt_id, rank__gte=0, replaced=False).order_by("rank")
    node_of = dict(known.values_list("rank", "node_id"))
    theirs = {node_of[rank] for rank in first if rank in node_of}
    mates = [rank for rank, node in node_of.items() if node in theirs]
    ranks = list(dict.fromkeys([*first, *mates, *node_of]))
    return ranks[:RANKS_MAX], len(ranks)


def interesting(diagnosis: Diagnosis | None, attempt_id: int) -> list[int]:
    """Culprits, then of a tie who may be, then those who wait for them, of one communicator after the other, then other
    victims; without a diagnosis the first ranks.
    """
    if diagnosis is None:
        known = Rank.objects.filter(attempt=attempt_id, rank__gte=0, replaced=False).order_by("rank")
        return list(known.values_list("rank", flat=True).distinct()[:VICTIMS_SHOWN])
    suspects = diagnosis.suspects_in_order
    near = _by_turns(edge for edge in diagnosis.path if edge.waits_for in diagnosis.suspects)
    return list(dict.fromkeys([*suspects, *near, *diagnosis.victims]))[: len(suspects) + VICTIMS_SHOWN]


def _by_turns(edges: Iterable[WaitEdge]) -> list[int]:
    """Who waits: the first of each communicator, then the second of each. What a node's own ranks do, the network does not
    see: they alone would leave the lanes empty.
    """
    waiting: dict[int, list[int]] = defaultdict(list)
    for edge in edges:
        waiting[edge.comm_id].append(edge.waiter)
    return [one for turn in zip_longest(*waiting.values()) for one in turn if one is not None]
