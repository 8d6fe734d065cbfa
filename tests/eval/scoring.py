"""How a diagnosis is scored against what was injected: named, tied, component right, wrongly blamed.

Pure functions of the REST API's JSON and the truth, so that the scoring itself is unit-tested. Two diagnoses of an
incident count, the first and the one 30 s later; the worse is the score. A set that merely contains the truth is tied,
not named.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from rca.findings import Component, FaultKind

FAULTS: Final[dict[str, tuple[Component, FaultKind]]] = {
    "nic_down": (Component.NIC, FaultKind.COMMUNICATION_FAIL_STOP),
    "rank_frozen": (Component.PROCESS, FaultKind.COMPUTATION_FAIL_STOP),
    "rank_killed": (Component.PROCESS, FaultKind.COMPUTATION_FAIL_STOP),
    "proxy_sleep": (Component.PROXY, FaultKind.COMPUTATION_FAIL_SLOW),
    "stuck_before": (Component.SOFTWARE, FaultKind.COMPUTATION_FAIL_STOP),
}
"""Fault → what a right diagnosis must say; the rows of the fault table that the spine injects."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What was injected: the fault's name and the set of ranks that are to be blamed."""

    fault: str
    ranks: frozenset[int]


@dataclass(frozen=True, slots=True)
class Score:
    """One diagnosis against the truth; ordered by how good it is (larger is better)."""

    named: bool
    component_right: bool
    tied: bool
    wrongly_blamed: int

    @property
    def goodness(self) -> tuple[bool, bool, int, bool]:
        return (self.named, self.component_right, -self.wrongly_blamed, self.tied)


NOTHING: Final = Score(named=False, component_right=False, tied=False, wrongly_blamed=0)


def score_diagnosis(truth: Truth, diagnosis: dict[str, Any] | None) -> Score:
    """Score of one diagnosis (JSON of rca.findings.Diagnosis); none at all, or one naming nobody, scores NOTHING."""
    findings = (diagnosis or {}).get("findings") or []
    if not findings:
        return NOTHING
    best = findings[0]
    blamed = frozenset(best["culprits"])
    also = blamed.union(*(subject["ranks"] for subject in best["tied"]))
    named = blamed == truth.ranks
    return Score(
        named=named,
        component_right=(best["component"], best["kind"]) == FAULTS[truth.fault],
        tied=not named and truth.ranks <= also,
        wrongly_blamed=len(blamed - truth.ranks),
    )


def worse(first: Score, second: Score) -> Score:
    """The worse of the two diagnoses that count."""
    return min(first, second, key=lambda score: score.goodness)


def quantiles(values: Iterable[float]) -> dict[str, float | None]:
    """{"p50", "p90", "max"} of seconds, rounded to 10 ms; None where nothing was measured."""
    found = sorted(values)
    if not found:
        return {"p50": None, "p90": None, "max": None}
    p90 = found[min(len(found) - 1, int(0.9 * len(found)))]
    return {"p50": round(statistics.median(found), 2), "p90": round(p90, 2), "max": round(found[-1], 2)}
