"""The deadlock rule: the same two ops in another order on one rank."""

from __future__ import annotations

from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, FaultKind, Symptom, SymptomKind
from tests.rca.mechanism import COMPUTE, Job
from tests.windows import cut_window, make_window

WORLD, DP = ("world", "AllReduce"), ("dp", "AllReduce")


def job_with_orders(orders: dict[int, list[tuple[str, object]]]) -> Job:
    """Four ranks, one per node, all in two communicators whose ops share a stream; `orders` replaces a rank's step."""
    job = Job(1, 1, 4, 1, is_ib=True, seed=0)
    for comm in job.all_comms():
        comm.stream = COMPUTE
    for rank in range(4):
        job.plans[rank] = list(orders.get(rank, [WORLD, DP]))
    job.stuck_before = set(range(4))  # one step only
    job.run_until_still()
    return job


def diagnosed(job: Job) -> Diagnosis:
    return diagnose(cut_window(job), Symptom(SymptomKind.FAILURE, "job", 1, 1, 2, 0, (), ""))


def test_the_same_order_everywhere_is_no_deadlock() -> None:
    assert diagnosed(job_with_orders({})).findings == ()


def test_a_ring_in_which_all_wait_is_no_deadlock() -> None:
    found = diagnose(make_window(proxy_asleep=3), Symptom(SymptomKind.FAILURE, "job", 1, 1, 2, 0, (), ""))
    assert all(finding.kind is not FaultKind.DEADLOCK for finding in found.findings)


def test_both_sides_of_a_deadlock_are_named() -> None:
    best = diagnosed(job_with_orders({2: [DP, WORLD]})).findings[0]
    assert (best.component, best.kind) == (Component.SOFTWARE, FaultKind.DEADLOCK)
    assert 2 in best.culprits
    assert len(best.culprits) >= 2


def test_the_evidence_says_what_is_begun_and_what_is_queued() -> None:
    best = diagnosed(job_with_orders({2: [DP, WORLD]})).findings[0]
    of_two = {fact.what.split("_")[0]: fact.value for fact in best.evidence if fact.rank == 2}
    assert of_two == {"dp": "begun", "world": "queued"}
