"""How good the console itself is, from what people found out afterwards: precision, right verdicts, time to verdict.

Time to verdict runs from the trigger, as the clock of an incident does.
Only reviewed incidents count for precision, and how many are not reviewed stands beside it: a share of two is no share.
An incident belongs to the rule whose finding its newest diagnosis puts first; when it was reviewed, to the one of then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from math import ceil
from statistics import median
from typing import Any, Final

from django.db.models import OuterRef, Subquery
from django.db.models.fields.json import KeyTextTransform
from django.utils import timezone

from console.incidents.models import Alarm, DiagnosisRevision, Incident, Review, TimelineEntry, Verdict

DAYS_MAX: Final = 365
INCIDENTS_MAX: Final = 20_000
NOBODY: Final = "nobody named"


@dataclass(frozen=True, slots=True)
class Score:
    """One row of the scorecard. of: the rule, the symptom, or "all".

    real, noise, false_alarms: of `reviewed`; precision: real ÷ reviewed. right, partly, wrong: of those whose verdict
    somebody judged; right_share: right ÷ those. Shares and times are None where there is nothing to count.
    """

    of: str
    incidents: int
    reviewed: int
    real: int
    noise: int
    false_alarms: int
    right: int
    partly: int
    wrong: int
    precision: float | None
    right_share: float | None
    verdict_s_median: float | None
    verdict_s_p90: float | None
    acknowledged_s_median: float | None


@dataclass(frozen=True, slots=True)
class Card:
    """left_out: incidents beyond INCIDENTS_MAX, the oldest ones."""

    days: int
    total: Score
    rules: list[Score]
    symptoms: list[Score]
    left_out: int


@dataclass(frozen=True, slots=True)
class _Told:
    """What one incident tells the scorecard."""

    rule: str
    symptom: str
    alarm: str
    verdict: str
    verdict_s: float | None
    acknowledged_s: float | None


def read_card(team_ids: Sequence[int], days: int) -> Card:
    """The scorecard of the incidents of the last `days`."""
    since = timezone.now() - timedelta(days=days)
    found = Incident.objects.filter(team__in=team_ids, opened_at__gte=since)
    told = [_told(row) for row in _rows(found)]
    n = len(told) if len(told) < INCIDENTS_MAX else found.count()
    rules = _by(told, lambda one: one.rule)
    return Card(days, _score("all", told), rules, _by(told, lambda one: one.symptom), n - len(told))


def _rows(found: Any) -> Iterable[dict[str, Any]]:
    newest_review = Review.objects.filter(incident=OuterRef("pk")).order_by("-id")
    newest = DiagnosisRevision.objects.filter(incident=OuterRef("pk")).order_by("-number")
    rule = KeyTextTransform("rule", KeyTextTransform(0, KeyTextTransform("findings", "body")))
    first = TimelineEntry.objects.filter(incident=OuterRef("pk"), verb="acknowledged").order_by("id")
    return found.order_by("-id").annotate(
        rule_now=Subquery(newest.annotate(rule=rule).values("rule")[:1]),
        rule_then=Subquery(newest_review.values("rule")[:1]),
        alarm=Subquery(newest_review.values("alarm")[:1]),
        verdict=Subquery(newest_review.values("verdict")[:1]),
        first_acknowledged_at=Subquery(first.values("at")[:1]),
    ).values(
        "symptom", "opened_at", "triggered_ns", "root_caused_at", "rule_now", "rule_then", "alarm", "verdict",
        "first_acknowledged_at",
    )[:INCIDENTS_MAX]  # fmt: skip


def _told(row: dict[str, Any]) -> _Told:
    opened_at = row["opened_at"]
    rule = row["rule_then"] if row["alarm"] else row["rule_now"]
    return _Told(
        rule=rule or NOBODY, symptom=row["symptom"], alarm=row["alarm"] or "", verdict=row["verdict"] or "",
        verdict_s=_seconds(datetime.fromtimestamp(row["triggered_ns"] / 1e9, UTC), row["root_caused_at"]),
        acknowledged_s=_seconds(opened_at, row["first_acknowledged_at"]),
    )  # fmt: skip


def _seconds(begin: Any, end: Any) -> float | None:
    return max((end - begin).total_seconds(), 0.0) if end is not None else None


def _by(told: Sequence[_Told], of: Callable[[_Told], str]) -> list[Score]:
    """A score for each value, the most frequent first."""
    groups: dict[str, list[_Told]] = {}
    for one in told:
        groups.setdefault(of(one), []).append(one)
    return sorted(
        (_score(name, group) for name, group in groups.items()), key=lambda score: (-score.incidents, score.of)
    )


def _score(of: str, told: Sequence[_Told]) -> Score:
    alarms, verdicts = [one.alarm for one in told if one.alarm], [one.verdict for one in told]
    real, judged = alarms.count(Alarm.REAL), [one for one in verdicts if one and one != Verdict.UNKNOWN]
    right = judged.count(Verdict.RIGHT)
    verdict_s = sorted(one.verdict_s for one in told if one.verdict_s is not None)
    acknowledged_s = [one.acknowledged_s for one in told if one.acknowledged_s is not None]
    return Score(
        of=of, incidents=len(told), reviewed=len(alarms), real=real, noise=alarms.count(Alarm.NOISE),
        false_alarms=alarms.count(Alarm.FALSE), right=right, partly=judged.count(Verdict.PARTLY),
        wrong=judged.count(Verdict.WRONG), precision=_share(real, len(alarms)), right_share=_share(right, len(judged)),
        verdict_s_median=median(verdict_s) if verdict_s else None,
        verdict_s_p90=verdict_s[ceil(0.9 * len(verdict_s)) - 1] if verdict_s else None,
        acknowledged_s_median=median(acknowledged_s) if acknowledged_s else None,
    )  # fmt: skip


def _share(part: int, of: int) -> float | None:
    return round(part / of, 4) if of else None
