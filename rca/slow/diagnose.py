"""From a window and a straggler symptom to a diagnosis (Mycroft Algorithm 2, AnalyzeStragglerRootCause).

The rules compare the iterations before the symptom with those after it. What shows inside a rank's own ops is nobody else's
doing, so it comes before a late start, which a neighbour inside the node may have caused where the network sees nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from ingest.window import Window
from rca.asked import Asking
from rca.counters import absent, abstentions, is_able
from rca.findings import Component, Diagnosis, Finding, Grade, Symptom
from rca.holes import best_of, downgrade, ranked, unseen
from rca.racks import by_rack
from rca.ranks import TICKED_ONCE, known_ranks
from rca.rules import late_start, slow_copy, slow_nic, slow_proxy, waited_for
from rca.settings import Settings
from rca.slow.breakdown import compared_of
from rca.slow.measured_too import with_measured
from rca.slow.reached import reached
from rca.slow.slow_words import MS, excess_ms
from rca.slow.slowdown import Slowdown, compared
from rca.why_not import of_slowdown
from rca.words import communicator_names

OWN_OVER_INSIDE = 0.5
MUCH_MORE = 3.0  # times as much as what is said of the same ranks already
OVER_UNSURE = 1.5
"""Times as much as what is not sure says: a tie that may be of somebody else, or copies of who begins late."""
HALF = 0.5
SECOND_MIN = 0.5
"""Of what the worst accounts for: less, elsewhere, may be how the others fell in line with it."""

Rule = Callable[[Slowdown, Symptom, Settings], tuple[Finding, ...]]

RULES: tuple[tuple[Rule, ...], ...] = (
    (slow_proxy.explain, slow_copy.explain, slow_nic.explain),
    (slow_proxy.explain_asleep,),
    (late_start.explain,),
    (waited_for.explain,),
)
"""What shows inside a rank's own ops, and the first of these explains what the others would say of the same rank; who
sleeps now and then, which is asked when those name nobody and nobody is late all the time; what shows before the
ops; and who is only seen to be waited for, which is asked when nobody has said anything."""


def diagnose_slowdown(window: Window, symptom: Symptom, settings: Settings) -> Diagnosis:
    """Everything the rules say about a job that has become slower, best finding first."""
    slowdown, why_none = compared(window, symptom, settings)
    ranks = slowdown.ranks if slowdown else known_ranks(window, settings, TICKED_ONCE)
    found, unmeasured = _all_findings(slowdown, symptom, settings) if slowdown else ([], ())
    downgraded, findings = downgrade(window, ranks, found)
    suspects = findings[0].suspects if findings else frozenset[int]()
    victims, path = reached(window.members, suspects, settings.path_edges_max) if slowdown else ((), ())
    by_file = {rule.__module__: rule for rules in RULES for rule in rules}
    missing = (*abstentions(by_file.values(), absent(window)), *unseen(window, ranks), *unmeasured)
    shown, missing = best_of(findings, settings.findings_max, missing)
    if slowdown is None:
        missing = (*missing, why_none)
    return Diagnosis(
        symptom=symptom, findings=shown, victims=victims, path=path,
        communicators=communicator_names(window, {edge.comm_id for edge in path}), missing=missing, downgraded=downgraded,
        compared=compared_of(slowdown) if slowdown else (), thresholds=settings.thresholds(), analysed_ns=window.end_ns,
        alternatives=of_slowdown(slowdown, tuple(findings)) if slowdown else (),
    )  # fmt: skip


def _all_findings(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[list[Finding], tuple[str, ...]]:
    """What the rules say, with what was measured on the wire, where it was, about racks where they touch all of one; and what
    was not measured. What may be a habit is told by who is caught alone: what else grew in it has grown in many a job."""
    asking = Asking(slowdown, symptom, settings)
    found, unmeasured = _findings(slowdown, symptom, asking), tuple[str, ...]()
    if not symptom.may_be_habit:
        found, unmeasured = with_measured(found, slowdown, asking)
    return ranked(by_rack(slowdown.window, slowdown.ranks, found)), (*asking.failed, *unmeasured)


def _findings(slowdown: Slowdown, symptom: Symptom, asking: Asking) -> list[Finding]:
    """What the rules say, each of ranks that no finding before it explains, and which stand beside each other."""
    found: list[Finding] = []
    lacking = absent(slowdown.window)
    inside, asleep, before, only = ([rule for rule in rules if is_able(rule, lacking)] for rules in RULES)
    if symptom.may_be_habit:
        return [finding for rule in asleep for finding in asking.ask(rule)]
    for rule in inside:
        found = _with_next(found, asking.ask(rule))
    late = [finding for rule in before for finding in asking.ask(rule)]
    is_steady = any(excess_ms(one) * MS >= OWN_OVER_INSIDE * slowdown.lost_ns for one in late)
    if not is_steady and not any(finding.culprits or finding.tied for finding in found):
        found += [finding for rule in asleep for finding in asking.ask(rule)]
    found = _with_late(slowdown, found, late)
    if not found and not asking.failed:  # what a rule that failed would have said is not known
        found = [finding for rule in only for finding in asking.ask(rule)]
    most = max((excess_ms(finding) for finding in found if finding.culprits or finding.tied), default=0.0)
    return ranked([one for one in found if not (one.culprits or one.tied) or excess_ms(one) >= SECOND_MIN * most])


def _with_next(found: list[Finding], more: Iterable[Finding]) -> list[Finding]:
    """With those of the next rule that say nothing of ranks that are explained, or explain several times as much of all of
    them: a slow NIC's ranks also let some chunks lie."""
    said, kept = list(found), list[Finding]()
    for one in more:
        same = [old for old in said if set(old.culprits) & set(one.culprits)]
        if all(_is_the_less_of(old, one) for old in same):
            said, kept = [old for old in said if old not in same], [*kept, one]
    return [*said, *kept]


def _is_the_less_of(old: Finding, one: Finding) -> bool:
    """Whether what is said of copies is a part of what another finding says of the same ranks."""
    is_same = old.component is Component.COPY and set(old.culprits) <= set(one.culprits)
    return is_same and excess_ms(one) >= MUCH_MORE * excess_ms(old)


def _with_late(slowdown: Slowdown, found: list[Finding], late: list[Finding]) -> list[Finding]:
    """With those who begin late, each beside what shows inside ops. Several may at once: they do not explain each other."""
    inside, kept = found, list[Finding]()
    for one in sorted(late, key=lambda finding: -excess_ms(finding)):
        left = _beside(slowdown, inside, one)
        if left is not None:
            inside, kept = left, [*kept, one]
    return [*inside, *kept]


def _beside(slowdown: Slowdown, inside: list[Finding], late: Finding) -> list[Finding] | None:
    """What of the findings inside ops stands beside a late start; None where it is not said: where half of the lost time is
    explained inside the ops, or in a group where something inside explains as much. A group whose own delay is by far the
    larger has ops that go on slowly too."""
    if not late.culprits and not late.tied:
        return None if any(finding.culprits for finding in inside) else inside
    if any(finding.grade is Grade.STRONG for finding in inside):
        return None
    group = _groups(slowdown, late)
    same = [finding for finding in inside if _groups(slowdown, finding) & group]
    if any(
        excess_ms(finding) >= OWN_OVER_INSIDE * excess_ms(late)
        for finding in same
        if not (_is_passed_on(finding, late) or _is_less_of_the_same(finding, late) or _is_of_its_work(finding, late))
    ):
        return None
    return [finding for finding in inside if finding not in same]


def _is_passed_on(inside: Finding, late: Finding) -> bool:
    """Whether a tie of the ranks by which a ring enters and leaves a node is what they pass on of another there, who begins late
    by as much."""
    tied = {rank for subject in inside.tied for rank in subject.ranks}
    is_copy = inside.component is Component.COPY and bool(tied) and not inside.culprits
    is_sure = late.grade is Grade.STRONG and bool(late.culprits) and inside.subject.node == late.subject.node
    return is_copy and is_sure and not tied & set(late.culprits) and excess_ms(late) >= excess_ms(inside)


def _is_of_its_work(inside: Finding, late: Finding) -> bool:
    """Whether copies that are not surely slow are of who surely begins late, by more: a GPU at its own work hands over late."""
    is_copy = inside.component is Component.COPY and inside.grade is not Grade.STRONG and bool(inside.culprits)
    is_sure = late.grade is Grade.STRONG and set(inside.culprits) <= set(late.culprits)
    return is_copy and is_sure and excess_ms(late) > OVER_UNSURE * excess_ms(inside)


def _is_less_of_the_same(inside: Finding, late: Finding) -> bool:
    """Whether a tie that is not sure of anything is of ranks who all surely begin late, by more; where half of it may be others,
    by much more."""
    if inside.grade is not Grade.WEAK or inside.culprits or late.grade is not Grade.STRONG:
        return False
    are_late = [bool(subject.ranks) and set(subject.ranks) <= set(late.culprits) for subject in inside.tied]
    least = (1.0 if all(are_late) else OVER_UNSURE) * excess_ms(inside)
    return bool(are_late) and sum(are_late) >= HALF * len(are_late) and excess_ms(late) > least


def _groups(slowdown: Slowdown, finding: Finding) -> set[int]:
    at = np.isin(slowdown.iterations.ranks, finding.culprits or finding.subject.ranks)
    return set(slowdown.delays.group[at].tolist())
