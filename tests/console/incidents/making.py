"""Incidents and diagnoses for tests, made through the same doors as the real ones."""

from __future__ import annotations

from typing import Any

from console.incidents.lifecycle import open_incident
from console.incidents.models import Certainty, Incident
from ingest.models import Attempt
from rca.findings import Component, Diagnosis, FaultKind, Finding, Grade, Subject, Symptom, SymptomKind

START_NS = 1_800_000_000_000_000_000
SECOND = 1_000_000_000


def make_incident(attempt: Attempt, **changes: Any) -> Incident:
    """An open, suspected incident of the attempt."""
    fields: dict[str, Any] = {
        "team": attempt.job.team,
        "job": attempt.job,
        "attempt": attempt,
        "key": f"v1:{attempt.job_id}:{attempt.number}:failure:00000000000000aa",
        "symptom": "failure",
        "comm_id": "00000000000000aa",
        "headline": "Suspected hang in communicator dp0",
        "first_symptom_ns": START_NS,
        "triggered_ns": START_NS + 2 * SECOND,
        "window_start_ns": START_NS - 20 * SECOND,
        "window_end_ns": START_NS + 3 * SECOND,
    }
    return open_incident(fields | changes)


def make_symptom(attempt: Attempt, **changes: Any) -> Symptom:
    fields: dict[str, Any] = {
        "kind": SymptomKind.FAILURE,
        "job": attempt.job.name,
        "attempt": attempt.number,
        "at_ns": START_NS,
        "seen_ns": START_NS + 2 * SECOND,
        "comm_id": 0xAA,
        "ranks": (0, 1),
        "sentence": "Ops in progress, none completed for 2.0 s",
        "numbers": {"delta_s": 2.0},
    }
    return Symptom(**fields | changes)


def blaming(*ranks: int, n: int | None = None, **more: Any) -> dict[str, Any]:
    """The fields of an incident whose diagnosis blames these ranks, of n in all."""
    who, n = list(ranks), len(ranks) if n is None else n
    said = {"culprits": who, "n_culprits": n, "suspects": who, "n_suspects": n, "certainty": Certainty.DIAGNOSED}
    return {**said, **more}


def make_diagnosis(symptom: Symptom, culprits: tuple[int, ...] = (3,), grade: Grade = Grade.STRONG) -> Diagnosis:
    """One finding of the hang rule that blames `culprits`; nobody when there are none."""
    finding = Finding(
        rule="hang",
        version=1,
        subject=Subject("rank", f"rank {culprits}", culprits),
        component=Component.PROCESS,
        kind=FaultKind.COMPUTATION_FAIL_STOP,
        culprits=culprits,
        score=0.9,
        grade=grade,
        sentence=f"Rank {culprits} never started op 7.",
    )
    return Diagnosis(
        symptom=symptom,
        findings=(finding,) if culprits else (),
        victims=(0, 1, 2),
        path=(),
        communicators={"170": "dp0"},
        missing=(),
        downgraded=(),
        thresholds={"delta_s": 2.0},
        analysed_ns=symptom.seen_ns,
    )
