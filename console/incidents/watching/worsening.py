"""When an acknowledged incident has become so much worse that somebody must look again.

Who acknowledged a straggler of two ranks has not seen the hang of two hundred. Compared is the worst symptom, and how many
ranks are concerned (suspects and victims). The first diagnosis is no worsening: until then nobody knew the reach. Nor has who
acknowledged one rank's trouble seen that of another, which began in the same incident after the first was over.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from django.conf import settings

from console.incidents.models import Certainty, Incident, State
from console.incidents.severity import rank_of
from rca.words import named

SECOND: Final = 1_000_000_000


def reach_of(incident: Incident, fields: Mapping[str, Any] | None = None) -> int:
    """How many ranks are concerned, `fields` included; 0 while nobody can say."""
    now = fields or {}
    if now.get("certainty", incident.certainty) != Certainty.DIAGNOSED:
        return 0
    return int(now.get("n_suspects", incident.n_suspects)) + int(now.get("n_victims", incident.n_victims))


def acknowledged_marks(incident: Incident) -> dict[str, Any]:
    """What an acknowledgement is compared with from now on."""
    return {"acknowledged_reach": reach_of(incident), "acknowledged_severity": incident.severity}


def why_worse(incident: Incident) -> str:
    """In what an acknowledged incident is much worse than when it was acknowledged, in words; '' when it is not."""
    if incident.state != State.ACKNOWLEDGED or not incident.acknowledged_severity:
        return ""
    if rank_of(incident.severity) > rank_of(incident.acknowledged_severity):
        return f"It got worse: {incident.severity} severity instead of {incident.acknowledged_severity}."
    then, now = incident.acknowledged_reach, reach_of(incident)
    has_spread = now >= settings.WORSE_FACTOR * then and now - then >= settings.WORSE_RANKS_MIN
    if then and has_spread:
        return f"It got worse: {now} ranks are concerned instead of {then}."
    return _why_another(incident)


def _why_another(incident: Incident) -> str:
    """That an acknowledged incident is about other culprits now than then, in words, where the trouble itself began since."""
    acknowledged_at = incident.acknowledged_at
    if (
        acknowledged_at is None
        or incident.first_symptom_ns <= acknowledged_at.timestamp() * SECOND
        or not incident.culprits
    ):
        return ""
    known = incident.revisions.filter(at__lte=acknowledged_at).order_by("-number").first()
    if known is None or not known.culprits or set(known.culprits) & set(incident.culprits):
        return ""
    return f"It is another trouble: {named(incident.culprits)} instead of {named(known.culprits)}."


def baseline(incident: Incident) -> dict[str, Any]:
    """The reach to compare with, once the first diagnosis after the acknowledgement tells it."""
    reach = reach_of(incident)
    is_first = incident.state == State.ACKNOWLEDGED and not incident.acknowledged_reach and reach
    return {"acknowledged_reach": reach} if is_first else {}
