"""What a revision changed, in sentences, for the timeline: "revised" alone tells nobody whether to look again.

Compares what an incident shows: verdict, grade, victims, and what was not seen. Numbers within evidence change with every
look and are left out.
"""

from __future__ import annotations

from rca.findings import Diagnosis


def changes(before: Diagnosis, after: Diagnosis) -> str:
    """What `after` says otherwise than `before`; a further explanation that became possible or impossible is the least."""
    said = [
        after.verdict if after.verdict != before.verdict else "",
        _grade(before, after),
        _victims(before, after),
        _sentences("Now also not seen:", after.missing, before.missing),
        _sentences("No longer missing:", before.missing, after.missing),
        _sentences("Grade lowered:", after.downgraded, before.downgraded),
        _sentences("No longer lowers the grade:", before.downgraded, after.downgraded),
    ]
    return " ".join(filter(None, said)) or "Same verdict; what else could explain it has changed."


def _grade(before: Diagnosis, after: Diagnosis) -> str:
    if not (before.findings and after.findings) or before.findings[0].grade is after.findings[0].grade:
        return ""
    return f"{after.findings[0].grade.value.capitalize()} evidence instead of {before.findings[0].grade.value}."


def _victims(before: Diagnosis, after: Diagnosis) -> str:
    now, then = set(after.victims), set(before.victims)
    if now == then:
        return ""
    ranks = "rank waits" if len(now) == 1 else "ranks wait"
    return f"{len(now)} {ranks} instead of {len(then)}." if len(now) != len(then) else "Other ranks wait."


def _sentences(word: str, of: tuple[str, ...], but: tuple[str, ...]) -> str:
    new = [sentence for sentence in of if sentence not in but]
    return f"{word} {' '.join(new)}" if new else ""
