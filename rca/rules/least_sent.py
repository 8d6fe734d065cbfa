"""Who has sent least of the op that stopped first, where the ops' own waits name nobody surely (Pulse §6.2, fail-stop).

    0 ══▶ 1 ═▶ 2 ═▶ 3 ══▶ 0      of 1 → 2 and 2 → 3 least has gone: rank 2

Asked only then: what is seen of a process or port, and counters of both ends, say more. Where they leave several open, of whom
one has sent least, it is that one; where they say nothing, it is a finding of its own. Abstains, and says why, where what had
been sent was not measured at everybody, somebody has not entered the op, or all are alike. docs/rules/least_sent.md
"""

from __future__ import annotations

from dataclasses import replace

from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Subject
from rca.flows.completion import Stopped, stopped_first
from rca.hang.progress import Progress
from rca.words import capitalised, named, score

RULE = "least_sent"
VERSION = 1
SHOWN_MAX = 4
TOLD = "`ip -s link`, `rdma statistic show`, `dmesg | grep -i -e mlx5 -e xid`"


def with_least_sent(findings: list[Finding], state: Progress) -> tuple[list[Finding], tuple[str, ...]]:
    """(findings, why nothing was added). findings: what the other rules say, best first."""
    if findings and (findings[0].grade is Grade.STRONG or findings[0].kind not in _STOPPED):
        return findings, ()
    if "traffic" not in state.window.tables or not len(state.window.rows("traffic")):
        return findings, ()  # this job is not measured
    stopped = stopped_first(state.window)
    if stopped.why is not None:
        return findings, () if findings and findings[0].culprits else (stopped.why.value,)
    if not _is_counted(state, stopped):
        kept = [one for one in findings if one.grade is Grade.STRONG or not set(one.culprits) & set(stopped.members)]
        return [_own(state, stopped), *kept], ()
    if any(one.culprits for one in findings):
        return [_agreeing(one, stopped) for one in findings], ()
    told = [_told_apart(one, stopped) for one in findings]
    return told if told != findings else [*findings, _own(state, stopped)], ()


_STOPPED = (FaultKind.COMMUNICATION_FAIL_STOP, FaultKind.COMPUTATION_FAIL_STOP, FaultKind.UNKNOWN)


def _is_counted(state: Progress, stopped: Stopped) -> bool:
    """Whether any flow of that communicator counts its chunks: what is concluded from that is surer. Without, who is
    said to have sent least of it is a guess, and the volumes say who has."""
    return bool((state.window.rows("flow")["comm_id"] == stopped.comm_id).any())


def _tied(one: Finding) -> tuple[int, ...]:
    return tuple(rank for subject in one.tied for rank in subject.ranks)


def _agreeing(one: Finding, stopped: Stopped) -> Finding:
    """A finding about who has sent least, with how much that is."""
    return (
        replace(one, evidence=(*one.evidence, *_evidence(stopped))) if set(stopped.ranks) <= set(one.culprits) else one
    )


def _told_apart(one: Finding, stopped: Stopped) -> Finding:
    """Of several who are tied the one who has sent least."""
    if not set(stopped.ranks) <= set(_tied(one)):
        return one
    who = named(stopped.ranks)
    return replace(
        one, culprits=stopped.ranks, tied=(), grade=Grade.MODERATE, evidence=(*one.evidence, *_evidence(stopped)),
        subject=Subject(one.subject.kind, who, stopped.ranks, one.subject.node),
        sentence=f"{one.sentence} Of these {who} has sent least of the op that stopped first.",
    )  # fmt: skip


def _own(state: Progress, stopped: Stopped) -> Finding:
    who = named(stopped.ranks)
    component, kind = Component.NIC, FaultKind.COMMUNICATION_FAIL_STOP
    what = (
        "the sends that are open all go to it or come from it" if stopped.is_p2p else "its connections have moved least"
    )
    if stopped.is_alone:
        component, kind = Component.PROCESS, FaultKind.COMPUTATION_FAIL_STOP
        what = "all others are through, so what it was sent has come, and it does not go on"
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("rank", who, stopped.ranks), component=component, kind=kind,
        culprits=stopped.ranks, score=score(Grade.MODERATE, 0, state.n_ranks), grade=Grade.MODERATE,
        sentence=f"{capitalised(who)} stopped first: of the op that stands, {what}.", evidence=_evidence(stopped), advice=TOLD,
    )  # fmt: skip


def _evidence(stopped: Stopped) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(f"sent to rank {peer} of op {stopped.op}" if not stopped.is_p2p else f"sent to rank {peer}",
                 round(100 * moved / whole) if whole else int(moved), "%" if whole else "bytes", "traffic", rank)
        for (rank, peer), (moved, whole) in list(stopped.sent.items())[:SHOWN_MAX]
    )  # fmt: skip
