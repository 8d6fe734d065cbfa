"""What must not change who is blamed, on windows recorded from the live testbed and on simulated ones.

Other names, clocks of single nodes, another pace, other nodes' losses, another order of arrival: the culprits stay, under
their new names. Losing the culprit's own batches is another matter: then the grade falls, and the diagnosis says why.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.window import Window
from nccl_instrument.simulate.faults import make_fault
from nccl_instrument.simulate.layout import Layout
from rca.diagnose import diagnose
from rca.findings import Diagnosis, Grade, Symptom, SymptomKind
from rca.settings import DEFAULT
from rca.triggers.external import slow_since_ns
from tests.nccl_instrument.simulate import jobs
from tests.nccl_instrument.simulate.jobs import EIGHT, window_after
from tests.rca import test_recorded, test_slowdown, transforms

HANGS = sorted(path.stem for path in test_recorded.FOLDER.glob("*.npz"))
SIXTEEN = Layout(tp=4, pp=2, dp=2, ranks_per_node=4)
LINKED = Layout(tp=1, pp=1, dp=8, ranks_per_node=2)  # the ring passes through nodes: a NIC has one neighbour
ONE_EACH = Layout(tp=1, pp=1, dp=4, ranks_per_node=1)
SIMULATED: dict[str, Callable[[], Window]] = {
    "stuck in a job of 16": lambda: window_after("stuck_before", SIXTEEN, 9, at_s=2.0, seconds=13.5),
    "NIC of one of 16": lambda: window_after("nic_down", SIXTEEN, 6, at_s=2.0, seconds=13.5),
    "GPU that stops": lambda: window_after("gpu_error", EIGHT, 5, at_s=4.0, seconds=15.5),
    "another op": lambda: window_after("different_op", Layout(tp=4, pp=1, dp=4, ranks_per_node=4), 6, at_s=2.0, seconds=13.5),
}  # fmt: skip
SLOW_SIMULATED: dict[str, Callable[[], Window]] = {
    "end of a link": lambda: slowed("nic_limited", LINKED, 3, 0.25),
    "others' traffic": lambda: slowed("background_traffic", ONE_EACH, 1, 0.65),
    "NIC over sockets": lambda: slowed("nic_limited", ONE_EACH, 1, 0.3, "Socket"),
}
SIMULATED_ALL = {**SIMULATED, **SLOW_SIMULATED}
SLOW = [*sorted(test_slowdown.TRUTH), *SLOW_SIMULATED]
CASES = [*HANGS, *SLOW, *SIMULATED]
FEW = settings(max_examples=12, deadline=None, derandomize=True)


def slowed(fault: str, layout: Layout, victim: int, amount: float, transport: str = "IB") -> Window:
    """The last 24 s of a job, the second half of them slow."""
    injected = make_fault(fault, layout, 14.0, victim=victim, amount=amount)
    return jobs.window_of(jobs.run(layout, injected, seconds=26.0, transport=transport), span_s=24.0)


@cache
def window_of(case: str) -> Window:
    if case in SIMULATED_ALL:
        return SIMULATED_ALL[case]()
    if case in SLOW:
        return test_slowdown.recorded(case)
    return test_recorded.load_recorded(test_recorded.FOLDER / f"{case}.npz")


def symptom_of(case: str, window: Window) -> Symptom:
    """As a trigger would give it; of a slowdown the onset is found anew, since it moves with clocks and pace."""
    kind, at_ns = SymptomKind.FAILURE, window.start_ns
    if case in SLOW:
        kind, at_ns = SymptomKind.STRAGGLER, slow_since_ns(window, DEFAULT) or 0
    return Symptom(kind, window.job, window.attempt, at_ns, window.now_ns, 0, (), "")


def diagnosed(case: str, window: Window) -> Diagnosis:
    return diagnose(window, symptom_of(case, window))


@cache
def usual(case: str) -> Diagnosis:
    return diagnosed(case, window_of(case))


def answer(found: Diagnosis, names: np.ndarray | None = None) -> tuple[object, ...]:
    """Who is blamed and tied, and for what; ranks under `names`."""
    best = found.findings[0]
    rename = (lambda ranks: {int(names[rank]) for rank in ranks}) if names is not None else set
    tied = {frozenset(rename(one.ranks)) for one in best.tied}
    return frozenset(rename(best.culprits)), frozenset(tied), best.component, best.kind


def blamed(found: Diagnosis) -> set[int]:
    return {rank for finding in found.findings for rank in finding.culprits}


def nodes_of(window: Window, ranks: set[int]) -> set[int]:
    return set(window.ranks["node"][np.isin(window.ranks["rank"], sorted(ranks))].tolist())


@pytest.mark.parametrize("case", CASES)
def test_somebody_or_everybody_is_named_to_begin_with(case: str) -> None:
    assert usual(case).findings


@FEW
@given(st.sampled_from(CASES), st.randoms(use_true_random=False))
def test_renaming_ranks_renames_the_culprits(case: str, draw: object) -> None:
    window = window_of(case)
    names = np.arange(int(window.ranks["rank"].max()) + 1)
    draw.shuffle(names)  # type: ignore[attr-defined]
    found = diagnosed(case, transforms.renamed(window, names))
    assert answer(found) == answer(usual(case), names)
    assert set(found.victims) == {int(names[rank]) for rank in usual(case).victims}


@FEW
@given(st.sampled_from(CASES), st.integers(0, 3), st.integers(-400, 400))
def test_the_clock_of_a_single_node_changes_no_culprit(case: str, node: int, ahead_ms: int) -> None:
    window = window_of(case)
    ahead_ns = np.zeros(len(window.nodes), np.int64)
    ahead_ns[node % len(ahead_ns)] = ahead_ms * 10**6
    assert answer(diagnosed(case, transforms.with_clocks(window, ahead_ns))) == answer(usual(case))


@FEW
@given(st.sampled_from([*HANGS, *SIMULATED]), st.floats(0.8, 5))
def test_a_hang_of_a_slower_or_faster_job_has_the_same_culprit(case: str, factor: float) -> None:
    assert answer(diagnosed(case, transforms.at_pace(window_of(case), factor))) == answer(usual(case))


@FEW
@given(st.sampled_from(SLOW), st.floats(1, 5))  # a host's calls lie no closer together in a faster job
def test_a_slowdown_of_a_slower_job_has_the_same_culprit(case: str, factor: float) -> None:
    assert answer(diagnosed(case, transforms.all_slower(window_of(case), factor))) == answer(usual(case))


@FEW
@given(st.sampled_from(CASES), st.integers(0, 10**6))
def test_the_order_of_arrival_changes_nothing(case: str, seed: int) -> None:
    found = diagnosed(case, transforms.shuffled(window_of(case), seed))
    assert answer(found) == answer(usual(case))
    assert [finding.score for finding in found.findings] == [finding.score for finding in usual(case).findings]


@FEW
@given(st.sampled_from(CASES), st.integers(0, 10**6))
def test_batches_of_uninvolved_nodes_may_be_lost(case: str, seed: int) -> None:
    window, draw = window_of(case), np.random.default_rng(seed)
    others = sorted(set(range(len(window.nodes))) - nodes_of(window, blamed(usual(case)) or {0}))
    n_seconds = transforms.seconds_of(window)
    # The newest second of a node at rest is what it says of itself; those before are lost here and there.
    lost = {(int(draw.choice(others)), int(draw.integers(n_seconds - 3))) for _ in range(3)}
    assert answer(diagnosed(case, transforms.without_batches(window, lost))) == answer(usual(case))


BLAMING = [case for case in CASES if case not in ("all_compute", "all_links")]
LONG = [case for case in BLAMING if case not in HANGS]  # the recorded hangs hold too few seconds to show a hole


@pytest.mark.parametrize(("case", "is_counted"), [(case, True) for case in BLAMING] + [(case, False) for case in LONG])
def test_losing_the_culprits_batches_lowers_the_grade_and_says_so(case: str, is_counted: bool) -> None:
    window = window_of(case)
    nodes, n_seconds = nodes_of(window, set(usual(case).culprits)), transforms.seconds_of(window)
    # The newest second of a node at rest tells most; without any of it the node is silent, which is another matter.
    lost_s = range(n_seconds // 2, n_seconds // 2 + 6) if case in SLOW else range(max(n_seconds - 9, 0), n_seconds - 2)
    lost = {(node, second) for node in nodes for second in lost_s}
    found = diagnosed(case, transforms.without_batches(window, lost, is_counted=is_counted))
    assert not blamed(found) - set(usual(case).culprits), "a hole blames nobody else"
    assert found.findings, "what is left still tells"
    assert found.findings[0].grade is not Grade.STRONG
    assert any(str(window.nodes["name"][node]) in said for node in nodes for said in found.downgraded)
