"""What a stored window packet tells a diagnosis: read back from its JSON, without the rows it was made of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from rca.frontier.entered import Last
from rca.frontier.moved import Moved, Verdict, next_look
from rca.frontier.packet import Packet
from rca.frontier.report import Label


@dataclass(frozen=True, slots=True)
class Told:
    """One window of one group. stage: that leads, as op traces settled it; leader: the rank that leads it clearly; last:
    the rank that enters the group's ops last. exposed_s: of the leading stage per step; next_look: what to do, a sentence."""

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

    @property
    def rank(self) -> int | None:
        """The one rank that stages, or the ops where stages are alike, name."""
        return self.leader if self.leader is not None else self.last

    @property
    def is_tie_broken(self) -> bool:
        """Whether only the ops say which rank it is."""
        return self.leader is None and self.last is not None


def verdict_json(found: Moved, last: Last | None, settled: str, packet: Packet) -> dict[str, Any]:
    """What the packet's body says of the verdict, and of who enters last."""
    entered = None
    if last is not None:
        entered = {
            "rank": last.rank, "late_ms": round(last.late_s * 1e3, 3), "n_steps": last.n_steps, "of": last.of,
            "is_on_device": last.is_on_device, "settled": settled,
        }  # fmt: skip
    return {
        "verdict": found.verdict.value, "step_s": found.step_s, "usual_s": found.usual_s, "n_usual": found.n_usual,
        "threshold_s": found.threshold_s, "growth": dict(found.growth), "entered": entered,
        "next_look": next_look(found, packet.report),
    }  # fmt: skip


def told_of(role: str, body: Mapping[str, Any]) -> Told:
    """Of a stored packet. KeyError or ValueError when it is none of ours."""
    report, verdict = body["report"], body["verdict"]
    entered = verdict["entered"] or {}
    leading = report["routing"][0] if report["routing"] else ""
    stage = entered.get("settled") or leading
    return Told(
        role=role, start_ns=body["start_ns"], end_ns=body["end_ns"], first_step=body["first_step"],
        last_step=body["last_step"], verdict=Verdict(verdict["verdict"]), step_s=verdict["step_s"],
        usual_s=verdict["usual_s"], stage=stage, share=float(report["shares"].get(leading, 0.0)),
        labels=tuple(Label(one) for one in report["labels"]), leader=report["at"]["leader"],
        lead_s=report["at"]["lead_s"], tied=tuple(report["at"]["tied"]), n_tied=report["at"]["n_tied"],
        last=entered.get("rank"), late_s=float(entered.get("late_ms", 0.0)) / 1e3,
        is_settled=bool(entered.get("settled")) and entered["settled"] != leading, why=report["why"],
        downgrades=tuple(report["downgrades"]), growth=verdict["growth"], next_look=verdict["next_look"],
        n_ranks=report["n_ranks"],
    )  # fmt: skip
