"""One case of the suite `localization`, from its simulation to its score, as a row that can be kept.

The job's batches reach the watch in the order they would reach a server; the simulation ends when the second diagnosis
that counts is known, or when patience is over. What is true of the fault is used for scoring alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Final

from ingest.window import save_window
from nccl_instrument.simulate.faults import KINDS, truth
from nccl_instrument.simulate.files import in_order
from nccl_instrument.simulate.job import SimulatedJob
from nccl_instrument.simulate.layout import Layout
from rca.findings import Diagnosis, FaultKind, to_json
from tests.eval.localization_cases import FROM_THE_START, HEALTHY_SECONDS, Case
from tests.eval.scoring import FAULTS, Score, Truth, node_counts, score_incident
from tests.eval.watching import SECOND, SETTLE_NS, Followed, Watch

Row = dict[str, Any]
PATIENCE_SECONDS: Final = 60.0  # of data, for an incident after a fault
AFTERWARDS_SECONDS: Final = 35.0  # of data, after something healthy
PAUSE_SECONDS: Final = 3.0  # between looks


def run_case(case: Case, tell: Callable[[float], None] = lambda share: None, windows: Path | None = None) -> Row:
    """The case's row: what it was, what was said, how it scores and how long it took.

    windows: folder for the window of the newest diagnosis, for `python -m rca`.
    """
    with closing(SimulatedJob(case.settings)) as job:
        return follow_case(case, job, Watch(int(PAUSE_SECONDS * SECOND)), tell, windows)


def follow_case(
    case: Case,
    job: SimulatedJob,
    watch: Watch,
    tell: Callable[[float], None] = lambda share: None,
    windows: Path | None = None,
) -> Row:
    """The case's row, by the rest of its job's life; of a job that others share its own part of the time."""
    began_s, began_cpu_s = time.monotonic(), time.process_time()
    _follow(watch, job, case, seconds_at_most(case), tell)
    happened = truth(case.fault, case.layout, case.settings.origin_ns)
    if windows is not None and watch.evidence is not None:
        windows.mkdir(parents=True, exist_ok=True)
        save_window(windows / f"{case.gpus}-{case.number}.npz", watch.evidence)
    took = {"took_s": round(time.monotonic() - began_s, 1), "cpu_s": round(time.process_time() - began_cpu_s, 1)}
    return {**describe(case), **took, **result(case, watch.incident, happened)}


def seconds_at_most(case: Case) -> float:
    """How much of the job is simulated unless all is known earlier."""
    if not case.is_healthy:
        return case.fault.start_s + PATIENCE_SECONDS + SETTLE_NS / SECOND
    if case.fault.name in FROM_THE_START:
        return max(HEALTHY_SECONDS, case.fault.start_s + 70 * case.iteration_s)
    return case.fault.start_s + case.fault.amount + AFTERWARDS_SECONDS


def _follow(watch: Watch, job: SimulatedJob, case: Case, total_s: float, tell: Callable[[float], None]) -> None:
    origin_ns = case.settings.origin_ns
    for now_ns in watch.follow(in_order(job.batches(total_s))):
        at_s = (now_ns - origin_ns) / SECOND
        tell(min(at_s / total_s, 1.0))
        if watch.incident is None:
            if not case.is_healthy and at_s > case.fault.start_s + PATIENCE_SECONDS:
                return
        elif watch.incident.is_settled(now_ns):
            return


def describe(case: Case) -> Row:
    """What a reader of a miss wants to know."""
    layout, physics = case.layout, case.physics
    return {
        "seed": case.seed, "gpus": case.gpus, "number": case.number, "row": case.row, "fault": case.fault.name,
        "amount": round(case.fault.amount, 3), "slowdown": case.slowdown, "ranks": list(case.fault.ranks),
        "layout": asdict(layout), "transport": case.transport, "dp_reduce": physics.dp_reduce,
        "iteration_s": case.iteration_s, "start_s": case.fault.start_s, "command": case.command,
    }  # fmt: skip


def result(case: Case, incident: Followed | None, happened: Row) -> Row:
    """Score and words. Of a healthy job the incident itself is the miss; so is one before the fault began."""
    starts_ns = int(happened["starts_ns"])
    is_false = incident is not None and (case.is_healthy or incident.triggered_ns < starts_ns)
    found: Row = {"healthy": case.is_healthy, "false_incident": is_false, "said": _said(incident)}
    true, answers = true_of(happened), [] if incident is None else [_json(incident.first), _json(incident.answer)]
    score = score_incident(None if is_false else true, answers, partial(node_name, case.layout))
    if case.is_healthy:
        blamed = {"wrongly_blamed": score.wrongly_blamed, "blamed_beside": score.blamed_beside}
        return {**found, **blamed, **node_counts(score, frozenset(), case.layout.n_nodes)}
    detect_s = None if incident is None or is_false else round((incident.triggered_ns - starts_ns) / SECOND, 2)
    return {**found, "detect_s": detect_s, "truth": sorted(true.ranks)[:16], **score_json(case, true, score)}


def _json(diagnosis: Diagnosis | None) -> Row | None:
    return to_json(diagnosis) if diagnosis is not None else None


def node_name(layout: Layout, rank: int) -> str:
    return f"node{rank // layout.ranks_per_node}"


def true_of(happened: Row) -> Truth:
    """What a right diagnosis names, from the side file."""
    cycle = (frozenset(happened["cycle"]),) if happened["cycle"] else ()
    ranks, tie = frozenset(happened["ranks"]), frozenset(happened["tie"])
    return Truth(happened["fault"], ranks, cycle, tie, KINDS[happened["fault"]].target)


def score_json(case: Case, true: Truth, score: Score) -> Row:
    """How right it is, with the nodes it counts."""
    true_nodes = frozenset(node_name(case.layout, rank) for rank in true.ranks)
    return {
        "named": score.named, "component_right": score.component_right, "tied": score.tied,
        "wrongly_blamed": score.wrongly_blamed, "blamed_beside": score.blamed_beside,
        "machine_level": score.machine_level, "group_level": score.group_level, "misjudged": score.misjudged,
        **node_counts(score, true_nodes, case.layout.n_nodes), "type": type_of(FAULTS[case.fault.name][1]),
    }  # fmt: skip


def type_of(kind: FaultKind) -> str:
    """One of Pulse's four anomaly types, else the kind itself."""
    return kind.value.replace("computation", "comp").replace("communication", "comm")


def _said(incident: Followed | None) -> list[str]:
    if incident is None:
        return []
    return [incident.symptom.sentence, *(_answer(one) for one in (incident.first, incident.answer))]


def _answer(diagnosis: Diagnosis | None) -> str:
    if diagnosis is None or not diagnosis.findings:
        return "nobody can be named"
    best = diagnosis.findings[0]
    return f"{diagnosis.verdict} [{best.component}, {best.kind}, {best.grade}]"
