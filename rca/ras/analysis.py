"""From a RAS report to findings: members that are missing, and members that launched fewer ops than the rest.

Ranks that are behind are named only when they are the few: where the few are ahead, the many that are behind may simply be
between two ops. Nobody is named by equal counts, and one report does not show that anything stands still.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Subject
from rca.ras.report import RasCommunicator, RasMember, RasMissing, RasReport, Where
from rca.words import capitalised, named

RULE: Final = "ras"
VERSION: Final = 1
EVIDENCE_MAX: Final = 16
FINDINGS_MAX: Final = 5


def findings_of(report: RasReport) -> tuple[Finding, ...]:
    """Missing members first, then those behind; () when RAS names nobody."""
    ranks = global_ranks(report)
    found = [one for comm in report.communicators for one in (_missing(comm, ranks), _behind(comm, ranks)) if one]
    best: dict[tuple[int, ...], Finding] = {}
    for one in sorted(found, key=lambda one: -one.score):
        best.setdefault(one.culprits, one)
    return tuple(list(best.values())[:FINDINGS_MAX])


def global_ranks(report: RasReport) -> dict[Where, int]:
    """Member → its rank in the largest communicator: the job's rank when that one holds all of it."""
    if not report.communicators:
        return {}
    largest = max(report.communicators, key=lambda comm: (comm.size, len(comm.members) + len(comm.missing)))
    everybody: tuple[RasMember | RasMissing, ...] = (*largest.members, *largest.missing)
    return {one.where: one.rank for one in everybody}


def _rank(one: RasMember | RasMissing, ranks: dict[Where, int]) -> int:
    return ranks.get(one.where, one.rank)


def _missing(comm: RasCommunicator, ranks: dict[Where, int]) -> Finding | None:
    if not comm.missing:
        return None
    culprits = tuple(sorted({_rank(one, ranks) for one in comm.missing}))
    is_dead = all(one.is_dead for one in comm.missing)
    said = f"{named(culprits)} {'gave no sign of life to' if is_dead else 'did not answer'} NCCL's RAS"
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("process", named(culprits), culprits), component=Component.PROCESS,
        kind=FaultKind.COMPUTATION_FAIL_STOP, culprits=culprits, score=0.8 if is_dead else 0.6,
        grade=Grade.MODERATE if is_dead else Grade.WEAK, sentence=f"{capitalised(said)} (communicator {comm.name}).",
        evidence=tuple(
            Evidence("missing", f"process {one.where[1]}, GPU {one.where[2]} on {one.where[0]}", "", "ras", _rank(one, ranks))
            for one in comm.missing[:EVIDENCE_MAX]
        ),
        advice="On these nodes: `ps -o pid,stat,wchan:32,cmd -p PID`, `dmesg | grep -i -e xid -e oom`.",
    )  # fmt: skip


def _behind(comm: RasCommunicator, ranks: dict[Where, int]) -> Finding | None:
    """Members, fewer than half, that launched fewer ops of some kind than the others."""
    best: tuple[str, int, list[RasMember]] | None = None
    for kind in {kind for one in comm.members for kind in one.counts} | comm.others.keys():
        counts = Counter({count: n for n, count in [comm.others[kind]]} if kind in comm.others else {})
        counts.update(one.counts[kind] for one in comm.members if kind in one.counts)
        if len(counts) < 2:
            continue
        most = max(counts)
        those = [one for one in comm.members if one.counts.get(kind, most) < most]
        if len(those) > 0 and 2 * counts[most] > counts.total() and (best is None or len(those) < len(best[2])):
            best = (kind, most, those)
    if best is None:
        return None
    kind, most, those = best
    culprits = tuple(sorted({_rank(one, ranks) for one in those}))
    said = f"{named(culprits)} launched fewer {kind} than the others of communicator {comm.name}"
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("rank", named(culprits), culprits), component=Component.SOFTWARE,
        kind=FaultKind.COMPUTATION_FAIL_STOP, culprits=culprits, score=0.7, grade=Grade.MODERATE,
        sentence=f"{capitalised(said)}.",
        evidence=tuple(
            Evidence(f"{kind} launched", f"{one.counts[kind]} of {most}", "", "ras", _rank(one, ranks))
            for one in those[:EVIDENCE_MAX]
        ),
        advice="Look at the Python stacks of these ranks: `py-spy dump --pid PID`.",
    )  # fmt: skip
