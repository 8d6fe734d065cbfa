"""How a diagnosis is scored against what was injected: named, tied, component right, wrongly blamed.

Pure functions of the REST API's JSON and the truth, so that the scoring itself is unit-tested. Two diagnoses of an
incident count, the first and the one 30 s later; what either has wrong is wrong. A set that merely contains the truth is tied,
not named; so is a link of which one end is meant, except where the truth says that the two ends may look alike.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from nccl_instrument.simulate.faults import KINDS
from rca.findings import Component, FaultKind, Grade

Answer = tuple[Component, FaultKind]

LIVE_FAULTS: Final[dict[str, Answer]] = {
    "nic_limit": (Component.NIC, FaultKind.COMMUNICATION_FAIL_SLOW),
    "slow_copies": (Component.COPY, FaultKind.COMPUTATION_FAIL_SLOW),
    "slow_compute": (Component.GPU, FaultKind.COMPUTATION_FAIL_SLOW),
    "proxy_sleep": (Component.PROXY, FaultKind.COMPUTATION_FAIL_SLOW),
}
FAULTS: Final[dict[str, Answer]] = LIVE_FAULTS | {
    name: (Component(kind.component), FaultKind(kind.kind)) for name, kind in KINDS.items() if not kind.is_healthy
}
"""Fault (of the testbed or the simulator) → what a right diagnosis must say: the evaluation's fault table."""
LINK_WILL_DO: Final = ("nic_down",)
"""Faults of which "link A–B" is right where the two ends cannot be told apart and the diagnosis says so."""
COMMUNICATION, COMPUTATION = "communication", "computation"


@dataclass(frozen=True, slots=True)
class Truth:
    """What was injected: the fault and the ranks to be blamed, none for what befell everybody.

    others: sets as right as `ranks` (both sides of a deadlock's cycle). group: the two of a mismatch without a majority.
    whole: "node" or "nic" where one of these is at fault, so that naming it is as right as naming all its ranks.
    """

    fault: str
    ranks: frozenset[int]
    others: tuple[frozenset[int], ...] = ()
    group: frozenset[int] = frozenset()
    whole: str = ""


@dataclass(frozen=True, slots=True)
class Score:
    """One diagnosis against the truth, by its best finding. right_nodes: of the culprits, the true ones where the kind is right,
    too; wrong_nodes: the others. blamed_beside: ranks outside the truth that other findings, more than weak ones, name."""

    named: bool
    component_right: bool
    tied: bool
    wrongly_blamed: int
    machine_level: bool = False
    group_level: bool = False
    misjudged: bool = False
    is_kind_right: bool = False
    right_nodes: frozenset[str] = frozenset()
    wrong_nodes: frozenset[str] = frozenset()
    blamed_beside: int = 0


NOTHING: Final = Score(named=False, component_right=False, tied=False, wrongly_blamed=0)
NodeOf = Callable[[int], str]


def node_unknown(rank: int) -> str:
    """Where nobody asks for nodes, every rank is its own."""
    return f"rank {rank}"


def score_diagnosis(truth: Truth, diagnosis: Mapping[str, Any] | None, node_of: NodeOf = node_unknown) -> Score:
    """Score of one diagnosis (JSON of rca.findings.Diagnosis); none at all, or one naming nobody, scores NOTHING."""
    findings = (diagnosis or {}).get("findings") or []
    if not findings:
        return NOTHING
    best = findings[0]
    blamed, also = _accused(best)
    named = _is_named(truth, best, blamed, also)
    nodes = _reported(best, blamed, also, node_of) or _nodes(truth.ranks if named else (), node_of)
    true_nodes, is_right_kind = _nodes(truth.ranks, node_of), _is_kind(FaultKind(best["kind"]), truth.fault)
    right_nodes = nodes & true_nodes if is_right_kind else frozenset[str]()
    is_machine = named or (bool(nodes) and nodes == true_nodes)
    allowed = truth.ranks.union(*truth.others)
    component, kind = Component(best["component"]), FaultKind(best["kind"])
    return Score(
        named=named,
        component_right=component is FAULTS[truth.fault][0] and is_right_kind,
        tied=not named and bool(truth.ranks) and truth.ranks <= also,
        wrongly_blamed=len(blamed - allowed),
        machine_level=is_machine,
        group_level=not is_machine and bool(truth.ranks) and truth.ranks <= also.union(_subject(best).get("ranks", ())),
        misjudged=_is_misjudged(truth.fault, component, kind),
        is_kind_right=is_right_kind,
        right_nodes=right_nodes,
        wrong_nodes=nodes - right_nodes,
        blamed_beside=len(_named_by(findings[1:]) - blamed - allowed),
    )


def _accused(best: Mapping[str, Any]) -> tuple[frozenset[int], frozenset[int]]:
    """(ranks blamed, these and those that it may be as well)."""
    blamed = frozenset(best["culprits"])
    return blamed, blamed.union(*(subject["ranks"] for subject in best["tied"]))


def _named_by(findings: Iterable[Mapping[str, Any]]) -> frozenset[int]:
    """Culprits of these findings that are more than weak."""
    return frozenset(rank for one in findings if one["grade"] != Grade.WEAK for rank in one["culprits"])


def _is_named(truth: Truth, best: Mapping[str, Any], blamed: frozenset[int], also: frozenset[int]) -> bool:
    kind = FaultKind(best["kind"])
    if not truth.ranks:
        return not blamed and not also and kind is FaultKind.GROUP_ANOMALY
    if blamed == truth.ranks or blamed in truth.others:
        return True
    if truth.whole and _subject(best).get("kind") == truth.whole and blamed and blamed < truth.ranks:
        return True  # those of its ranks that the network shows
    if truth.group and kind is FaultKind.MISMATCH and also == truth.group:
        return True
    is_link = truth.fault in LINK_WILL_DO and _subject(best).get("kind") == "link" and not blamed
    return is_link and len(best["tied"]) == 2 and any(frozenset(end["ranks"]) == truth.ranks for end in best["tied"])


def _reported(best: Mapping[str, Any], blamed: frozenset[int], also: frozenset[int], node_of: NodeOf) -> frozenset[str]:
    """Nodes of the culprits; where no rank is blamed, the one node that holds all it could be."""
    places = _nodes(also.union(_subject(best).get("ranks", ())), node_of)
    return _nodes(blamed, node_of) if blamed else places if len(places) == 1 else frozenset()


def _subject(best: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = best.get("subject") or {}
    return found


def _nodes(ranks: Iterable[int], node_of: NodeOf) -> frozenset[str]:
    return frozenset(node_of(rank) for rank in ranks)


def _is_kind(kind: FaultKind, fault: str) -> bool:
    wanted = FAULTS[fault][1]
    orders = (FaultKind.MISMATCH, FaultKind.DEADLOCK)
    return kind is wanted or (kind in orders and wanted in orders)


def family(component: Component, kind: FaultKind) -> str:
    """Communication or computation; "" where an anomaly is neither."""
    if kind is FaultKind.GROUP_ANOMALY:
        return COMMUNICATION if component in (Component.NETWORK, Component.NIC) else COMPUTATION
    return next((name for name in (COMMUNICATION, COMPUTATION) if kind.value.startswith(name)), "")


def _is_misjudged(fault: str, component: Component, kind: FaultKind) -> bool:
    wanted, said = family(*FAULTS[fault]), family(component, kind)
    return bool(wanted and said) and wanted != said


def score_false(diagnosis: Mapping[str, Any] | None, node_of: NodeOf = node_unknown) -> Score:
    """Score of a diagnosis of what was no fault: whoever is named is blamed wrongly."""
    findings = (diagnosis or {}).get("findings") or []
    if not findings:
        return NOTHING
    blamed, also = _accused(findings[0])
    nodes, beside = _reported(findings[0], blamed, also, node_of), _named_by(findings[1:]) - blamed
    return replace(NOTHING, wrongly_blamed=len(blamed), wrong_nodes=nodes, blamed_beside=len(beside))


def score_incident(
    truth: Truth | None, diagnoses: Sequence[Mapping[str, Any] | None], node_of: NodeOf = node_unknown
) -> Score:
    """Score of an incident by the first and the last of these diagnoses. truth: None where there was no fault (yet)."""
    scores = [score_false(one, node_of) if truth is None else score_diagnosis(truth, one, node_of) for one in diagnoses]
    return worse(scores[0], scores[-1]) if scores else NOTHING


def node_counts(score: Score, true_nodes: frozenset[str], n_nodes: int) -> dict[str, int]:
    """Right nodes of the right kind, wrongly reported ones, missed ones, and all others of so many."""
    right, wrong = score.right_nodes, score.wrong_nodes
    return {
        "true_positives": len(right), "false_positives": len(wrong), "false_negatives": len(true_nodes - right),
        "true_negatives": n_nodes - len(true_nodes | wrong),
    }  # fmt: skip


def worse(first: Score, second: Score) -> Score:
    """What both diagnoses that count have right, and all that either has wrong."""
    named, machine_level = first.named and second.named, first.machine_level and second.machine_level
    return Score(
        named=named,
        component_right=first.component_right and second.component_right,
        tied=not named and all(one.named or one.tied for one in (first, second)),
        wrongly_blamed=max(first.wrongly_blamed, second.wrongly_blamed),
        machine_level=machine_level,
        group_level=not machine_level and all(one.machine_level or one.group_level for one in (first, second)),
        misjudged=first.misjudged or second.misjudged,
        is_kind_right=first.is_kind_right and second.is_kind_right,
        right_nodes=first.right_nodes & second.right_nodes,
        wrong_nodes=first.wrong_nodes | second.wrong_nodes,
        blamed_beside=max(first.blamed_beside, second.blamed_beside),
    )


def quantiles(values: Iterable[float]) -> dict[str, float | None]:
    """{"p50", "p90", "max"} of seconds, rounded to 10 ms; None where nothing was measured."""
    found = sorted(values)
    if not found:
        return {"p50": None, "p90": None, "max": None}
    p90 = found[min(len(found) - 1, int(0.9 * len(found)))]
    return {"p50": round(statistics.median(found), 2), "p90": round(p90, 2), "max": round(found[-1], 2)}
