"""One act on many incidents: each for itself, so that one that cannot be moved keeps none of the others from it.

The same key makes a repeated request the same acts, incident by incident: who lost the answer half-way asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from console.accounts.access import Caller
from console.incidents import lifecycle
from console.incidents.acts import handling
from console.incidents.models import Incident
from console.incidents.record import Actor, BadAct, Seen, StaleVersion

TARGETS_MAX: Final = 200
Act = Callable[[int, Seen], tuple[Incident, Any]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one of them: `incident` as it is now, None when there is none; `error` and `code` when refused."""

    number: int
    incident: Incident | None
    code: str = ""
    error: str = ""


def act_on_many(
    caller: Caller, actor: Actor, verb: str, targets: Sequence[tuple[int, int | None]], given: dict[str, Any], key: str
) -> list[Outcome]:
    """`targets`: (number, the version seen or None). Raises BadAct when the act itself cannot be understood."""
    if not 1 <= len(targets) <= TARGETS_MAX:
        raise BadAct(f"1 to {TARGETS_MAX} incidents at once.")
    acts = _acts(actor, given, key)
    if verb not in acts:
        raise BadAct(f"What can be done to many at once: {', '.join(acts)}.")
    lifecycle.checked_note(given.get("note", ""), needed=verb in ("resolve", "comment"))
    numbers = [number for number, _ in targets]
    teams = dict(Incident.objects.filter(pk__in=numbers, team__in=caller.team_ids).values_list("pk", "team_id"))
    asked = dict(targets)
    return [_act_on_one(caller, verb, number, asked[number], teams.get(number), acts[verb]) for number in asked]


def _act_on_one(caller: Caller, verb: str, number: int, version: int | None, team_id: int | None, act: Act) -> Outcome:
    if team_id is None:
        return Outcome(number, None, "not_found", "There is nothing here, or it belongs to another team.")
    if not caller.may(verb, team_id):
        return Outcome(number, _now(number), "forbidden", "Your role does not allow this.")
    try:
        act(number, Seen(version))
    except StaleVersion as error:
        return Outcome(number, _now(number), "stale_version", str(error))
    except lifecycle.IllegalMove as error:
        return Outcome(number, _now(number), "illegal_move", str(error))
    except BadAct as error:
        return Outcome(number, _now(number), "bad_act", str(error))
    except Incident.DoesNotExist:
        return Outcome(number, _now(number), "not_found", "There is no such root in this team.")
    return Outcome(number, _now(number))


def _now(number: int) -> Incident:
    return Incident.objects.select_related("job", "attempt").get(pk=number)


def _acts(actor: Actor, given: dict[str, Any], key: str) -> dict[str, Act]:
    """Verb → what it does to one of them."""
    note = lifecycle.checked_note(given.get("note", ""), needed=False)

    def moves(verb: str) -> Act:
        minutes = given.get("minutes")
        return lambda number, seen: lifecycle.move(
            number, verb, actor, seen=seen, note=note, minutes=minutes, request_key=key
        )

    return {
        **{verb: moves(verb) for verb in lifecycle.MOVES},
        "comment": lambda number, seen: lifecycle.comment(number, actor, note, key),
        "assign": lambda number, seen: handling.assign(
            number, actor, given.get("assignee", ""), seen=seen, note=note, request_key=key
        ),
        "attach": lambda number, seen: handling.attach(
            number, actor, given.get("root") or 0, seen=seen, note=note, request_key=key
        ),
        "detach": lambda number, seen: handling.detach(number, actor, seen=seen, note=note, request_key=key),
    }
