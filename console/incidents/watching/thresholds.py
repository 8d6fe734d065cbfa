"""The thresholds of one job: the shipped ones, and what people changed while it ran, with its history.

The newest change of a name is in force; "back to the default" is a change too. Looks, diagnoses and the page all read
them here. A change that today's limits refuse (they were others when it was made) is not used and said so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from django.db import transaction
from django.db.models import Max, QuerySet
from django.utils import timezone

from console.incidents.lifecycle import UNSEEN, Actor, BadAct, Seen, checked_note
from console.incidents.models import SettingChange
from console.incidents.rows import iso
from ingest.models import Job
from rca.settings import DEFAULT, BadSetting, Settings, checked, limits, settings_with

HISTORY_SHOWN_MAX: Final = 200


@dataclass(frozen=True, slots=True)
class SettingRow:
    """One threshold of a job, what it may be, and who changed it last."""

    name: str
    group: str
    unit: str
    about: str
    value: float
    default: float
    low: float
    high: float
    whole: bool
    overridden: bool
    changed_at: str | None
    changed_by: str | None
    reason: str | None


@dataclass(frozen=True, slots=True)
class ChangeRow:
    """One change of a threshold. before, after: None is the default."""

    id: int
    at: str
    actor: str
    actor_kind: str
    name: str
    before: float | None
    after: float | None
    unit: str
    reason: str


@dataclass(frozen=True, slots=True)
class Overtaken:
    """A threshold that somebody changed after the version a caller had seen. None is the default."""

    name: str
    unit: str
    theirs: float | None
    yours: float | None
    changed_by: str
    changed_at: str
    reason: str


class ChangedMeanwhile(Exception):
    """Somebody else was faster; the message says who, and overtaken what both wanted."""

    def __init__(self, overtaken: list[Overtaken]) -> None:
        said = "; ".join(f"{one.changed_by} set {one.name} to {_value(one.theirs, one.unit)}" for one in overtaken)
        yours = ", ".join(_value(one.yours, one.unit) for one in overtaken if one.yours != one.theirs)
        super().__init__(f"Meanwhile {said}{f'; you wanted {yours}' if yours else ''}. Nothing was changed.")
        self.overtaken = overtaken


def _value(value: float | None, unit: str) -> str:
    return "its default" if value is None else f"{value:g} {unit}".rstrip()


def settings_of(job_id: int) -> Settings:
    """The thresholds in force."""
    return _usable(_overrides(job_id))[0]


def change_settings(
    job: Job, changes: Mapping[str, Any], actor: Actor, reason: str, seen: Seen = UNSEEN
) -> list[SettingChange]:
    """Change thresholds, all of `changes` or none; None is back to the default. What is so already is no change.

    seen: the version of the settings that the caller saw. Raises BadAct with a sentence for people, ChangedMeanwhile when
    somebody changed one of these thresholds since, to something else; of an exact version, when anybody changed any.
    """
    reason = checked_note(reason, needed=True)
    if not changes:
        raise BadAct("Name at least one setting to change.")
    with transaction.atomic():
        Job.objects.select_for_update().get(pk=job.pk)  # what two people change at once must fit together
        newest = _newest(job.pk)
        before = {name: change.after for name, change in newest.items()}
        after = _checked(before, changes)
        if seen.version is not None and (late := _overtaken(newest, changes, after, seen)):
            raise ChangedMeanwhile(late)
        made = partial(
            SettingChange, job=job, at=timezone.now(), actor=actor.name, actor_kind=actor.kind, reason=reason
        )
        changed = [name for name in changes if before.get(name) != after.get(name)]
        return [
            SettingChange.objects.create(**made.keywords, name=name, before=before.get(name), after=after.get(name))
            for name in sorted(changed)
        ]


def version_of(job_id: int) -> int:
    """Grows with every change of the job's thresholds; 0 before the first."""
    return SettingChange.objects.filter(job=job_id).aggregate(newest=Max("id"))["newest"] or 0


def _overtaken(
    newest: Mapping[str, SettingChange], changes: Mapping[str, Any], after: Mapping[str, float | None], seen: Seen
) -> list[Overtaken]:
    return [
        Overtaken(name, limits()[name].unit, one.after, after[name], one.actor, iso(one.at) or "", one.reason)
        for name, one in sorted(newest.items())
        if name in limits() and one.pk > (seen.version or 0)
        and (seen.exact or (name in changes and one.after != after[name]))
    ]  # fmt: skip


def read_settings(job_id: int) -> list[SettingRow]:
    """Every threshold people may change, with the value in force."""
    newest = _newest(job_id)
    in_force = settings_of(job_id).thresholds()
    return [
        SettingRow(
            name=name, group=limit.group, unit=limit.unit, about=limit.about, value=in_force[name],
            default=limit.default, low=limit.low, high=limit.high, whole=limit.whole,
            overridden=in_force[name] != limit.default,
            changed_at=iso(newest[name].at) if name in newest else None,
            changed_by=newest[name].actor if name in newest else None,
            reason=newest[name].reason if name in newest else None,
        )
        for name, limit in limits().items()
    ]  # fmt: skip


def read_history(job_id: int) -> list[ChangeRow]:
    """Newest first."""
    units = {name: limit.unit for name, limit in limits().items()}
    return [
        ChangeRow(
            one.pk, iso(one.at) or "", one.actor, one.actor_kind, one.name, one.before, one.after,
            units.get(one.name, ""), one.reason,
        )
        for one in SettingChange.objects.filter(job=job_id).order_by("-id")[:HISTORY_SHOWN_MAX]
    ]  # fmt: skip


def ignored(job_id: int) -> list[str]:
    """Stored changes that cannot be used, in sentences."""
    return _usable(_overrides(job_id))[1]


def overridden(jobs: QuerySet[Job]) -> list[str]:
    """`job: name=value` of every threshold of these jobs that differs from the default."""
    newest = SettingChange.objects.filter(job__in=jobs).order_by("job", "name", "-id").distinct("job", "name")
    return [
        f"{one.job.name}: {one.name}={one.after:g}"
        for one in newest.select_related("job")
        if one.after is not None and one.name in limits() and one.after != limits()[one.name].default
    ]


def _newest(job_id: int) -> dict[str, SettingChange]:
    rows = SettingChange.objects.filter(job=job_id).order_by("name", "-id").distinct("name")
    return {one.name: one for one in rows}


def _overrides(job_id: int) -> dict[str, float]:
    return {name: one.after for name, one in _newest(job_id).items() if one.after is not None}


def _checked(before: Mapping[str, float | None], changes: Mapping[str, Any]) -> dict[str, float | None]:
    """What is in force after these changes; each must be possible, and all together."""
    try:
        after = {
            name: None if value is None and name in limits() else checked(name, value)
            for name, value in changes.items()
        }
        merged = {**before, **after}
        settings_with({name: value for name, value in merged.items() if value is not None and name in limits()})
    except BadSetting as error:
        raise BadAct(str(error)) from error
    return merged


def _usable(overrides: Mapping[str, float]) -> tuple[Settings, list[str]]:
    """(settings, why others were left out)."""
    kept: dict[str, float] = {}
    said = []
    for name, value in overrides.items():
        try:
            kept[name] = checked(name, value)
        except BadSetting as error:
            said.append(f"Not in force: {error}")
    try:
        return settings_with(kept), said
    except BadSetting as error:  # each is possible, all together are not
        return DEFAULT, [*said, f"None is in force: {error}"]
