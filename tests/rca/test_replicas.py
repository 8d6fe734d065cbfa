"""What is told of a job that was slow from its first iteration: who is unlike its replicas, and nobody is blamed for it."""

from __future__ import annotations

from functools import cache

import pytest

from nccl_instrument.simulate.layout import Layout
from rca.diagnose import diagnose
from rca.findings import Diagnosis, Symptom, SymptomKind
from tests.nccl_instrument.simulate.jobs import EIGHT, window_after

STAGES = Layout(tp=2, pp=2, dp=4, ranks_per_node=4)


@cache
def asked(fault: str, layout: Layout, victim: int, amount: float | None) -> Diagnosis:
    window = window_after(fault, layout, victim, amount, at_s=0.0, seconds=10.0)
    return diagnose(window, Symptom(SymptomKind.EXTERNAL, window.job, 1, window.now_ns, window.now_ns, 0, (), "asked"))


def test_a_gpu_that_was_always_slow_is_suspected_with_the_mate_it_keeps_late_and_not_blamed() -> None:
    found = asked("gpu_slow", STAGES, 15, 2.0)
    assert found.findings == ()
    assert {rank for one in found.alternatives for rank in one.subject.ranks} == {14, 15}
    assert all("not blamed" in one.why_not for one in found.alternatives)


@pytest.mark.parametrize(("fault", "layout", "amount"), [("clock_skew", EIGHT, None), ("clock_drift", STAGES, None)])
def test_of_a_healthy_job_nobody_is_suspected(fault: str, layout: Layout, amount: float | None) -> None:
    assert asked(fault, layout, 1, amount).alternatives == ()
