"""Hangs that only the simulator makes: ops that differ, orders that cross, GPUs that stop, nodes that fall silent."""

from __future__ import annotations

from functools import cache

import pytest

from ingest.window import Window
from nccl_instrument.simulate.layout import Layout
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, FaultKind, Grade
from rca.normal import Normal
from rca.progress import state_of
from rca.settings import DEFAULT
from rca.triggers import look
from tests.nccl_instrument.simulate.jobs import EIGHT, run, window_after, window_of

FOURS = Layout(tp=4, pp=1, dp=4, ranks_per_node=4)
LAYOUTS = {"8": EIGHT, "16": Layout(tp=4, pp=2, dp=2, ranks_per_node=4), "fours": FOURS}


@cache
def window(name: str, layout: str = "8", victim: int = 5, transport: str = "IB", seconds: float = 13.5) -> Window:
    return window_after(name, LAYOUTS[layout], victim, at_s=2.0, seconds=seconds, transport=transport)


@cache
def healthy() -> Window:
    return window_of(run(EIGHT, seconds=6.0))


def diagnosed(name: str, layout: str = "8", victim: int = 5, transport: str = "IB") -> Diagnosis:
    cut = window(name, layout, victim, transport)
    seen = look(cut, Normal())
    assert seen.symptoms, f"no symptom: {seen.held}"
    return diagnose(cut, seen.symptoms[0])


def kinds(found: Diagnosis) -> set[FaultKind]:
    return {finding.kind for finding in found.findings}


# ---- different ops ----


def test_in_a_healthy_job_nobody_disagrees() -> None:
    assert not len(state_of(healthy(), DEFAULT).disputed.at)


@pytest.mark.parametrize("name", ["nic_down", "rank_frozen", "stuck_before", "proxy_stuck"])
def test_a_hang_in_which_all_entered_the_same_is_no_mismatch(name: str) -> None:
    assert FaultKind.MISMATCH not in kinds(diagnosed(name))


@pytest.mark.parametrize("transport", ["IB", "Socket"])
@pytest.mark.parametrize("name", ["different_op", "different_size"])
def test_the_rank_whose_peers_are_through_with_another_op_is_named(name: str, transport: str) -> None:
    found = diagnosed(name, "fours", 6, transport)
    best = found.findings[0]
    assert (best.culprits, best.component, best.kind, best.grade) == (
        (6,), Component.SOFTWARE, FaultKind.MISMATCH, Grade.STRONG,
    )  # fmt: skip
    assert best.evidence[0].rank == 6
    assert len({fact.value for fact in best.evidence}) == 2
    assert len(found.findings) == 1, "what the mismatch explains is no second finding"


@pytest.mark.parametrize("name", ["different_op", "different_size"])
def test_two_that_disagree_are_a_tie_and_neither_ones_proxy_is_blamed(name: str) -> None:
    found = diagnosed(name)
    assert (found.culprits, found.findings[0].kind, len(found.findings)) == ((), FaultKind.MISMATCH, 1)
    assert {rank for tied in found.findings[0].tied for rank in tied.ranks} == {5, 7}
