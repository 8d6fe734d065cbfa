"""What a revision changed, in sentences, for the timeline: "revised" alone tells nobody whether to look again.

Compares what an incident shows: verdict, grade, victims, and what was not seen. Numbers within evidence change with every
look and are left out.
"""

from __future__ import annotations

import re
from typing import Final

from rca.dumps.dump_parts import NOT_ANSWERED
from rca.dumps.fusion import RECORDER, STACKS
from rca.findings import Diagnosis
from rca.narrowed import is_part, unseen_of
from rca.words import capitalised

_NO_DUMP: Final = re.compile(rf"No ({STACKS}|{RECORDER}) of (ranks? |no rank)")


def changes(before: Diagnosis, after: Diagnosis) -> str:
    """What `after` says otherwise than `before`; a further explanation that became possible or impossible is the least."""
    said = [
        after.verdict if after.verdict != before.verdict else "",
        _grade(before, after),
        _victims(before, after),
        "All nodes were read." if is_part(before) and not is_part(after) else "",
        _unseen(unseen_of(before), unseen_of(after)),
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


def _unseen(before: tuple[str, ...], after: tuple[str, ...]) -> str:
    """What is unknown now and was not, and what became known. Of dumps the newest count alone counts: answers come rank by rank,
    and each would take back a sentence and say it again with one rank more."""
    new, gone = [one for one in after if one not in before], [one for one in before if one not in after]
    awaited = any(NOT_ANSWERED in one for one in after)
    answered = not awaited and any(NOT_ANSWERED in one for one in gone)
    dumps = [_lowered(one) for one in new if _NO_DUMP.match(one)]
    came = (
        []
        if dumps or answered
        else [capitalised(one.removeprefix("No ").split(":")[0]) for one in gone if _NO_DUMP.match(one)]
    )
    said = "; ".join([*(["all nodes answered"] if answered else []), *dumps])
    others = [[one for one in those if not _NO_DUMP.match(one)] for those in (new, gone)]
    return " ".join([
        *([f"{capitalised(said)}."] if said else []),
        *(f"Arrived: {one}." for one in came),
        *([f"Now unknown: {' '.join(others[0])}"] if others[0] else []),
        *([f"Settled: {' '.join(others[1])}"] if others[1] else []),
    ])  # fmt: skip


def _lowered(sentence: str) -> str:
    return (sentence[:1].lower() + sentence[1:]).rstrip(".")


def _sentences(word: str, of: tuple[str, ...], but: tuple[str, ...]) -> str:
    new = [sentence for sentence in of if sentence not in but]
    return f"{word} {' '.join(new)}" if new else ""
