"""The paper's own examples by name: Figure 2 (AllGather), Figure 5 (DP × PP) and case study one (one slow channel)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from rca.diagnose import diagnose
from rca.findings import Alternative, Component, Diagnosis, FaultKind, Symptom, SymptomKind
from rca.settings import DEFAULT
from rca.triggers.external import slow_since_ns
from rca.why_not import why_not
from tests.nccl_instrument.simulate.jobs import window_after
from tests.rca.chunks import Floats, ring, ring_window

ONSET = 30  # iteration from which on something is slow


def diagnosed(window: Window) -> Diagnosis:
    onset_ns = slow_since_ns(window, DEFAULT)
    assert onset_ns is not None, "the job does not become slower"
    return diagnose(window, Symptom(SymptomKind.STRAGGLER, "job", 1, onset_ns, window.now_ns, 0, (0,), "slow"))


def everywhere(n_ranks: int, channels: int, ms: float) -> Floats:
    return np.full((n_ranks, channels, n_ranks - 1), ms)


# ---- Figure 2: dependencies in an AllGather slowdown ----


def figure_2_wire(iteration: int) -> Floats:
    """Rank 0 consistently transmits data chunks more slowly than the others."""
    wire = everywhere(4, 1, 8.0)
    if iteration >= ONSET:
        wire[0] *= 2.5
    return wire


def test_figure_2_is_what_the_paper_draws() -> None:
    fast, slow = (ring(np.zeros(4), everywhere(4, 1, 1.0), figure_2_wire(i)) for i in (0, ONSET))
    late = (slow.sent - fast.sent)[:, 0, :] > 1
    assert late.T.tolist() == [
        [True, False, False, False],  # step 0: all ranks except rank 0 complete as expected
        [True, True, False, False],  # step 1: rank 1 is delayed, waiting for data from rank 0
        [True, True, True, False],  # step 2: rank 2 is delayed
    ]
    assert (slow.done - fast.done > 1).all(), "the slowdown cascades across all ranks of the group"


@cache
def figure_2() -> tuple[Window, Diagnosis]:
    window = ring_window(4, 1, ("AllGather",), lambda i: everywhere(4, 1, 1.0), figure_2_wire)
    return window, diagnosed(window)


def test_figure_2_names_rank_0_which_transmits_slowly_and_nobody_whom_it_delays() -> None:
    found = figure_2()[1]
    assert (found.culprits, found.findings[0].component) == ((0,), Component.NIC)
    assert found.findings[0].kind is FaultKind.COMMUNICATION_FAIL_SLOW
    assert found.victims == (1, 2, 3)
    assert {rank for finding in found.findings for rank in finding.culprits} == {0}


def test_figure_2_with_a_nic_that_is_slow_both_ways_and_rings_in_both_directions_names_rank_0_too() -> None:
    window = window_after("nic_limited", Layout(tp=1, pp=1, dp=4, ranks_per_node=1), 0, 0.4, at_s=8.0, seconds=16.0)
    found = diagnosed(window)
    assert (found.culprits, found.findings[0].component, len(found.findings)) == ((0,), Component.NIC, 1)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_figure_2_why_not_a_rank_that_is_delayed(rank: int) -> None:
    window, found = figure_2()
    assert why_not(window, found.symptom, found, rank).why_not.startswith("Its delay is inherited: it waits for rank 0")


# ---- Figure 5: a straggler in a DP group, and what its peers' pipelines see of it ----

FIGURE_5 = Layout(tp=1, pp=2, dp=3, ranks_per_node=1)
"""GPUs 1, 2 and 3 of the paper are ranks 0, 1 and 2, a DP group; GPU 4, in a PP group with GPU 2, is rank 4."""


@cache
def figure_5() -> tuple[Window, Diagnosis]:
    physics = replace(TESTBED, n_microbatches=2)
    window = window_after("gpu_pcie_slow", FIGURE_5, 0, 3.0, at_s=8.0, seconds=18.0, physics=physics)
    return window, diagnosed(window)


def test_figure_5_names_gpu_1_which_executes_copies_slowly() -> None:
    found = figure_5()[1]
    best = found.findings[0]
    assert (found.culprits, best.component, best.kind) == ((0,), Component.COPY, FaultKind.COMPUTATION_FAIL_SLOW)
    assert {rank for finding in found.findings for rank in finding.culprits} == {0}


def test_figure_5_says_how_the_delay_reaches_gpus_2_and_3_and_over_gpu_2_gpu_4() -> None:
    window, found = figure_5()
    assert set(found.victims) >= {1, 2, 4}
    names = {int(row["comm_id"]): str(row["name"]) for row in window.members}
    said = {rank: why_not(window, found.symptom, found, rank).why_not for rank in (1, 2, 4)}
    for rank in (1, 2):
        assert said[rank].startswith("Its delay is inherited: it waits for rank 0 in dp_0."), said[rank]
    assert said[4].startswith("Its delay is inherited: it waits for rank "), said[4]
    assert {name.split("_")[0] for name in names.values()} >= {"dp", "pp"}


# ---- Case study one: one of four channels is slow ----

CHANNELS, SLOW_CHANNEL, FAULTY = 4, 2, 5
N_ITERATIONS = 75
OCCASIONALLY = {ONSET, *(ONSET + np.flatnonzero(np.random.default_rng(13).random(N_ITERATIONS - ONSET) < 0.4)).tolist()}


def case_one_copy(iteration: int) -> Floats:
    """Now and then, the faulty GPU prepares the data of one channel late, in the middle of the op."""
    copy = everywhere(8, CHANNELS, 1.0)
    if iteration in OCCASIONALLY:
        copy[FAULTY, SLOW_CHANNEL, 2:5] += 17.0
    return copy


@cache
def case_one() -> tuple[Window, Diagnosis]:
    funcs = ("AllGather", "AllGather", "ReduceScatter")
    wire = everywhere(8, CHANNELS, 3.2)
    window = ring_window(8, CHANNELS, funcs, case_one_copy, lambda i: wire, n_iterations=N_ITERATIONS)
    return window, diagnosed(window)


def test_case_one_takes_75_ms_on_one_channel_and_30_on_the_others() -> None:
    made = ring(np.zeros(8), case_one_copy(ONSET), everywhere(8, CHANNELS, 3.2))
    through = made.sent[:, :, -1].max(axis=0)
    assert through[SLOW_CHANNEL] == pytest.approx(75, abs=3)
    assert np.delete(through, SLOW_CHANNEL) == pytest.approx(30, abs=2)


def test_case_one_names_the_gpus_copies() -> None:
    found = case_one()[1]
    best = found.findings[0]
    assert (found.culprits, best.component, best.kind) == ((FAULTY,), Component.COPY, FaultKind.COMPUTATION_FAIL_SLOW)
    assert set(found.victims) == set(range(8)) - {FAULTY}


def test_case_one_why_not_the_nic_the_other_channels_are_normal() -> None:
    nic = next(one for one in case_one()[1].alternatives if one.subject.kind == "nic")
    assert nic.subject.ranks == (FAULTY,)
    assert f"The other channels are normal: only channel {SLOW_CHANNEL} is slow" in nic.why_not
    assert value(nic, "fastest channel", "now") == pytest.approx(value(nic, "fastest channel", "usually"), rel=0.1)
    assert value(nic, f"slowest channel (mostly {SLOW_CHANNEL})", "now") > 2 * value(nic, "slowest channel", "usually")


def value(one: Alternative, what: str, when: str) -> float:
    return next(float(fact.value) for fact in one.evidence if fact.what.startswith(what) and fact.what.endswith(when))


def test_the_same_jobs_before_anything_is_slow_become_no_slower() -> None:
    calm = ring_window(4, 1, ("AllGather",), lambda i: everywhere(4, 1, 1.0), lambda i: everywhere(4, 1, 8.0))
    assert slow_since_ns(calm, DEFAULT) is None
