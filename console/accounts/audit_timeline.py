"""Acts on incidents that came over no request: of other systems through a destination, and of the console itself.

Hears of every entry of a timeline, in the transaction that writes it. What people and scripts do is noted with their request.
"""

from __future__ import annotations

from typing import Final

from console.accounts.audit import note
from console.accounts.models import AuditEntry
from console.incidents.models import ActorKind, Incident, TimelineEntry

KINDS: Final = {ActorKind.TICKET: AuditEntry.Kind.TICKET, ActorKind.DETECTOR: AuditEntry.Kind.SYSTEM}
OF_THE_SYSTEM: Final = frozenset({"opened", "resolved", "reopened", "unacknowledged"})
"""What the console does in people's stead; what it finds out stands in the timelines alone."""


def note_entry(incident: Incident, entry: TimelineEntry) -> None:
    kind = KINDS.get(ActorKind(entry.actor_kind))
    if kind is None or (kind == AuditEntry.Kind.SYSTEM and entry.verb not in OF_THE_SYSTEM):
        return
    note(
        kind,
        entry.actor,
        f"{entry.verb} incident {incident.pk}",
        subject=f"incidents/{incident.pk}",
        team_ids=[incident.team_id],
    )
