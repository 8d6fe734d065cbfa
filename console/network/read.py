"""What the network tab reads: the bytes on the wire of one group of ranks, of a limited number of nodes and seconds.

A rank is in a handful of groups, a job in thousands: the tab begins with a rank, an incident's first culprit if there is one,
and shows one of its groups.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from console.incidents.models import ConditionState, Incident
from console.incidents.pictures.evidence import newest_diagnosis
from console.network import unfinished
from ingest.jobs.members import signed, unsigned
from ingest.models import Attempt, CommMember, Rank
from ingest.read import latest_data_ns, read_window
from ingest.window import Window
from rca.findings import SymptomKind

SECOND: Final = 1_000_000_000
BEFORE_NS: Final = 10 * SECOND
AFTER_NS: Final = 30 * SECOND
NEWEST_NS: Final = 30 * SECOND
NODES_MAX: Final = 64
ROWS_MAX: Final = 1_000_000
"""Of ops, NICs and bytes on the wire, about 150 MB in the web process: of jobs with more fewer nodes are read."""
GROUPS_MAX: Final = 32
TABLES: Final = ("op", "nic", "traffic")


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A communicator that the rank is in. comm_id: 16 hexadecimal digits. unfinished: its ops that do not end at this rank."""

    comm_id: str
    name: str
    n_ranks: int
    unfinished: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """Which time is read, and since when something was wrong in it (0: nothing is known to be). now_ns: up to when what does
    not end is asked for: the end of what is known while it goes on."""

    start_ns: int
    end_ns: int
    onset_ns: int
    now_ns: int = 0


def span_of(attempt: Attempt, incident: Incident | None) -> Span:
    """Around the incident's first symptom, else the newest seconds."""
    newest = latest_data_ns(attempt.pk)
    if incident is None:
        return Span(newest - NEWEST_NS, newest + 1, 0, newest + 1)
    onset = incident.first_symptom_ns
    end_ns = min(onset + AFTER_NS, max(newest, onset) + 1)
    is_over = incident.condition == ConditionState.CLEAR
    return Span(onset - BEFORE_NS, end_ns, onset, min(end_ns, incident.last_seen_ns + 1) if is_over else newest + 1)


def first_rank(attempt: Attempt, incident: Incident | None) -> int | None:
    """Whom the tab begins with; None for a job without known ranks."""
    if incident is not None and incident.suspects:
        return int(incident.suspects[0])
    found = (
        Rank.objects.filter(attempt=attempt, rank__gte=0, replaced=False)
        .order_by("rank")
        .values_list("rank", flat=True)
    )
    return found.first()


def verdict_group(incident: Incident | None) -> str:
    """The communicator in which ranks wait for the suspects of an incident that hangs, 16 hexadecimal digits; "" for none."""
    diagnosis = newest_diagnosis(incident) if incident is not None else None
    if diagnosis is None or diagnosis.symptom.kind != SymptomKind.FAILURE:
        return ""
    edges = [edge.comm_id for edge in diagnosis.path if edge.waits_for in diagnosis.suspects and edge.comm_id]
    found = Counter(edges or ([diagnosis.symptom.comm_id] if diagnosis.symptom.comm_id else []))
    return f"{found.most_common(1)[0][0]:016x}" if found else ""


def groups_of_rank(attempt: Attempt, rank: int) -> list[GroupRow]:
    """The communicators of the rank, the smaller ones first: the largest is usually the whole job's."""
    rows = (
        CommMember.objects.filter(process__attempt=attempt, process__rank=rank, process__replaced=False)
        .order_by("communicator__n_ranks", "communicator__name", "communicator__comm_id")
        .values_list("communicator__comm_id", "communicator__name", "communicator__n_ranks")
    )
    return [GroupRow(f"{unsigned(comm_id):016x}", name, n_ranks) for comm_id, name, n_ranks in rows[:GROUPS_MAX]]


def members_of(attempt: Attempt, comm_id: int) -> list[tuple[int, str]]:
    """(rank, node) of the communicator's members, by rank."""
    rows = CommMember.objects.filter(
        communicator__attempt=attempt, communicator__comm_id=signed(comm_id), process__replaced=False
    )
    return list(rows.order_by("process__rank").values_list("process__rank", "process__node__name"))


@dataclass(frozen=True, slots=True)
class Place:
    """A member of a communicator. place: its rank in it."""

    place: int
    rank: int
    node: str


def places_of(attempt: Attempt, comm_id: int) -> list[Place]:
    """The communicator's members by place: neighbours of a ring are beside each other in most."""
    rows = CommMember.objects.filter(
        communicator__attempt=attempt, communicator__comm_id=signed(comm_id), process__replaced=False
    )
    found = rows.order_by("comm_rank").values_list("comm_rank", "process__rank", "process__node__name")
    return [Place(*row) for row in found]


def nodes_read(members: list[tuple[int, str]], rank: int, n_max: int = NODES_MAX) -> list[str]:
    """The group's nodes, of more than n_max that of the rank and others evenly."""
    nodes = list(dict.fromkeys(node for _, node in members))
    if len(nodes) <= n_max:
        return nodes
    own = [node for of, node in members if of == rank]
    every = nodes[:: -(-len(nodes) // n_max)]
    return list(dict.fromkeys([*own, *every]))[:n_max]


def nodes_near(attempt: Attempt, rank: int, n_max: int = NODES_MAX) -> tuple[list[str], int]:
    """Nodes of the groups the rank is in, the smaller groups first, at most n_max; and how many the job has."""
    found: dict[str, None] = {}
    for group in groups_of_rank(attempt, rank):
        found.update(dict.fromkeys(nodes_read(members_of(attempt, int(group.comm_id, 16)), rank, n_max)))
        if len(found) >= n_max:
            break
    return list(found)[:n_max], attempt.nodes.count()


def own_window(attempt: Attempt, span: Span, rank: int) -> Window:
    """What the rank's own node alone says."""
    own = Rank.objects.filter(attempt=attempt, rank=rank, replaced=False).values_list("node__name", flat=True)
    return read_traffic(attempt, span, list(own))


def nodes_at_once(own: Window) -> int:
    """How many nodes that say as much as this one are read: at least its own, at most NODES_MAX."""
    n_rows = sum(len(own.rows(table)) for table in TABLES)
    return max(1, min(NODES_MAX, ROWS_MAX // max(n_rows, 1)))


def read_unfinished(attempt: Attempt, span: Span, nodes: list[str]) -> Window:
    """What these nodes are in the middle of."""
    return read_window(attempt.pk, span.now_ns - unfinished.HEARD_NS, span.now_ns, unfinished.TABLES, nodes=nodes)


def read_traffic(attempt: Attempt, span: Span, nodes: list[str]) -> Window:
    """Ops, NICs and bytes on the wire of these nodes."""
    return read_window(attempt.pk, span.start_ns, span.end_ns, TABLES, nodes=nodes)
