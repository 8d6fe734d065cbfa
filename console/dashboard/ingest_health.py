"""How ingest is doing, for the Now page: who works, how fast, what was refused, lost or left out, and why.

What belongs to a team is read from the database. What a refused stranger sent belongs to nobody: the ingest processes
tell it on the roll, summed since each began. What nobody can say is None or "unknown", never nought.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Final

from django.core.cache import cache
from django.db.models import F, Sum

from console.dashboard.jobs import node_state, unheard_state
from console.incidents.live import IngestRow
from console.incidents.rows import iso
from console.incidents.streams import UNREACHABLE
from console.operations.alive import NOTE_SECONDS, Note, read_alive
from ingest.health import read_health
from ingest.models import Attempt, Node, Team
from ingest.traces.space import Space
from ingest.traces.stores import active_store
from nccl_instrument.tables import DATA_LOSSES

RATE_SAMPLE_SECONDS: Final = 3.0
PRESENT_SECONDS: Final = 2 * NOTE_SECONDS


def read_ingest_row(team: Team) -> IngestRow:
    """How ingest is doing for one team."""
    return _row([team])


def read_ingest_total(team_ids: Sequence[int]) -> IngestRow | None:
    """The same for several teams together; None for nobody's."""
    teams = list(Team.objects.filter(pk__in=team_ids))
    return _row(teams) if teams else None


def _row(teams: Sequence[Team]) -> IngestRow:
    nodes = list(Node.objects.filter(attempt__job__team__in=teams, attempt__state=Attempt.State.RUNNING))
    unheard = unheard_state()
    states = Counter(node_state(node, unheard) for node in nodes)
    notes, space = _notes(), read_health().space
    return IngestRow(
        store=active_store().name,
        disk=_disk(space),
        disk_says=space.says,
        processes=None if notes is None else len(_ingest(notes)),
        batches_per_s=_batches_per_s(teams, sum(node.batches for node in nodes)),
        nodes_reporting=states["reporting"],
        nodes_silent=states["silent"],
        nodes_catching_up=states["catching_up"],
        nodes_unheard=states["unheard"] + states["refused"],
        rows_dropped=sum(node.rows_dropped for node in nodes),
        batches_refused=sum(team.batches_refused for team in teams),
        requests_refused=_requests_refused(notes or ()),
        losses=_losses(nodes),
        strays=_strays(teams),
        counted_since=_counted_since(_ingest(notes or ())),
    )


def _notes() -> list[Note] | None:
    """Who said lately that it lives: stricter than the roll, so that a killed process is gone before its nodes are."""
    notes, now = read_alive(), time.time()
    return None if notes is None else [note for note in notes if now - note.at <= PRESENT_SECONDS]


def _ingest(notes: Sequence[Note]) -> list[Note]:
    return [note for note in notes if note.process == "ingest"]


def _counted_since(notes: Sequence[Note]) -> str | None:
    """When the youngest process began: what those before it refused went with them. None while there is none."""
    return iso(datetime.fromtimestamp(max(note.since for note in notes), UTC)) if notes else None


def _losses(nodes: Sequence[Node]) -> dict[str, int]:
    """Kind → count of what may be missing from windows, most first."""
    total: Counter[str] = Counter()
    for node in nodes:
        total.update({kind: int(n) for kind, n in node.losses.items() if kind in DATA_LOSSES})
    return dict(total.most_common())


def _requests_refused(notes: Sequence[Note]) -> dict[str, int]:
    """Status → requests refused by the processes that live, since each began."""
    total: Counter[str] = Counter()
    for note in notes:
        total.update(note.refused)
    return dict(sorted(total.items()))


def _strays(teams: Sequence[Team]) -> int:
    """Batches that living processes cut for attempts which a running one displaced: `read_strays`, for all jobs."""
    displaced = Node.objects.filter(
        attempt__job__team__in=teams,
        batches_after_end__gt=0,
        attempt__job__attempts__state=Attempt.State.RUNNING,
        attempt__job__attempts__number__gt=F("attempt__number"),
        attempt__ended_at__gte=F("attempt__job__attempts__started_at"),
    )
    return int(displaced.aggregate(n=Sum("batches_after_end"))["n"] or 0)


def _disk(space: Space) -> str:
    """ok, short (traces are refused), or unknown: the database is on a machine that nobody here can look at."""
    if space.is_short:
        return "short"
    return "unknown" if space.free_bytes is None else "ok"


def _batches_per_s(teams: Sequence[Team], total: int) -> float | None:
    """The rate since a sample some seconds ago, which is shared by all processes; None while there is none."""
    key, now = "ingest-rate:" + ",".join(str(team.pk) for team in sorted(teams, key=lambda team: team.pk)), time.time()
    try:
        held: Any = cache.get(key)
        at, before, rate = held or (0.0, total, None)
        if now - at >= RATE_SAMPLE_SECONDS:
            rate = round(max(total - before, 0) / (now - at), 1) if at else None
            cache.set(key, (now, total, rate), 60)
    except UNREACHABLE:
        return None
    return None if rate is None else float(rate)
