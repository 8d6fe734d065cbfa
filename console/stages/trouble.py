"""When incidents saw a job stand or go slowly: windows of stages of that time are not its normal.

An incident keeps when its newest bout began; of those before it the timeline tells, by the server's clock.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from django.db.models import QuerySet

from console.incidents.models import ConditionState, Incident, TimelineEntry
from console.incidents.watching.graver import GOT_WORSE
from rca.findings import SymptomKind
from rca.settings import SECOND_NS

KINDS: Final = (SymptomKind.FAILURE.value, SymptomKind.STRAGGLER.value, SymptomKind.IDLE.value)
BEGINS: Final = ("opened", "fired again", "reopened", GOT_WORSE)
ENDS: Final = (ConditionState.CLEAR.value, "resolved")
BEFORE_NS: Final = 60 * SECOND_NS
"""So long before its incident a trouble may have begun, of a bout of which no more is known."""
BOUTS_MAX: Final = 50
ENTRIES_MAX: Final = 2000  # of timelines: the time before the oldest that is read is one bout

Bout = tuple[int, int]


def bouts_of(attempt_id: int, since_ns: int) -> list[Bout]:
    """[first, last] unix ns of at most BOUTS_MAX bouts that began after since_ns, oldest first; those that overlap are one, and
    of more the oldest are."""
    incidents = Incident.objects.filter(attempt=attempt_id, symptom__in=KINDS)
    newest = incidents.values_list("first_symptom_ns", "last_seen_ns")
    found = _joined(sorted(bout for bout in (*_earlier(incidents, since_ns), *newest) if bout[0] > since_ns))
    old = found[: max(len(found) - BOUTS_MAX + 1, 0)]
    joined = [(old[0][0], max(last for _, last in old))] if old else []
    return [*joined, *found[len(old) :]]


def _joined(bouts: list[Bout]) -> list[Bout]:
    """Sorted bouts, those that overlap as one."""
    found = bouts[:1]
    for first_ns, last_ns in bouts[1:]:
        if first_ns <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last_ns))
        else:
            found.append((first_ns, last_ns))
    return found


def _earlier(incidents: QuerySet[Incident], since_ns: int) -> list[Bout]:
    """Their bouts that have ended, as the timelines tell them. What got worse ends one and begins one, unless nothing but an
    agent was lost before."""
    entries = TimelineEntry.objects.filter(incident__in=incidents, verb__in=(*BEGINS, *ENDS)).order_by("-id")
    told = list(entries.values_list("incident_id", "verb", "at", "incident__key")[:ENTRIES_MAX])[::-1]
    is_cut = len(told) == ENTRIES_MAX
    found, began_ns = [(since_ns + 1, _ns(told[0][2]))] if is_cut else list[Bout](), dict[int, int]()
    for incident, verb, at, key in told:
        at_ns = _ns(at)
        if verb in (*ENDS, GOT_WORSE) and incident in began_ns:
            before_ns = began_ns.pop(incident)
            if verb != GOT_WORSE or f":{SymptomKind.SILENCE}:" not in key:
                found.append((before_ns - BEFORE_NS, at_ns))
        if verb in BEGINS:
            began_ns.setdefault(incident, at_ns)
    return found


def _ns(at: datetime) -> int:
    return int(at.timestamp() * SECOND_NS)
