"""From stacks to findings: who is doing something else while the others wait for it (Mycroft §6.2, case study two).

    rank 0, 1, 3 … in a collective         rank 2 … data loader: __getitem__ (dataset.py:41)   ← the others wait for it

Abstains when nobody waits in a collective, and where most ranks are in code of their own: then the job is at work. Where
everybody waits, the trouble is in or below the collective. A rank in its own code may wait for the GPU, which no frame
shows: by stacks alone that is weak, and surer where the recorder or the traces miss it in an op (rca/dumps/fusion.py). A second
look at the same processes tells a frozen rank from one that goes on slowly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Subject
from rca.holes import ranked
from rca.stacks.places import WAITS, Place, place_of
from rca.stacks.process import LOADER, TRAINER, Frame, Process
from rca.stacks.reading import as_text
from rca.words import capitalised, named, waiting

RULE: Final = "stacks"
VERSION: Final = 5
TELLING: Final = frozenset({Place.DATA_LOADER, Place.CHECKPOINT_SAVE, Place.CHECKPOINT_LOAD, Place.COMPILE, Place.LOCK})
UNSEEN: Final = frozenset({Place.CODE, Place.NOTHING})
"""Places in which it is not seen whether a rank works or waits."""
EVIDENCE_RANKS_MAX: Final = 8
_SCORES: Final = {Grade.STRONG: 0.9, Grade.MODERATE: 0.7, Grade.WEAK: 0.5}


@dataclass(frozen=True, slots=True)
class Doing:
    """What a rank's trainer is doing. is_frozen: it was at the same lines at both looks; None: looked at once."""

    rank: int
    place: Place
    at: Frame | None
    is_frozen: bool | None
    process: Process


def doing_of(processes: Sequence[Process], later: Sequence[Process] = ()) -> list[Doing]:
    """What each rank's trainer is doing, by rank; ranks of which nothing could be read are left out."""
    again = {(one.rank, one.pid): one for one in later if not one.silent and one.main}
    found = {}
    for one in processes:
        if one.silent or one.rank < 0 or one.kind != TRAINER or not one.main:
            continue
        second = again.get((one.rank, one.pid))
        newest = second or one
        is_frozen = None if second is None else second.main == one.main
        found[one.rank] = Doing(one.rank, *place_of(newest.main), is_frozen, newest)
    return [found[rank] for rank in sorted(found)]


def is_most_read(n_read: int, n_asked: int) -> bool:
    """Whether what was read may speak for all: at least half of the ranks that were asked."""
    return 2 * n_read >= n_asked


def findings_of(processes: Sequence[Process], later: Sequence[Process] = (), n_asked: int = 0) -> tuple[Finding, ...]:
    """A finding per place in which few ranks are while others wait; () when stacks name nobody.

    A known place tells although most of the others are in code of their own, which may be a wait we do not know; code of
    its own tells only where the rest is known to wait, and most of the n_asked ranks were read.
    """
    doing = doing_of(processes, later)
    waiters = [one for one in doing if one.place in WAITS]
    elsewhere = [one for one in doing if one.place not in WAITS]
    are_few = len(elsewhere) <= len(waiters) and is_most_read(len(doing), n_asked)
    found = []
    for place in dict.fromkeys(one.place for one in elsewhere) if waiters else ():
        those = [one for one in elsewhere if one.place is place]
        if are_few or (place in TELLING and 2 * len(those) <= len(doing)):
            found.append(_finding(those, len(waiters), processes))
    return tuple(ranked(found))


def where(those: Sequence[Doing]) -> str:
    """'rank 3 is in the data loader, get (data.py:7), and does not move': those who are in one place."""
    place, at = those[0].place, those[0].at
    verb = "is" if len(those) == 1 else "are"
    pace = ", and does not move" if len(those) == 1 else ", and do not move"
    if any(one.is_frozen is False for one in those):
        pace = ", still moving"
    elif not all(one.is_frozen for one in those):
        pace = ""
    said = f"{verb} {_PLACED.get((place, len(those) == 1), place.value)}" + (f", {at}" if at else "")
    return f"{named(one.rank for one in those)} {said}{pace}"


_PLACED: Final = {
    (Place.DATA_LOADER, True): "in the data loader",
    (Place.DATA_LOADER, False): "in the data loader",
    (Place.CODE, False): "in their own code",
    (Place.NOTHING, True): "in no Python call",
    (Place.NOTHING, False): "in no Python call",
}


def stack_evidence(one: Doing) -> Evidence:
    """The innermost calls of a rank's trainer, and which place they are in."""
    return Evidence(one.place.value, as_text(one.process.main[:4]), "", "stacks", one.rank)


def _finding(those: list[Doing], n_waiters: int, processes: Sequence[Process]) -> Finding:
    ranks = tuple(one.rank for one in those)
    grade = _grade(those)
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("process", named(ranks), ranks), component=Component.SOFTWARE,
        kind=FaultKind.COMPUTATION_FAIL_STOP, culprits=ranks, score=_SCORES[grade], grade=grade,
        sentence=capitalised(f"{where(those)}; {waiting(n_waiters)}."),
        evidence=(
            *(stack_evidence(one) for one in those[:EVIDENCE_RANKS_MAX]),
            *_workers(ranks, processes),
            Evidence("ranks waiting for others", n_waiters, "ranks", "stacks"),
        ),
        advice=f"`py-spy dump --native --pid {those[0].process.pid}` shows what this call waits for.",
    )  # fmt: skip


def _grade(those: list[Doing]) -> Grade:
    """A known place and two equal looks are direct.

    Code of its own, or none, may only wait for the GPU, also where it does not move: `loss.item()` leaves no frame of torch.
    """
    is_frozen = all(one.is_frozen for one in those)
    if those[0].place in TELLING:
        return Grade.STRONG if is_frozen else Grade.MODERATE
    return Grade.MODERATE if is_frozen and those[0].place not in UNSEEN else Grade.WEAK


def _workers(ranks: tuple[int, ...], processes: Sequence[Process]) -> list[Evidence]:
    """What the data-loader workers of these ranks are doing: the trainer only waits for them."""
    busy = [
        (one, place, at)
        for one in processes
        if one.rank in ranks and not one.silent and one.kind == LOADER
        for place, at in (place_of(one.main),)
        if at is not None and "multiprocessing/" not in one.main[0].file and one.main[0].file != "selectors.py"
    ]
    return [
        Evidence("data-loader worker", f"{place.value}: {at}", "", "stacks", one.rank) for one, place, at in busy[:4]
    ]
