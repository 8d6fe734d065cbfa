"""Making and ending silences, and what one would cover before it is made.

A silence that begins, ends or runs out settles the rows of the incidents it concerns in the same call, so that a list, a
page and a worker never disagree on what is silenced. Each of those is an entry of the incident's timeline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet
from django.utils import timezone

from console.incidents.models import Incident, State
from console.incidents.record import DETECTOR, Actor, BadAct, TooMany, checked_note, stored_key
from console.incidents.silenced import covering, in_force, said_by, says, settle
from console.silences.matching import (
    PLACES,
    BadMatcher,
    Matcher,
    fits,
    matchers_to_json,
    read_matchers,
    stored_matchers,
)
from console.silences.models import Kind, Silence

MINUTES_MAX: Final = 30 * 24 * 60
AHEAD_MAX: Final = timedelta(days=365)
BEHIND_MAX: Final = timedelta(minutes=15)  # so long a form may have lain open
IN_FORCE_MAX: Final = 200
CONCERNED_MAX: Final = 2000  # of a preview
PAGE_SIZE: Final = 500
LOOKED_BACK: Final = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a silence would cover: unresolved incidents now, and how many of the last week's; `checked`: of how many. left_out:
    unresolved ones, the oldest, that were not looked at."""

    words: str
    now: list[Incident]
    lately: int
    checked: int
    left_out: int


def preview_silence(team_id: int, raw: Any) -> Preview:
    """What matchers cover. Raises BadAct."""
    matchers = _matchers(raw)
    now = timezone.now()
    found = Incident.objects.filter(team=team_id).select_related("job", "attempt").order_by("-id")
    open_now = found.exclude(state=State.RESOLVED)
    unresolved = list(open_now[:CONCERNED_MAX])
    left_out = open_now.count() - len(unresolved) if len(unresolved) == CONCERNED_MAX else 0
    lately = list(found.filter(opened_at__gte=now - LOOKED_BACK)[:CONCERNED_MAX])
    n_lately = sum(fits(matchers, said_by(one, one.job.name)) for one in lately)
    covered = [one for one in unresolved if fits(matchers, said_by(one, one.job.name))]
    return Preview(words_of(matchers), covered, n_lately, len(lately), left_out)


def make_silence(
    team_id: int,
    actor: Actor,
    raw: Any,
    reason: str,
    minutes: int,
    *,
    starts_at: datetime | None = None,
    kind: str = Kind.SILENCE,
    request_key: str = "",
) -> Silence:
    """Silence what `raw` matches for so long. Repeated with its key it is the same silence. Raises BadAct, TooMany."""
    matchers, reason, now = _matchers(raw), checked_note(reason, needed=True), timezone.now()
    if not 1 <= minutes <= MINUTES_MAX:
        raise BadAct(f"A silence lasts 1 to {MINUTES_MAX} minutes, not {minutes}.")
    begins = max(starts_at or now, now)
    if begins > now + AHEAD_MAX:
        raise BadAct(f"A silence begins within {AHEAD_MAX.days} days.")
    if kind == Kind.MAINTENANCE and not any(one.field in PLACES and one.names_something for one in matchers):
        raise BadAct("A maintenance names the nodes, racks or clusters that are worked on.")
    key = stored_key(actor, f"{team_id}:{request_key}" if request_key else "")
    if key and (done := Silence.objects.filter(request_key=key).first()):
        return done
    if starts_at is not None and starts_at < now - BEHIND_MAX:
        raise BadAct("That beginning lies in the past: leave it out for a silence that begins now.")
    if Silence.objects.filter(team=team_id, ends_at__gt=now).count() >= IN_FORCE_MAX:
        raise TooMany(f"At most {IN_FORCE_MAX} silences at a time: end one that is not needed any more.")
    try:
        with transaction.atomic():
            made = Silence.objects.create(
                team_id=team_id, kind=kind, matchers=matchers_to_json(matchers), reason=reason, starts_at=begins,
                ends_at=begins + timedelta(minutes=minutes), made_at=now, made_by=actor.name, made_by_kind=actor.kind,
                request_key=key,
            )  # fmt: skip
    except IntegrityError:  # the same request came twice at once
        return Silence.objects.get(request_key=key)
    settle_team(team_id, actor)
    return made


def end_silence(silence: Silence, actor: Actor) -> Silence:
    """End a silence now; one that is over stays as it is."""
    now = timezone.now()
    over = Silence.objects.filter(pk=silence.pk, ended_at=None, ends_at__gt=now)
    ends = {"starts_at": min(silence.starts_at, now), "ends_at": now, "ended_at": now, "ended_by": actor.name}
    if over.update(**ends):
        settle_team(silence.team_id, actor, f"{actor.name} ended silence {silence.pk}.")
    return Silence.objects.get(pk=silence.pk)


def settle_team(team_id: int, actor: Actor = DETECTOR, why: str = "") -> None:
    """Make the rows of all incidents a silence may concern say what silences them now. Only those that do not are held."""
    silences = list(in_force(team_id, timezone.now()))
    concerned = Incident.objects.filter(team=team_id).filter(~Q(state=State.RESOLVED) | Q(silence__isnull=False))
    for seen in _in_pages(concerned.select_related("job")):
        if not says(seen, covering(seen, silences)):
            _settle_one(seen.pk, actor, why)


def settle_due() -> None:
    """Where a silence has begun or run out since its incidents were last settled."""
    now = timezone.now()
    for seen in _in_pages(Incident.objects.filter(silenced_until__lte=now).only("pk")):
        _settle_one(seen.pk, DETECTOR, "Its silence ran out.")
    begun = Silence.objects.filter(starts_at__lte=now, ends_at__gt=now, settled_at=None)
    for team_id in set(begun.values_list("team_id", flat=True)):
        settle_team(team_id)
        begun.filter(team=team_id).update(settled_at=now)


def _settle_one(number: int, actor: Actor, why: str) -> None:
    with transaction.atomic():
        incident = Incident.objects.select_for_update(of=("self",)).select_related("job").get(pk=number)
        settle(incident, timezone.now(), actor, why)


def _in_pages(found: QuerySet[Incident]) -> Iterator[Incident]:
    """All of them by id, some at a time: what changes meanwhile moves none to another page."""
    last = 0
    while page := list(found.filter(pk__gt=last).order_by("pk")[:PAGE_SIZE]):
        yield from page
        last = page[-1].pk


def words_of(matchers: Sequence[Matcher]) -> str:
    return " and ".join(matcher.words for matcher in matchers)


def words_of_silence(silence: Silence) -> str:
    return words_of(stored_matchers(silence.matchers))


def _matchers(raw: Any) -> tuple[Matcher, ...]:
    try:
        return read_matchers(raw)
    except BadMatcher as error:
        raise BadAct(str(error)) from error
