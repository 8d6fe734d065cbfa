"""How a diagnosis of a PyTorch job is scored: named, layer right, blamed wrongly.

Pure functions of the REST API's JSON and the truth. Opposite order is named when both process groups and both sides of
the cycle are in the answer; of two that contradict each other a tie of both is right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tests.eval.torch_cases import TorchCase


@dataclass(frozen=True, slots=True)
class TorchScore:
    """One diagnosis against the truth."""

    named: bool
    layer_right: bool
    wrongly_blamed: int


NOTHING: Final = TorchScore(named=False, layer_right=False, wrongly_blamed=0)


def score_torch(case: TorchCase, diagnosis: Mapping[str, Any] | None) -> TorchScore:
    """Score of one diagnosis (JSON of rca.findings.Diagnosis); none at all, or one naming nobody, is not named."""
    findings = (diagnosis or {}).get("findings") or []
    layer = (diagnosis or {}).get("layer", "")
    if not findings:
        return TorchScore(named=False, layer_right=layer in case.layers, wrongly_blamed=0)
    best = findings[0]
    blamed = frozenset(best["culprits"])
    also = blamed.union(*(subject["ranks"] for subject in best["tied"]))
    is_tie = bool(case.tie) and not blamed and also == case.tie
    named = is_tie or (blamed in case.truth and _has_cycle(case, best))
    allowed = frozenset().union(*case.truth)
    return TorchScore(named, layer in case.layers, len(blamed - allowed))


def _has_cycle(case: TorchCase, best: Mapping[str, Any]) -> bool:
    """Whether the groups and the sides of the truth's cycle, if it has one, are in the sentence and the evidence."""
    facts = " ".join(f"{fact['what']} {fact['value']}" for fact in best["evidence"])
    words = f"{best['sentence']} {facts}"
    has_groups = all(re.search(rf"\b{group}\b", words) for group in case.groups)
    return has_groups and all(_named(side) in words.lower() for side in case.sides)


def _named(ranks: frozenset[int]) -> str:
    """As a sentence says it."""
    shown = sorted(ranks)
    return f"rank {shown[0]}" if len(shown) == 1 else f"ranks {', '.join(map(str, shown[:-1]))} and {shown[-1]}"


def worse(first: TorchScore, second: TorchScore) -> TorchScore:
    """What both diagnoses that count have right, and all that either has wrong."""
    return TorchScore(
        named=first.named and second.named,
        layer_right=first.layer_right and second.layer_right,
        wrongly_blamed=max(first.wrongly_blamed, second.wrongly_blamed),
    )
