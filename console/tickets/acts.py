"""What people do with destinations and deliveries: make, change, remove, test, replay."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from django.db import IntegrityError, transaction
from django.utils import timezone

from console.incidents.lifecycle import Actor, BadAct, Seen, TooMany
from console.incidents.models import ActorKind
from console.incidents.record import UNSEEN
from console.tickets.destinations import KINDS, parted
from console.tickets.message import Config, Refused
from console.tickets.models import Delivery, DeliveryState, Destination, DestinationChange
from console.tickets.promises import put, tell_of_the_open
from console.tickets.sealing import Unreadable, is_newest, seal, unseal
from console.tickets.templates import BODY_CHARS_MAX, TITLE_CHARS_MAX, check_template

DESTINATIONS_MAX: Final = 50
TESTS_WAITING_MAX: Final = 3
CHANGES_TOLD_MAX: Final = 20
SWITCHED_OFF: Final = "The destination is switched off."
SAME_NAME: Final = "The team has a destination of this name."
SIMPLE: Final = ("name", "severity_min", "title_template", "body_template", "enabled")
CHANGED: Final = (
    "name", "settings", "sealed", "severity_min", "title_template", "body_template", "enabled", "paused_why", "not_before",
    "n_failures",
)  # fmt: skip


class ChangedMeanwhile(Exception):
    """Somebody changed the destination since it was seen; `changes` say who and what, newest first."""

    def __init__(self, destination: Destination, changes: list[DestinationChange]) -> None:
        who = changes[0].actor if changes else "somebody"
        super().__init__(f"{destination.name} was changed by {who} since you saw it: look at it again.")
        self.changes = changes


def make_destination(
    team_id: int,
    name: str,
    kind: str,
    given: Mapping[str, str],
    made_by: str,
    severity: str,
    actor_kind: ActorKind = ActorKind.USER,
    templates: Mapping[str, str] | None = None,
    request_key: str = "",
) -> Destination:
    """A new destination of the team. Repeated with its key (stored_key) it is the same one. Raises BadAct for settings it does
    not take, TooMany.
    """
    if request_key and (done := Destination.objects.filter(request_key=request_key).first()):
        return done
    if kind not in KINDS:
        raise BadAct(f"A kind is one of {', '.join(KINDS)}.")
    if Destination.objects.filter(team=team_id, removed_at=None).count() >= DESTINATIONS_MAX:
        raise TooMany(f"A team has at most {DESTINATIONS_MAX} destinations.")
    destination = Destination(
        team_id=team_id, name=name.strip(), kind=kind, made_by=made_by, severity_min=severity, request_key=request_key
    )
    _put_settings(destination, given, Config(str(destination.key), {}, {}))
    check_templates(templates or {})
    destination.title_template = (templates or {}).get("title_template", "")
    destination.body_template = (templates or {}).get("body_template", "")
    try:
        with transaction.atomic():
            destination.save()
            _note(destination, Actor(made_by, actor_kind), DestinationChange.Act.MADE, sorted(given))
            tell_of_the_open(destination, timezone.now())
    except IntegrityError as error:
        if request_key and (done := Destination.objects.filter(request_key=request_key).first()):
            return done  # the same request came twice at once
        raise BadAct(SAME_NAME) from error
    return destination


def change_destination(
    destination: Destination, changes: Mapping[str, Any], actor: Actor, seen: Seen = UNSEEN
) -> Destination:
    """`changes`: any of name, settings, severity_min, enabled and the two templates. An empty secret keeps the old one.

    ChangedMeanwhile when anybody changed it since it was `seen`. DoesNotExist when it was removed meanwhile: nothing brings a
    removed one and its secrets back.
    """
    try:
        with transaction.atomic():
            held = _held(destination, seen)
            before = _shown(held)
            _put(held, changes)
            held.save(update_fields=CHANGED)
            _note(held, actor, DestinationChange.Act.CHANGED, _differing(before, held, changes))
    except IntegrityError as error:
        raise BadAct(SAME_NAME) from error
    return held


def _held(destination: Destination, seen: Seen) -> Destination:
    """The row as it is now, locked. Raises DoesNotExist when it was removed, ChangedMeanwhile."""
    found: Destination = Destination.objects.select_for_update(no_key=True).get(pk=destination.pk, removed_at=None)
    if seen.version is not None and version_of(found.pk) != seen.version:
        newer = found.changes.filter(pk__gt=seen.version).order_by("-pk")
        raise ChangedMeanwhile(found, list(newer[:CHANGES_TOLD_MAX]))
    return found


def version_of(destination_id: int) -> int:
    """The number of its newest change, by a person, a script or the sender that switched it off; 0 before the first."""
    newest = DestinationChange.objects.filter(destination=destination_id).order_by("-pk").values_list("pk", flat=True)
    return newest.first() or 0


def _put(destination: Destination, changes: Mapping[str, Any]) -> None:
    if "settings" in changes:
        _put_settings(destination, changes["settings"], _kept(destination, changes["settings"]))
    with suppress(Unreadable):  # who switches it off need not have the key
        _reseal(destination)
    check_templates(changes)
    for name in SIMPLE:
        if name in changes:
            setattr(destination, name, changes[name])
    if destination.enabled:  # whoever changes it has repaired it: try at once
        destination.paused_why, destination.not_before, destination.n_failures = "", None, 0


def check_templates(changes: Mapping[str, Any]) -> None:
    """Raises BadAct for a template that names what there is not."""
    try:
        check_template("title", changes.get("title_template", ""), TITLE_CHARS_MAX)
        check_template("body", changes.get("body_template", ""), BODY_CHARS_MAX)
    except Refused as error:
        raise BadAct(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error


def _shown(destination: Destination) -> dict[str, Any]:
    shown = {name: getattr(destination, name) for name in SIMPLE}
    return {**shown, **{f"settings.{name}": text for name, text in destination.settings.items()}}


def _differing(before: Mapping[str, Any], destination: Destination, changes: Mapping[str, Any]) -> list[str]:
    """Names of what is different now, and of the secrets that were entered."""
    after, given = _shown(destination), changes.get("settings", {})
    differ = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    secrets = {
        one.name for one in KINDS[destination.kind].settings if one.is_secret and given.get(one.name, "").strip()
    }
    return sorted({name.removeprefix("settings.") for name in differ} | secrets)


def _note(destination: Destination, actor: Actor, act: DestinationChange.Act, changed: list[str]) -> None:
    DestinationChange.objects.create(
        destination=destination, actor=actor.name, actor_kind=actor.kind, act=act, changed=changed
    )


def remove_destination(destination: Destination, actor: Actor, seen: Seen = UNSEEN) -> None:
    """Tell it nothing more and forget its secrets. What it was told stays listed. Raises as change_destination does."""
    with transaction.atomic():
        now, destination = timezone.now(), _held(destination, seen)
        destination.deliveries.filter(state=DeliveryState.WAITING).update(
            state=DeliveryState.SKIPPED, done_at=now, said="the destination was removed"
        )
        destination.removed_at, destination.enabled, destination.sealed = now, False, ""
        destination.save(update_fields=["removed_at", "enabled", "sealed"])
        _note(destination, actor, DestinationChange.Act.REMOVED, [])


def reseal_all() -> tuple[int, int, list[str]]:
    """Seal every destination's secrets with the newest key: how many were, how many had been, and whose cannot be read."""
    n_sealed, n_newest, unreadable = 0, 0, []
    for pk in Destination.objects.exclude(sealed="").order_by("id").values_list("pk", flat=True):
        with transaction.atomic():
            held = Destination.objects.select_for_update(no_key=True).get(pk=pk)
            try:
                n_anew = _reseal(held)
                held.save(update_fields=["sealed"])
            except Unreadable:
                unreadable.append(f"{held.name} (team {held.team.name})")
                continue
            n_sealed, n_newest = n_sealed + n_anew, n_newest + 1 - n_anew
    return n_sealed, n_newest, unreadable


def _reseal(held: Destination) -> bool:
    """Whether it was to be sealed anew; whoever called saves it. Raises Unreadable."""
    owner = str(held.key)
    if is_newest(held.sealed, owner):
        return False
    held.sealed = seal(unseal(held.sealed, owner), owner)
    return True


def send_test(destination: Destination) -> Delivery:
    """A test message, sent like any other. Raises BadAct, TooMany."""
    if not destination.enabled:
        raise BadAct(SWITCHED_OFF)
    if destination.deliveries.filter(state=DeliveryState.WAITING, verb="test").count() >= TESTS_WAITING_MAX:
        raise TooMany("Tests are waiting already: see what became of them.")
    Destination.objects.filter(pk=destination.pk).update(not_before=None)
    return _promised(destination, None, "test", None)


def replay(delivery: Delivery) -> Delivery:
    """Send once more what was sent, skipped or given up, under an identifier of its own. Raises BadAct, TooMany."""
    if delivery.state == DeliveryState.WAITING:
        raise BadAct("It is still waiting to be sent.")
    if not delivery.destination.enabled or delivery.destination.removed_at:
        raise BadAct(SWITCHED_OFF)
    if delivery.replays.filter(state=DeliveryState.WAITING).exists():
        raise TooMany("A replay is waiting already.")
    return _promised(delivery.destination, delivery, delivery.verb, delivery)


def _promised(destination: Destination, source: Delivery | None, verb: str, replay_of: Delivery | None) -> Delivery:
    with transaction.atomic():
        ticket, entry = (source.ticket, source.entry) if source else (None, None)
        made = put(destination, ticket, verb, timezone.now(), entry=entry, replay_of=replay_of)
    if made is None:
        raise TooMany("Too many deliveries wait for this destination.")
    return made


def _kept(destination: Destination, given: Mapping[str, str]) -> Config:
    """What is stored; when its secrets cannot be read any more, they are as good as none."""
    try:
        return Config(str(destination.key), destination.settings, unseal(destination.sealed, str(destination.key)))
    except Unreadable:
        return Config(str(destination.key), destination.settings, {})


def _put_settings(destination: Destination, given: Mapping[str, str], kept: Config) -> None:
    try:
        made = parted(KINDS[destination.kind], given, kept)
    except Refused as error:
        raise BadAct(f"{str(error)[:1].upper()}{str(error)[1:]}.") from error
    destination.settings = dict(made.settings)
    destination.sealed = seal(made.secrets, made.key)
