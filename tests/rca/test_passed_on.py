"""What stands inside a ring's ops and what comes before them: which of two findings of one group explains the other."""

from __future__ import annotations

from dataclasses import replace

import pytest

from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Subject
from rca.slow.diagnose import _is_less_of_the_same, _is_of_its_work, _is_passed_on, _with_next
from rca.slow.slow_words import PER_ITERATION

SLOW = FaultKind.COMPUTATION_FAIL_SLOW
LATE = Finding(
    "late_start", 1, Subject("gpu", "rank 18", (18,)), Component.GPU, SLOW, (18,), 1.0, Grade.STRONG, "late",
    evidence=(Evidence("own delay", 181.0, PER_ITERATION),),
)  # fmt: skip
ENDS = Finding(
    "slow_copy", 1, Subject("rank", "ranks 16 and 22", (16, 22)), Component.COPY, SLOW, (), 0.8, Grade.MODERATE, "chunks wait",
    evidence=(Evidence("waited", 149.0, PER_ITERATION),), tied=(Subject("gpu", "16", (16,)), Subject("gpu", "22", (22,))),
)  # fmt: skip


def test_chunks_that_wait_where_a_ring_enters_and_leaves_a_node_wait_for_the_rank_between_that_begins_late() -> None:
    assert _is_passed_on(ENDS, LATE)


@pytest.mark.parametrize(
    ("inside", "late"),
    [
        (replace(ENDS, culprits=(16,), tied=()), LATE),
        (ENDS, replace(LATE, culprits=(16,))),
        (ENDS, replace(LATE, grade=Grade.MODERATE)),
        (ENDS, replace(LATE, culprits=())),
        (ENDS, replace(LATE, evidence=(Evidence("own delay", 120.0, PER_ITERATION),))),
    ],
    ids=["one is named", "one of the tied is late", "not surely late", "who is late is not known", "late by less"],
)
def test_else_what_is_seen_inside_stands(inside: Finding, late: Finding) -> None:
    assert not _is_passed_on(inside, late)


def test_copies_of_who_surely_begins_late_by_more_are_of_its_own_work_unless_they_are_surely_slow() -> None:
    copies = replace(ENDS, culprits=(18,), tied=(), evidence=(Evidence("waited", 100.0, PER_ITERATION),))
    assert _is_of_its_work(copies, LATE)
    assert not _is_of_its_work(replace(copies, grade=Grade.STRONG), LATE)
    assert not _is_of_its_work(replace(copies, culprits=(17, 18)), LATE)
    assert not _is_of_its_work(replace(copies, evidence=ENDS.evidence), LATE)
    assert not _is_of_its_work(copies, replace(LATE, grade=Grade.MODERATE))


NODE = replace(LATE, subject=Subject("node", "node2", (16, 17, 18)), component=Component.NODE, culprits=(16, 17, 18))
WAY = replace(
    ENDS, rule="slow_nic", component=Component.NETWORK, grade=Grade.WEAK,
    tied=(Subject("nic", "16", (16,)), Subject("nic", "18", (18,))),
)  # fmt: skip
ELSEWHERE = Subject("nic", "30", (30,))


def test_a_way_between_ranks_of_a_node_that_is_not_sure_is_what_the_whole_node_that_begins_late_makes_of_it() -> None:
    assert _is_less_of_the_same(WAY, NODE)


def test_a_way_from_the_node_to_elsewhere_is_so_where_the_node_begins_late_by_much_more() -> None:
    way, much = replace(WAY, tied=(*WAY.tied, ELSEWHERE)), (Evidence("own delay", 266.0, PER_ITERATION),)
    assert _is_less_of_the_same(way, replace(NODE, evidence=much))
    assert not _is_less_of_the_same(replace(way, tied=(ELSEWHERE,)), replace(NODE, evidence=much))
    assert not _is_less_of_the_same(
        replace(way, tied=(WAY.tied[0], ELSEWHERE, ELSEWHERE)), replace(NODE, evidence=much)
    )
    assert not _is_less_of_the_same(replace(way, tied=(Subject("nic", "?"),)), replace(NODE, evidence=much))


@pytest.mark.parametrize(
    ("inside", "late"),
    [
        (replace(WAY, tied=(*WAY.tied, ELSEWHERE)), NODE),
        (replace(WAY, culprits=(16,)), NODE),
        (replace(WAY, grade=Grade.MODERATE), NODE),
        (replace(WAY, tied=()), NODE),
        (WAY, replace(NODE, grade=Grade.MODERATE)),
        (WAY, replace(NODE, evidence=(Evidence("own delay", 149.0, PER_ITERATION),))),
    ],
    ids=["one elsewhere", "one is named", "not unsure", "nobody is tied", "not surely late", "late by no more"],
)
def test_else_the_way_stands(inside: Finding, late: Finding) -> None:
    assert not _is_less_of_the_same(inside, late)


def nic(rank: int, lost_ms: float) -> Finding:
    return replace(
        LATE,
        rule="slow_nic",
        component=Component.NIC,
        culprits=(rank,),
        evidence=(Evidence("wire", lost_ms, PER_ITERATION),),
    )


@pytest.mark.parametrize(("lost_ms", "replaces"), [(600, True), (500, False), (100, False)])
def test_what_explains_several_times_as_much_of_a_rank_stands_in_the_place_of_what_lies_there_besides(
    lost_ms: float, replaces: bool
) -> None:
    lying, other = replace(LATE, rule="slow_copy", component=Component.COPY), nic(2, 30.0)
    found = _with_next([lying], [nic(18, lost_ms), other])
    assert found == ([nic(18, lost_ms), other] if replaces else [lying, other])
