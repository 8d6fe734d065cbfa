"""Stages are a source of their own beside stacks, recorder and ops: what they say is put down to nobody else."""

from __future__ import annotations

from dataclasses import replace

from nccl_instrument.stage_schema import DATA
from rca.dumps.dumped import with_dumps
from rca.findings import Component, Diagnosis, Evidence, FaultKind, Finding, Grade, Subject, SymptomKind
from rca.rules import stage_delay
from tests.rca.test_dumped import CODE, LOAD, WAIT, looked, of_traces


def of_stages(*before: Finding, said: str = "", stage: str = DATA) -> Diagnosis:
    """What stages say of a job of which ops may be traced or not: rank 2 is late in its data."""
    evidence = (Evidence("stage", stage, "", "stage", 2),)
    finding = Finding(
        rule=stage_delay.RULE, version=1, subject=Subject("rank", "rank 2", (2,)), component=Component.SOFTWARE,
        kind=FaultKind.COMPUTATION_FAIL_SLOW, culprits=(2,), score=0.8, grade=Grade.MODERATE,
        sentence="Rank 2 waits for its data.", evidence=evidence,
    )  # fmt: skip
    plain = of_traces((), kind=SymptomKind.STRAGGLER)
    if said:
        return replace(plain, agreement=(said,))
    return replace(plain, findings=(finding, *before), agreement=("Stages: Rank 2 waits for its data.",))


def test_what_stages_alone_say_is_not_put_down_to_ops() -> None:
    found = with_dumps(of_stages(), looked(WAIT, WAIT, LOAD, WAIT), has_traces=False)
    assert (found.culprits, found.layer) == ((2,), "data loader")
    assert "Stages: Rank 2 waits for its data." in found.agreement
    assert "No collective layer: this job has no traces." in found.agreement
    assert not any(one.startswith("Collective layer") or one == "Stacks: nobody stands out." for one in found.agreement)
    assert any(one.startswith("Stacks: what the culprit is doing") for one in found.agreement)
    forward = with_dumps(of_stages(stage="model.fwd_loss_cpu_wall"), looked(WAIT, WAIT, CODE, WAIT), has_traces=False)
    assert forward.layer == ""


def test_stages_and_ops_that_say_the_same_are_two_sources() -> None:
    late = replace(of_traces((2,)).findings[0], sentence="Rank 2 starts its ops late.")
    found = with_dumps(of_stages(late), looked(WAIT, WAIT, LOAD, WAIT))
    assert "Collective layer: Rank 2 starts its ops late." in found.agreement
    assert "Stages, same culprit: Rank 2 waits for its data." in found.agreement


def test_why_stages_name_nobody_is_still_said_beside_dumps() -> None:
    silent = "Stages: the step time has not moved against the job's normal."
    found = with_dumps(of_stages(said=silent), looked(WAIT, WAIT, LOAD, WAIT))
    assert found.agreement[-1] == silent
