"""A person, or a script, asks for dumps by hand."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from django.core.cache import cache

from console.incidents import lifecycle
from console.incidents.lifecycle import Actor, BadAct, TooMany
from console.incidents.models import Incident
from ingest.door import dumps
from ingest.models import DumpRequest
from nccl_instrument.dumps import KINDS
from rca.words import capitalised, named

LOOKS: Final = 2
KEY_KEPT: Final = timedelta(minutes=10)


def ask_by_hand(
    attempt_id: int,
    actor: Actor,
    kinds: Sequence[str] | None,
    ranks: Sequence[int] | None,
    request_key: str = "",
    incident: Incident | None = None,
) -> DumpRequest:
    """Ask the attempt's nodes now; noted on the incident. A repeated key is the same request. Raises BadAct, TooMany."""
    key = f"dumps:{attempt_id}:{actor.kind}:{actor.id}:{request_key}"
    known = cache.get(key) if request_key else None
    if known is not None and (done := DumpRequest.objects.filter(pk=known, attempt=attempt_id).first()):
        return done
    try:
        made = dumps.ask_dumps(attempt_id, kinds or KINDS, ranks, looks=LOOKS, asked_by=actor.name)
    except dumps.TooSoon as error:
        raise TooMany(str(error)) from error
    except ValueError as error:
        raise BadAct(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
    if request_key:
        cache.set(key, made.pk, KEY_KEPT.total_seconds())
    if incident is not None:
        what = " and ".join(_NAMES[kind] for kind in made.kinds[::-1])
        of = "every rank" if made.ranks is None else named(made.ranks)
        lifecycle.remark(incident.pk, actor, "asked for dumps", capitalised(f"{what} of {of} were asked for."))
    return made


_NAMES: Final = {"stacks": "stacks", "recorder": "Flight Recorder dumps", "epochs": "bytes by epoch"}
