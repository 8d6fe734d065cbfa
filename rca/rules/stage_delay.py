"""A rank that is late in one stage of its training step, by what its recorder says (StageFrontier §4, §6).

    rank 3   data ████████████ fwd ██ bwd ██          the frontier advances by 120 ms in data, led by rank 3 in every
    others   data ██ fwd ██ bwd ████████████          step; the others wait for it in backward

Speaks only of a window whose step has moved against the job's normal and that has a strong label. Where all ranks are alike
by their stages, the one that enters the group's ops last is named. A rank is named only where it is later than usual by most
of what was added to the step; else the group is the subject. Abstains from everything else: an unlocalised slowdown is
nobody's. docs/rules/stage_delay.md
"""

from __future__ import annotations

import numpy as np

from ingest.window import Window
from rca.findings import Evidence, FaultKind, Finding, Grade, Subject
from rca.frontier.groups import DECLARED
from rca.frontier.moved import Verdict
from rca.frontier.report import STRONG, Label
from rca.frontier.told import Told
from rca.frontier.words import component_of, doing, profile_commands
from rca.settings import SECOND_NS, Settings
from rca.words import named

RULE = "stage_delay"
VERSION = 3


def explain(told: Told, window: Window, settings: Settings) -> tuple[Finding, ...]:
    """The finding of one window of one group; () when its step has not moved, or no stage may be called the cause."""
    del settings
    if told.verdict is not Verdict.ROUTED or not told.stage:
        return ()
    rank, is_host = told.rank, Label.FORWARD_HOST_OVERHEAD_SUSPECTED in told.labels
    node, pid = _place(window, rank)
    who = named((rank,)) if rank is not None else _group(told)
    return (
        Finding(
            rule=RULE, version=VERSION, subject=_subject(told, rank, node), component=component_of(
                told.stage, is_host_work=is_host
            ), kind=FaultKind.COMPUTATION_FAIL_SLOW if rank is not None else FaultKind.GROUP_ANOMALY,
            culprits=() if rank is None else (rank,), score=0.8 if rank is not None else 0.4,
            grade=Grade.MODERATE if rank is not None else Grade.WEAK, sentence=_sentence(told, who),
            evidence=_evidence(told), advice=_advice(told, rank, node, pid),
            began_ns=told.start_ns,
        ),
    )  # fmt: skip


def _place(window: Window, rank: int | None) -> tuple[str, int]:
    """Node and process number of a rank, as far as they are known."""
    if rank is None:
        return "", 0
    at = np.flatnonzero(window.ranks["rank"] == rank)
    if not len(at):
        return "", 0
    row = window.ranks[at[0]]
    node = str(window.nodes["name"][row["node"]]) if 0 <= row["node"] < len(window.nodes) else ""
    return node, int(row["pid"])


def _group(told: Told) -> str:
    return f"the group {told.role}" if told.role else "the whole group"


def _subject(told: Told, rank: int | None, node: str) -> Subject:
    if rank is None:
        return Subject("stage", told.stage)
    return Subject("rank", named((rank,)), (rank,), node)


def _sentence(told: Told, who: str) -> str:
    said = f"{who[:1].upper()}{who[1:]} {doing(told.stage)}"
    share = f"{told.share:.0%} of the exposed time of steps {told.first_step:,} to {told.last_step:,}"
    if told.rank is None:
        return f"{said}: {share}{_how_spread(told)}."
    if told.is_settled:
        return f"{said}, though the host sees it later: it enters the group's ops last by {told.late_s * 1e3:.0f} ms."
    if told.is_tie_broken:
        return f"{said}: all ranks are alike by their stages, but it enters the group's ops last by {told.late_s * 1e3:.0f} ms."
    if told.rank != told.leader:
        return f"{said}: it enters the group's ops last by {told.late_s * 1e3:.0f} ms."
    return (
        f"{said}: {told.lead_s * 1e3:.0f} ms later than any other rank in {_steps(told.n_led, told.n_steps)}, {share}."
    )


def _how_spread(told: Told) -> str:
    """How the time lies over the ranks of a group of which none is the culprit, as a clause."""
    if told.leader is not None:
        return f"; rank {told.leader} is late by more, but that is {max(told.explains, 0):.0%} of what was added to the step"
    if told.takes_turns:
        ranks = ", ".join(str(rank) for rank in told.takes_turns)
        return f"; ranks {ranks} are late in turn, none of them in most steps"
    if told.is_alike:
        return ", on all ranks alike"
    return f"; the latest rank is {told.lag_s * 1e3:.0f} ms behind the middle one, and none stands out in most steps"


def _steps(n: int, of: int) -> str:
    return "every step" if n == of else f"{n} of {of} steps"


def _evidence(told: Told) -> tuple[Evidence, ...]:
    found = [
        Evidence("stage", told.stage, "", "stage", told.rank),
        Evidence("step, usual", round(told.usual_s, 4), "s", "stage"),
        Evidence("step, now", round(told.step_s, 4), "s", "stage"),
        Evidence(f"frontier share of {told.stage}", round(told.share, 3), "share", "stage", told.rank),
    ]
    if told.leader is not None:
        found += [
            Evidence("later than any other rank by", round(told.lead_s * 1e3, 1), "ms per step", "stage", told.leader),
            Evidence("of what was added to the step", round(told.explains, 3), "share", "stage", told.leader),
        ]
    if told.last is not None:
        found.append(
            Evidence("enters the group's ops last by", round(told.late_s * 1e3, 1), "ms per step", "op", told.last)
        )
    strong = ", ".join(one.value for one in told.labels if one in STRONG)
    return (
        *found,
        Evidence("labels", strong, "", "stage"),
        Evidence("wait model", told.why or "not asked", "", "stage" if told.why.startswith(DECLARED) else "comm"),
    )


def _advice(told: Told, rank: int | None, node: str, pid: int) -> str:
    if rank is None and told.takes_turns:
        return "Profile one of these ranks in this stage: what comes and goes on changing ranks is often shared, as storage is."
    if rank is None and not told.is_alike and told.leader is None:
        return "Profile several ranks in this stage: some are later than others, and none of them all the time."
    if rank is None:
        return "Profile any rank in this stage: it takes longer everywhere, so look for a change of the job's own work."
    commands = profile_commands(told.stage, rank, node, pid, told.last_step)
    on = f" on {node}" if node else ""
    seconds = (told.end_ns - told.start_ns) / SECOND_NS
    return (
        f"Profile rank {rank}{on}; the window was steps {told.first_step:,} to {told.last_step:,}, {seconds:.0f} s:"
        f" `{commands[0]}`\nOr: `{commands[1]}`\n"
        "A rank is not a node: before anything is drained, see whether the rank stays late elsewhere, or its node's other"
        " ranks are late, too."
    )
