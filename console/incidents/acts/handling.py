"""What people do to an incident beside moving its state: assign it, attach it to another, say afterwards what it was.

Each act is one entry of the timeline and raises the version; repeated with its key it is the same act. Attached means
that an incident follows from another, its root: the root's handling is its own. Roots have no root, so there is no chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.utils import timezone

from console.accounts.models import Membership, Role
from console.incidents.lifecycle import ATTACHED_MAX, IllegalMove
from console.incidents.models import Alarm, Incident, Review, State, TimelineEntry, Verdict
from console.incidents.record import UNSEEN, Actor, BadAct, Seen, check_seen, checked_note, done_before, record
from rca.findings import Component

ATTACH_LOCK: Final = 0x44474F41  # first key of the advisory lock that attaching takes; the second is the team
CULPRITS_MAX: Final = 64
RANK_MAX: Final = 10**7
NAME_CHARS_MAX: Final = 128


@dataclass(frozen=True, slots=True)
class Found:
    """What somebody found out afterwards; see models.Review. Empty where they do not say."""

    alarm: str
    verdict: str
    cause: str = ""
    component: str = ""
    culprits: tuple[int, ...] = ()
    node: str = ""


def assign(
    number: int, actor: Actor, assignee: str, *, seen: Seen = UNSEEN, note: str = "", request_key: str = ""
) -> tuple[Incident, TimelineEntry]:
    """Say who should handle it; '' is nobody. Raises BadAct for who may not act for the team."""
    note = checked_note(note, needed=False)
    with transaction.atomic():
        incident = Incident.objects.select_for_update().get(pk=number)
        if done := done_before(incident.timeline.all(), actor, ("assigned", "unassigned"), request_key):
            return incident, done
        check_seen(incident, seen)
        if assignee and assignee not in assignable(incident.team_id):
            raise BadAct(f"{assignee} is nobody who may act for this team.")
        entry = record(
            incident, actor, "assigned" if assignee else "unassigned", {"assignee": assignee}, timezone.now(),
            before=incident.assignee, after=assignee, note=note, request_key=request_key,
        )  # fmt: skip
    return incident, entry


def assignable(team_id: int) -> list[str]:
    """Who may act for the team, by name."""
    acting = Membership.objects.filter(team=team_id, role__in=(Role.RESPONDER, Role.ADMIN), user__is_active=True)
    return list(
        User.objects.filter(pk__in=acting.values("user")).order_by("username").values_list("username", flat=True)
    )


def attach(
    number: int, actor: Actor, root_number: int, *, seen: Seen = UNSEEN, note: str = "", request_key: str = ""
) -> tuple[Incident, TimelineEntry]:
    """Say that the incident follows from another one of the team. Raises BadAct, IllegalMove, Incident.DoesNotExist."""
    note = checked_note(note, needed=False)
    with transaction.atomic():
        team_id = Incident.objects.values_list("team_id", flat=True).get(pk=number)
        _one_at_a_time(team_id)
        root = Incident.objects.select_for_update().get(pk=root_number, team=team_id)
        incident = Incident.objects.select_for_update().get(pk=number)
        if done := done_before(incident.timeline.all(), actor, ("attached to",), request_key):
            return incident, done
        check_seen(incident, seen)
        _check_attachable(incident, root)
        now = timezone.now()
        entry = record(
            incident, actor, "attached to", {"attached_to": root}, now, after=str(root.pk), note=note,
            request_key=request_key,
        )  # fmt: skip
        record(root, actor, "took in", {"n_attached": root.n_attached + 1}, now, after=str(incident.pk), note=note)
    return incident, entry


def detach(
    number: int, actor: Actor, *, seen: Seen = UNSEEN, note: str = "", request_key: str = ""
) -> tuple[Incident, TimelineEntry]:
    """Say that the incident is one of its own after all. Raises BadAct."""
    note = checked_note(note, needed=False)
    with transaction.atomic():
        _one_at_a_time(Incident.objects.values_list("team_id", flat=True).get(pk=number))
        root_number = Incident.objects.values_list("attached_to", flat=True).get(pk=number)
        root = Incident.objects.select_for_update().get(pk=root_number) if root_number else None
        incident = Incident.objects.select_for_update().get(pk=number)
        if done := done_before(incident.timeline.all(), actor, ("detached",), request_key):
            return incident, done
        check_seen(incident, seen)
        if root is None or incident.attached_to_id != root.pk:
            raise BadAct(f"Incident {incident.pk} is attached to none.")
        now = timezone.now()
        entry = record(
            incident, actor, "detached", {"attached_to": None}, now, before=str(root.pk), note=note,
            request_key=request_key,
        )  # fmt: skip
        record(root, actor, "let go", {"n_attached": max(root.n_attached - 1, 0)}, now, after=str(incident.pk))
    return incident, entry


def review(
    number: int, actor: Actor, found: Found, *, note: str = "", request_key: str = ""
) -> tuple[Incident, TimelineEntry]:
    """Record afterwards whether it was worth telling people, whether the right one was blamed, and the true cause."""
    note, found = checked_note(note, needed=False), _checked(found)
    with transaction.atomic():
        incident = Incident.objects.select_for_update().get(pk=number)
        if done := done_before(incident.timeline.all(), actor, ("reviewed",), request_key):
            return incident, done
        _check_of_job(incident, found)
        now = timezone.now()
        said = checked_note(f"{review_words(found)} {note}", needed=True)
        entry = record(
            incident, actor, "reviewed", {"review": found.alarm}, now, before=incident.review, after=found.alarm,
            note=said, request_key=request_key,
        )  # fmt: skip
        Review.objects.create(
            incident=incident, entry=entry, at=now, actor=actor.name, alarm=found.alarm, verdict=found.verdict,
            rule=rule_of(incident), cause=found.cause, component=found.component, culprits=list(found.culprits),
            node=found.node,
        )  # fmt: skip
    return incident, entry


def rule_of(incident: Incident) -> str:
    """The rule whose finding the newest diagnosis puts first; '' where nobody is named."""
    newest = incident.revisions.order_by("-number").first()
    findings = newest.body.get("findings", []) if newest else []
    return str(findings[0].get("rule", "")) if findings else ""


_ALARM_WORDS: Final = {
    Alarm.REAL: "Real trouble.",
    Alarm.NOISE: "True, but nobody had to do anything.",
    Alarm.FALSE: "False alarm: nothing was wrong.",
}
_VERDICT_WORDS: Final = {
    Verdict.RIGHT: "The verdict was right.",
    Verdict.PARTLY: "The verdict was partly right.",
    Verdict.WRONG: "The verdict was wrong.",
    Verdict.UNKNOWN: "Whether the verdict was right is not known.",
}


def review_words(found: Found) -> str:
    where = [f"ranks {', '.join(map(str, found.culprits))}" if found.culprits else "", found.node, found.component]
    true = ", ".join(filter(None, where))
    parts = [_ALARM_WORDS[Alarm(found.alarm)], _VERDICT_WORDS[Verdict(found.verdict)]]
    parts += [f"True cause: {true}." if true else "", found.cause]
    return " ".join(filter(None, parts))


def _checked(found: Found) -> Found:
    if found.alarm not in Alarm.values or found.verdict not in Verdict.values:
        raise BadAct("Say whether the alarm was real, noise or false, and the verdict right, partly, wrong or unknown.")
    if found.component and found.component not in {one.value for one in Component}:
        raise BadAct(f"A component is one of {', '.join(one.value for one in Component)}.")
    if len(found.culprits) > CULPRITS_MAX or not all(0 <= rank < RANK_MAX for rank in found.culprits):
        raise BadAct(f"At most {CULPRITS_MAX} ranks, each from 0 on.")
    if len(found.node) > NAME_CHARS_MAX or len(found.cause) > 4000:
        raise BadAct("A node's name or a cause this long cannot be kept.")
    return found


def _check_of_job(incident: Incident, found: Found) -> None:
    """Of a job whose size is known there are no other ranks."""
    world_size = incident.attempt.world_size
    if world_size and any(rank >= world_size for rank in found.culprits):
        raise BadAct(f"The job has ranks 0 to {world_size - 1}.")


def _check_attachable(incident: Incident, root: Incident) -> None:
    if incident.pk == root.pk:
        raise BadAct("An incident cannot be attached to itself.")
    if incident.state == State.RESOLVED:
        raise IllegalMove(incident, "attach")
    if root.state == State.RESOLVED:
        raise IllegalMove(root, "attach", f"Incident {root.pk} is resolved: nothing can be attached to it.")
    if root.attached_to_id is not None:
        raise BadAct(f"Incident {root.pk} is attached to incident {root.attached_to_id}: attach it to that one.")
    if incident.attached_to_id is not None:
        raise BadAct(f"Incident {incident.pk} is attached to incident {incident.attached_to_id} already.")
    if incident.n_attached:
        raise BadAct(f"Others are attached to incident {incident.pk}: detach them first.")
    if root.n_attached >= ATTACHED_MAX:
        raise BadAct(f"At most {ATTACHED_MAX} incidents are attached to one.")


def _one_at_a_time(team_id: int) -> None:
    """Two people who attach each other's incidents at once would lock them crosswise."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT pg_advisory_xact_lock(%s, %s)", [ATTACH_LOCK, team_id])
