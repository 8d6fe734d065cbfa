"""What a stored window packet tells a diagnosis: read back from its JSON, without the rows it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from rca.frontier.entered import Last
from rca.frontier.moved import EXPLAINS_MIN, Moved, Verdict, next_look
from rca.frontier.report import Label, Report

ALIKE_SHARE: Final = 0.05
"""Of the step: who is late by less is no later than the others."""


@dataclass(frozen=True, slots=True)
class Told:
    """One window of one group, of the steps that last (judging.py). stage: that leads, as op traces settled it; place: its
    number in the order of stages; leader: the rank that leads it clearly, in n_led of n_steps steps; leaders: whoever leads
    some, and how many, most first; lag_s: the latest before the median rank; last: the rank that enters the group's ops last.
    explains: share of what was added to the step that the leader is later by; next_look: what to do, a sentence."""

    role: str
    start_ns: int
    end_ns: int
    first_step: int
    last_step: int
    verdict: Verdict
    step_s: float
    usual_s: float
    stage: str
    share: float
    labels: tuple[Label, ...]
    leader: int | None
    lead_s: float
    tied: tuple[int, ...]
    n_tied: int
    last: int | None
    late_s: float
    is_settled: bool
    why: str
    downgrades: tuple[str, ...]
    growth: Mapping[str, float] = field(default_factory=dict)
    next_look: str = ""
    n_ranks: int = 0
    n_steps: int = 0
    n_led: int = 0
    leaders: tuple[tuple[int, int], ...] = ()
    lag_s: float = 0.0
    explains: float = 1.0
    place: int = 0

    @property
    def rank(self) -> int | None:
        """The one rank that stages, or the ops where stages are alike, name: one that is late by most of what was added."""
        if self.leader is not None and self.explains >= EXPLAINS_MIN:
            return self.leader
        is_why = self.late_s >= EXPLAINS_MIN * (self.step_s - self.usual_s)
        return self.last if self.last is not None and is_why else None

    @property
    def is_tie_broken(self) -> bool:
        """Whether only the ops say which rank it is, all being alike by their stages."""
        return self.leader is None and self.rank is not None and self.is_alike

    @property
    def is_alike(self) -> bool:
        """Whether no rank ends the stage much later than the median one."""
        return self.lag_s < ALIKE_SHARE * self.step_s

    @property
    def takes_turns(self) -> tuple[int, ...]:
        """The ranks that lead clearly by turns, where none does in most steps; () else."""
        ranks = tuple(rank for rank, times in self.leaders if times > 1)
        return ranks if self.leader is None and len(ranks) > 1 and not self.is_alike else ()


def verdict_json(found: Moved, last: Last | None, settled: str, report: Report) -> dict[str, Any]:
    """What the packet's body says of the verdict, and of who enters last. report: what the verdict rests on."""
    entered = None
    if last is not None:
        entered = {
            "rank": last.rank, "late_ms": round(last.late_s * 1e3, 3), "n_steps": last.n_steps, "of": last.of,
            "is_on_device": last.is_on_device, "settled": settled,
        }  # fmt: skip
    return {
        "verdict": found.verdict.value, "step_s": found.step_s, "usual_s": found.usual_s, "n_usual": found.n_usual,
        "threshold_s": found.threshold_s, "growth": dict(found.growth), "explains": found.explains, "entered": entered,
        "next_look": next_look(found, report),
    }  # fmt: skip


def told_of(role: str, body: Mapping[str, Any]) -> Told:
    """Of a stored packet. KeyError or ValueError when it is none of ours."""
    report, verdict = body.get("lasting") or body["report"], body["verdict"]
    at, stages = report["at"], body["steps"]["stages"]
    entered = verdict["entered"] or {}
    leading = report["routing"][0] if report["routing"] else ""
    stage = entered.get("settled") or leading
    return Told(
        role=role, start_ns=body["start_ns"], end_ns=body["end_ns"], first_step=body["first_step"],
        last_step=body["last_step"], verdict=Verdict(verdict["verdict"]), step_s=verdict["step_s"],
        usual_s=verdict["usual_s"], stage=stage, share=float(report["shares"].get(leading, 0.0)),
        labels=tuple(Label(one) for one in report["labels"]), leader=at["leader"], lead_s=at["lead_s"],
        tied=tuple(at["tied"]), n_tied=at["n_tied"], last=entered.get("rank"),
        late_s=float(entered.get("late_ms", 0.0)) / 1e3,
        is_settled=bool(entered.get("settled")) and entered["settled"] != leading, why=report["why"],
        downgrades=tuple(report["downgrades"]), growth=verdict["growth"], next_look=verdict["next_look"],
        n_ranks=report["n_ranks"], n_steps=report["n_steps"], n_led=at.get("n_led", at["n_clear"]),
        leaders=tuple((rank, times) for rank, times in at.get("leaders", ())), lag_s=at["lag_s"],
        explains=verdict.get("explains", 1.0), place=stages.index(stage) if stage in stages else len(stages),
    )  # fmt: skip
