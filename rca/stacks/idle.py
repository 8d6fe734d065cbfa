"""What the ranks of a job do that has no op in flight anywhere, by their stacks: benign, or a reason to wake somebody.

Nobody waits in a collective then, so nobody stands out by waiting; the place where most are is the answer. A checkpoint,
an evaluation or a compilation explains an idle job for a while; a data loader or a lock on all ranks at once does not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from rca.findings import Component, FaultKind, Finding, Grade, Subject
from rca.stacks.analysis import RULE, VERSION, Doing, is_most_read, stack_evidence, where
from rca.stacks.places import WAITS, Place, is_evaluating
from rca.words import capitalised, named

BENIGN: Final = frozenset({Place.CHECKPOINT_SAVE, Place.CHECKPOINT_LOAD, Place.COMPILE})
SHOWN: Final = 4


def benign_of(doing: Sequence[Doing], n_asked: int = 0) -> str:
    """A sentence when what some ranks do explains that all are idle; '' when nothing does, or most of the n_asked ranks are
    unknown."""
    busy = [one for one in doing if one.place in BENIGN or is_evaluating(one.process.main)]
    rest = [one for one in doing if one not in busy]
    if not busy or not is_most_read(len(doing), n_asked) or any(one.place not in WAITS for one in rest):
        return ""
    first = busy[0]
    what = "evaluating" if is_evaluating(first.process.main) else first.place.value
    verb = "is" if len(busy) == 1 else "are"
    waiters = f"; the other {len(rest)} wait for that" if rest else ""
    n_unread = n_asked - len(doing)
    unread = f"; of {n_unread} more nothing could be read" if n_unread > 0 else ""
    return f"Stacks explain it: {named(one.rank for one in busy)} {verb} {what}{waiters}{unread}."


def idle_finding(doing: Sequence[Doing], n_asked: int = 0) -> tuple[Finding, ...]:
    """One finding that names nobody: where the ranks are; () when nothing was read, or little of the n_asked ranks."""
    counted = Counter(one.place for one in doing)
    if not counted or not is_most_read(len(doing), n_asked):
        return ()
    place, n = counted.most_common(1)[0]
    most = [one for one in doing if one.place is place]
    others = [[one for one in doing if one.place is other] for other, _ in counted.most_common()[1:SHOWN]]
    said = f"no op is in flight anywhere: {where(most)}" + "".join(f"; {where(those)}" for those in others)
    return (
        Finding(
            rule=RULE, version=VERSION, subject=Subject("job", place.value, tuple(one.rank for one in most)),
            component=Component.SOFTWARE, kind=FaultKind.UNKNOWN, culprits=(), score=0.6,
            grade=Grade.MODERATE if n == len(doing) else Grade.WEAK, sentence=f"{capitalised(said)}.",
            evidence=tuple(stack_evidence(those[0]) for those in [most, *others]),
            advice="`py-spy dump --native --pid PID` on one of them shows what this call waits for.",
        ),
    )  # fmt: skip
