"""A fault that a running job is given later is the fault that it would have had from its description."""

from __future__ import annotations

from contextlib import closing

import pytest

from nccl_instrument.simulate.faults import Fault, FaultError, Scenario, make_fault, truth
from nccl_instrument.simulate.files import in_order
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.simulate.physics import TESTBED
from tests.nccl_instrument.simulate.jobs import EIGHT, run

FAULTS = ("nic_limited", "gpu_slow", "agent_restart", "different_order", "proxy_sleeps")


def healthy_job() -> SimulatedJob:
    return SimulatedJob(JobSettings(EIGHT, TESTBED, Scenario((), 1)))


@pytest.mark.parametrize("name", FAULTS)
def test_its_batches_are_those_of_a_job_that_was_made_with_it(name: str) -> None:
    fault = make_fault(name, EIGHT, 3.2, seed=4)
    with closing(healthy_job()) as job:
        sent = list(in_order(job.batches(3.0)))
        job.befall(fault)
        sent += in_order(job.batches(6.0))
        assert job.truth == [truth(fault, EIGHT, job.settings.origin_ns)]
    whole = run(EIGHT, fault, seconds=6.0)
    assert [one.encoded for one in sorted(sent, key=lambda one: one.arrives_ns)] == [one.encoded for one in whole]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (make_fault("clock_skew", EIGHT, 3.0), "from its start"),
        (make_fault("warm_up", EIGHT, 3.0), "from its start"),
        (make_fault("gpu_slow", EIGHT, 1.5), "2.000 s old: gpu_slow cannot have happened before"),
        (make_fault("agent_silent", EIGHT, 2.0), "cannot have happened before"),
    ],
)
def test_what_cannot_come_later_is_refused(fault: Fault, reason: str) -> None:
    with closing(healthy_job()) as job:
        for _ in job.batches(2.0):
            pass
        with pytest.raises(FaultError, match=reason):
            job.befall(fault)
        assert job.truth == []
