"""One experiment of the suite `pulse`, from its simulation to its scores, as a row that can be kept.

The job's batches reach the console's watch as they would reach a server (tests/eval/watching.py). The job ends half a minute
after its first diagnosis: that one and the last count, and what either has wrong is wrong. A comparison that knows ops
and nothing below them (pulse_baseline.py) is scored on the same window. What is true of the fault is used for scoring alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from ingest.window import save_window
from nccl_instrument.simulate.faults import KINDS
from nccl_instrument.simulate.files import in_order
from nccl_instrument.simulate.job import SimulatedJob
from rca.findings import Diagnosis, to_json
from tests.eval.pulse_baseline import explain_by_ops
from tests.eval.pulse_cases import Experiment
from tests.eval.scoring import FAULTS, Truth, node_counts, score_incident
from tests.eval.watching import SECOND, Followed, Watch

Row = dict[str, Any]
PATIENCE_SECONDS: Final = 18.0  # of data, for an incident after a fault
AFTERWARDS_SECONDS: Final = 30.0  # and for its diagnosis to change: what is said then counts too
PAUSE_SECONDS: Final = 1.0  # between looks, as a live job is looked at


def run_experiment(
    one: Experiment,
    tell: Callable[[float], None] = lambda share: None,
    windows: Path | None = None,
    after_s: float = AFTERWARDS_SECONDS,
) -> Row:
    """The row: what it was, what was said, how it scores, what ops alone would have said."""
    began_s, cpu_s = time.monotonic(), time.process_time()
    job, watch = SimulatedJob(one.job), Watch(int(PAUSE_SECONDS * SECOND))
    try:
        _follow(watch, job, one, tell, after_s)
    finally:
        job.close()
    if windows is not None and watch.evidence is not None:
        windows.mkdir(parents=True, exist_ok=True)
        save_window(windows / f"{one.number}.npz", watch.evidence)
    took = {"took_s": round(time.monotonic() - began_s, 1), "cpu_s": round(time.process_time() - cpu_s, 1)}
    told = {"after_s": after_s, "measured_every": max(job.traffic.every) if job.traffic is not None else None}
    return {**described(one), **took, **told, **result(one, watch)}


def _follow(watch: Watch, job: SimulatedJob, one: Experiment, tell: Callable[[float], None], after_s: float) -> None:
    """Until the diagnosis had time to change, or patience is over."""
    total_s, origin_ns = one.fault.start_s + PATIENCE_SECONDS + after_s, one.job.origin_ns
    for now_ns in watch.follow(in_order(job.batches(total_s))):
        at_s, incident = (now_ns - origin_ns) / SECOND, watch.incident
        tell(min(at_s / total_s, 1.0))
        is_late = incident is None and at_s > one.fault.start_s + PATIENCE_SECONDS
        is_told = incident is not None and incident.first is not None
        if is_late or (is_told and now_ns - incident.first_ns >= after_s * SECOND):  # type: ignore[union-attr]
            return


def described(one: Experiment) -> Row:
    """What a reader of a miss wants to know."""
    return {
        "seed": one.seed, "number": one.number, "failure": one.failure, "severity": one.severity,
        "setting": one.setting.name, "fault": one.fault.name, "amount": round(one.fault.amount, 3),
        "ranks": list(one.fault.ranks), "start_s": one.fault.start_s, "epoch_us": one.epoch_us,
        "layout": asdict(one.setting.layout), "command": one.command,
    }  # fmt: skip


def result(one: Experiment, watch: Watch) -> Row:
    """Scores and words. An incident before the fault is a miss, whatever it says."""
    incident, starts_ns = watch.incident, one.job.origin_ns + int(one.fault.start_s * SECOND)
    is_false = incident is not None and incident.triggered_ns < starts_ns
    true = truth_of(one)
    answers = [] if incident is None or is_false else [_json(incident.first), _json(incident.answer)]
    detect_s = None if incident is None or is_false else round((incident.triggered_ns - starts_ns) / SECOND, 2)
    found = scored(one, true, answers)
    asked = (
        [explain_by_ops(watch.evidence, incident.about)] if watch.evidence is not None and incident is not None else []
    )
    ops = scored(one, true, [] if is_false else list(asked))
    return {
        "false_incident": is_false, "detect_s": detect_s, "said": _said(incident), "op_said": [one["verdict"] for one in asked],
        "type": type_of(one), **found, "op_level": ops,
    }  # fmt: skip


def truth_of(one: Experiment) -> Truth:
    """What a right answer names."""
    return Truth(one.fault.name, frozenset(one.fault.ranks), whole=one.whole or KINDS[one.fault.name].target)


def scored(one: Experiment, true: Truth, answers: Sequence[Row | None]) -> Row:
    """What the first and the last of these answers have right, and all that either has wrong, with the nodes that counts."""

    def node_of(rank: int) -> str:
        return f"node{rank // one.setting.layout.ranks_per_node}"

    score = score_incident(true, answers, node_of)
    true_nodes = frozenset(node_of(rank) for rank in true.ranks)
    return {
        "named": score.named, "component_right": score.component_right, "tied": score.tied,
        "wrongly_blamed": score.wrongly_blamed, "machine_level": score.machine_level and not score.misjudged,
        "group_level": score.group_level and not score.misjudged, "misjudged": score.misjudged,
        **node_counts(score, true_nodes, one.setting.layout.n_nodes),
    }  # fmt: skip


def type_of(one: Experiment) -> str:
    """One of the paper's four anomaly types."""
    return FAULTS[one.fault.name][1].value.replace("computation", "comp").replace("communication", "comm")


def _json(diagnosis: Diagnosis | None) -> Row | None:
    return to_json(diagnosis) if diagnosis is not None else None


def _said(incident: Followed | None) -> list[str]:
    if incident is None:
        return []
    return [incident.symptom.sentence, *(_answer(one) for one in (incident.first, incident.answer))]


def _answer(diagnosis: Diagnosis | None) -> str:
    if diagnosis is None or not diagnosis.findings:
        return "nobody can be named"
    best = diagnosis.findings[0]
    return f"{diagnosis.verdict} [{best.rule}: {best.component}, {best.kind}, {best.grade}]"
