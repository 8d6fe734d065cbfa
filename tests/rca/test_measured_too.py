"""Who yields where the waits and the wire name different ranks: nobody without a sure word of the wire."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Subject
from rca.slow.measured_too import _is_hot, _yields
from rca.slow.slow_words import PER_ITERATION


def finding(rule: str, rank: int, component: Component, kind: FaultKind, grade: Grade = Grade.STRONG) -> Finding:
    subject = Subject("rank", f"rank {rank}", (rank,))
    return Finding(rule, 1, subject, component, kind, (rank,), 0.9, grade, f"Rank {rank}.")


COPY = finding("slow_copy", 2, Component.COPY, FaultKind.COMPUTATION_FAIL_SLOW)
WIRE = finding("actual_time", 3, Component.NIC, FaultKind.COMMUNICATION_FAIL_SLOW)
HOT = finding("actual_time", 8, Component.GPU, FaultKind.COMPUTATION_FAIL_SLOW)
TAKEN = finding("slow_nic", 8, Component.NETWORK, FaultKind.COMMUNICATION_FAIL_SLOW)


@pytest.mark.parametrize(
    "measured",
    [[], [replace(WIRE, grade=Grade.MODERATE)], [replace(WIRE, culprits=())], [replace(WIRE, culprits=(2,))], [HOT]],
)
def test_a_gpu_that_is_blamed_stays_blamed(measured: list[Finding]) -> None:
    assert not _yields(COPY, measured)


def test_a_gpu_yields_to_another_ranks_wire_and_nothing_else_does() -> None:
    assert _yields(COPY, [WIRE])
    assert not _yields(replace(COPY, rule="late_start"), [WIRE])


def accounts(one: Finding, ms: float, grade: Grade) -> Finding:
    """The finding with so much of an iteration to its account."""
    return replace(one, grade=grade, evidence=(Evidence("more than usual", ms, PER_ITERATION, "op"),))


def test_a_guess_at_little_yields_to_what_was_measured_and_explains_far_more() -> None:
    late = accounts(replace(COPY, rule="late_start"), 1.0, Grade.MODERATE)
    assert _yields(late, [accounts(WIRE, 7.0, Grade.MODERATE)])
    assert not _yields(late, [accounts(WIRE, 7.0, Grade.WEAK)]), "not all was measured"
    assert not _yields(late, [accounts(WIRE, 2.0, Grade.STRONG)]), "it explains hardly more"
    assert not _yields(replace(late, grade=Grade.STRONG), [accounts(WIRE, 7.0, Grade.STRONG)])


def test_a_slow_way_to_hot_experts_is_left_out_and_other_ways_are_not() -> None:
    assert _is_hot(TAKEN, [HOT])
    assert not _is_hot(replace(TAKEN, culprits=(3,)), [HOT])
    assert not _is_hot(TAKEN, [WIRE]) and not _is_hot(COPY, [HOT])
