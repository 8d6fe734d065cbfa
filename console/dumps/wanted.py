"""Asking the nodes for dumps when an incident opens, so that they are taken while the job still stands still.

Through ingest's own verb. A request that is refused, because another was made just now, is made at a later look for as long as
the trouble lasts. Which requests are an incident's: those asked since it began, or shortly before.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from console.incidents import lifecycle
from console.incidents.models import Incident
from console.incidents.watching.graver import BEGAN_ANEW
from ingest.door import dumps
from ingest.models import Attempt, DumpRequest, Rank
from nccl_instrument.dumps import EPOCHS, RECORDER, STACKS
from rca.findings import SymptomKind

BEFORE: Final = timedelta(seconds=60)
"""An incident that opens so soon after a request uses what that brings."""
LOOKS: Final = 2
_ASKED: Final = {
    (STACKS,): "Stacks of every rank were asked for.",
    (STACKS, RECORDER): "Stacks and Flight Recorder dumps of every rank were asked for.",
    (STACKS, EPOCHS): "Stacks of every rank and the bytes it sent, epoch by epoch, were asked for.",
}


EPOCHS_RANKS_MAX: Final = 512
"""Of larger jobs nobody fetches the epochs of every rank unasked: that is a megabyte each, from all nodes at once."""


def kinds_for(symptom: str, n_ranks: int) -> tuple[str, ...]:
    """What tells more of such a symptom: ops in progress are the recorder's; of a slow or idle job stacks say what it does,
    and of a slow one what its NICs sent when."""
    if symptom == SymptomKind.STRAGGLER and n_ranks <= EPOCHS_RANKS_MAX:
        return (STACKS, EPOCHS)
    return (STACKS,) if symptom in (SymptomKind.STRAGGLER, SymptomKind.IDLE) else (STACKS, RECORDER)


def ask_for(incident: Incident) -> DumpRequest | None:
    """Ask once for what the incident needs; None when it was asked for already, or cannot be now."""
    kinds = kinds_for(incident.symptom, Rank.objects.filter(attempt=incident.attempt_id, replaced=False).count())
    if any(set(kinds) <= set(one.kinds) for one in asked_since(incident.attempt_id, began_at(incident) - BEFORE)):
        return None
    request = ask_quietly(incident.attempt_id, kinds)
    if request is not None:
        lifecycle.remark(incident.pk, lifecycle.DETECTOR, "asked for dumps", _ASKED[kinds])
    return request


def ask_quietly(attempt_id: int, kinds: tuple[str, ...]) -> DumpRequest | None:
    """Ask the nodes; None when that cannot be now."""
    try:
        return dumps.ask_dumps(attempt_id, kinds, looks=LOOKS)
    except (dumps.TooSoon, ValueError, Attempt.DoesNotExist):
        return None


def began_at(incident: Incident) -> datetime:
    """When what fires now began to: the same incident may have fired before, or for less, and its dumps then tell nothing of
    now."""
    anew = incident.timeline.filter(verb__in=BEGAN_ANEW).order_by("-id").first()
    return anew.at if anew is not None else incident.opened_at


def asked_since(attempt_id: int, since: datetime) -> list[DumpRequest]:
    """Requests of the attempt, newest first."""
    return [one for one in dumps.requests_of(attempt_id) if one.asked_at >= since]


def requests_for(incident: Incident) -> list[DumpRequest]:
    """All requests that belong to the incident, newest first: up to where the attempt's next incident begins."""
    following = Incident.objects.filter(attempt=incident.attempt_id, opened_at__gt=incident.opened_at)
    later = following.order_by("opened_at").first()
    found = asked_since(incident.attempt_id, incident.opened_at - BEFORE)
    return found if later is None else [one for one in found if one.asked_at < later.opened_at - BEFORE]
