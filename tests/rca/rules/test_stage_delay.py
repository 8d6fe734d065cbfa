"""The rule on stages names a rank only where a window moved and has a strong label; joined with the rules on ops, each
settles what the other cannot."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.stage_schema import BACKWARD, DATA, FORWARD
from rca.findings import (
    Alternative,
    Component,
    Diagnosis,
    FaultKind,
    Finding,
    Grade,
    Subject,
    Symptom,
    SymptomKind,
    WaitEdge,
)
from rca.frontier.cutting import Cut
from rca.frontier.entered import entered, last_of, settled_stage
from rca.frontier.groups import groups_of
from rca.frontier.joined import with_stages
from rca.frontier.judging import Judgement, judge, seen_of
from rca.frontier.moved import Verdict
from rca.frontier.normal import Normal, normal_of
from rca.frontier.packet import report_json
from rca.frontier.told import Told, told_of, verdict_json
from rca.rules import late_start, slow_nic
from rca.rules.stage_delay import explain
from rca.settings import DEFAULT, Settings
from tests.eval.stages_model import Fault, Job, run, window_of
from tests.rca.frontier.test_cutting import windows_of

SHORT = replace(DEFAULT, stage_steps=40, stage_warm_up=0)
SYMPTOM = Symptom(SymptomKind.STRAGGLER, "job", 1, 1, 2, 0, (0,), "Slow.", {})


@lru_cache
def window(where: str = "", delay_s: float = 0.2) -> Window:
    fault = Fault(where, 3, delay_s) if where else Fault()
    made = window_of(run(Job(), fault, 40, np.random.default_rng(2)))
    made.ranks["pid"] = 4000 + made.ranks["rank"]
    return made


@lru_cache
def told(where: str = "", settings: Settings = SHORT) -> Told:
    """The packet of 40 steps, after three that were as usual, as it is stored."""
    return as_told(judged(window(where), window(), settings), window(where))


def judged(now: Window, usual: Window, settings: Settings = SHORT) -> Judgement:
    """The one window of `now`, after three like `usual`."""
    return judge(_cut(now, settings), groups_of(now)[0], now, normal_like(usual, settings), settings)


def normal_like(usual: Window, settings: Settings = SHORT) -> Normal:
    made = judge(_cut(usual, settings), groups_of(usual)[0], usual, Normal(), settings).packet
    return normal_of([seen_of(made)] * 3)


def _cut(of: Window, settings: Settings) -> Cut:
    return windows_of(of, settings).cuts[0]


def as_told(found: Judgement, now: Window) -> Told:
    """With what the ops of the same window settle."""
    seen, report = entered(found.packet.cut, now), found.report
    last = last_of(seen, found.packet.step_s) if seen is not None else None
    settled = settled_stage(found.packet.cut, last, report.stage) if last else ""
    body = {**found.packet.body, "verdict": verdict_json(found.moved, last, settled, report)}
    return told_of("", {**body, "lasting": report_json(report)})


def finding(rule: str, culprits: tuple[int, ...], tied: tuple[int, ...] = ()) -> Finding:
    subjects = tuple(Subject("gpu", f"rank {rank}", (rank,)) for rank in tied)
    return Finding(rule, 1, Subject("gpu", "", culprits), Component.GPU, FaultKind.COMPUTATION_FAIL_SLOW, culprits, 0.7,
                   Grade.MODERATE, f"Ranks {culprits} are slow.", tied=subjects)  # fmt: skip


def diagnosis(*findings: Finding) -> Diagnosis:
    return Diagnosis(SYMPTOM, findings, (), (), {}, (), (), {}, 2)


def test_nobody_is_named_in_a_healthy_window() -> None:
    assert told().verdict is Verdict.USUAL
    assert explain(told(), window(), SHORT) == ()


@pytest.mark.parametrize("verdict", [Verdict.LEARNING, Verdict.USUAL, Verdict.FASTER, Verdict.UNLOCALISED])
def test_nobody_is_named_where_the_step_has_not_moved_or_no_stage_may_be_called_the_cause(verdict: Verdict) -> None:
    assert explain(replace(told("data"), verdict=verdict), window("data"), SHORT) == ()


def test_a_rank_that_waits_for_its_data_is_named_with_its_stage_and_how_to_profile_it() -> None:
    (found,) = explain(told("data"), window("data"), SHORT)
    assert (found.culprits, found.component, found.grade) == ((3,), Component.SOFTWARE, Grade.MODERATE)
    assert found.sentence.startswith("Rank 3 waits for its data: 2")
    assert "later than any other rank in every step" in found.sentence
    assert (found.subject.node, "--pid 4003" in found.advice, "A rank is not a node" in found.advice) == (
        "node-0",
        True,
        True,
    )


def test_all_ranks_alike_are_settled_by_who_enters_the_ops_last() -> None:
    (found,) = explain(told("backward"), window("backward"), SHORT)
    assert told("backward").leader is None
    assert (found.culprits, found.component) == ((3,), Component.GPU)
    assert "all ranks are alike by their stages" in found.sentence


def test_forward_that_spills_into_backward_is_called_forward() -> None:
    seen = told("forward_device")
    assert (seen.stage, seen.is_settled, seen.rank) == (FORWARD, True, 3)
    (found,) = explain(seen, window("forward_device"), SHORT)
    assert "takes longer in forward, though the host sees it later" in found.sentence


def test_without_ops_a_group_that_is_slow_alike_has_no_culprit() -> None:
    (found,) = explain(replace(told("backward"), last=None), window("backward"), SHORT)
    assert (found.culprits, found.grade, found.subject.name) == ((), Grade.WEAK, BACKWARD)


@pytest.mark.parametrize("where", ["callback", "optimizer"])
def test_work_that_nobody_waits_for_names_nobody(where: str) -> None:
    assert told(where).stage == BACKWARD
    assert explain(told(where), window(where), SHORT) == ()


def test_a_diagnosis_without_stages_stays_as_it_was() -> None:
    assert with_stages(diagnosis(finding("hang", (1,))), (), window(), SHORT) == diagnosis(finding("hang", (1,)))


@pytest.mark.parametrize(
    ("share", "said"), [(0.1, "has not moved"), (0.9, "lies mostly before this slowdown"), (1.5, "lies mostly before")]
)
def test_windows_from_before_a_slowdown_do_not_say_that_steps_have_not_moved(share: float, said: str) -> None:
    """share: of the window that lies before the slowdown began."""
    usual = told()
    onset_ns = usual.start_ns + int(share * (usual.end_ns - usual.start_ns))
    slow = replace(diagnosis(finding("slow_nic", (1,))), symptom=replace(SYMPTOM, at_ns=onset_ns))
    assert said in with_stages(slow, (usual,), window(), SHORT).agreement[-1]


def test_an_unlocalised_slowdown_is_said_and_changes_no_finding() -> None:
    slow = replace(told("data"), verdict=Verdict.UNLOCALISED, next_look="Look at the nodes.")
    found = with_stages(diagnosis(), (slow,), window("data"), SHORT)
    assert found.findings == ()
    assert "no stage may be called the cause. Look at the nodes." in found.agreement[-1]


def test_stages_say_what_a_rank_that_starts_late_was_doing() -> None:
    found = with_stages(diagnosis(finding(late_start.RULE, (3,))), (told("data"),), window("data"), SHORT)
    assert [one.rule for one in found.findings] == ["stage_delay", late_start.RULE]
    assert (found.findings[0].grade, found.findings[0].component) == (Grade.STRONG, Component.SOFTWARE)
    assert found.victims == (0, 1, 2, 4, 5, 6, 7)


def test_a_tie_inside_a_node_is_broken_by_the_stage() -> None:
    tie = replace(finding(late_start.RULE, (), (2, 3)), culprits=())
    near = tuple(Alternative(one, "It may be the one.") for one in tie.tied)
    edges = (WaitEdge(0, 2, 0, 0, "kept waiting"), WaitEdge(1, 3, 0, 0, "kept waiting"))
    before = replace(diagnosis(tie), victims=(0, 1, 4, 5, 6, 7), path=edges, alternatives=near)
    before = replace(before, symptom=replace(SYMPTOM, kind=SymptomKind.STRAGGLER))
    found = with_stages(before, (told("data"),), window("data"), SHORT)
    assert (found.culprits, found.victims) == ((3,), (0, 1, 2, 4, 5, 6, 7))
    assert {edge.waiter for edge in found.path} == {*found.victims}
    assert [(one.subject.ranks, one.why_not) for one in found.alternatives] == [
        ((2,), "The traces cannot tell it from rank 3: stages do.")
    ]


def test_what_shows_inside_an_op_stays_first_and_is_backed() -> None:
    found = with_stages(diagnosis(finding(slow_nic.RULE, (3,))), (told("backward"),), window("backward"), SHORT)
    assert [one.rule for one in found.findings] == [slow_nic.RULE, "stage_delay"]
    assert found.findings[0].grade is Grade.STRONG


def test_a_disagreement_is_shown_and_blames_nobody_anew() -> None:
    found = with_stages(diagnosis(finding(slow_nic.RULE, (5,))), (told("data"),), window("data"), SHORT)
    assert found.culprits == (5,)
    assert found.agreement[-1].startswith("Stages, disagrees: Rank 3")


def test_a_packet_that_is_not_ours_is_refused() -> None:
    wrong: dict[str, Any] = {"report": {}, "verdict": {}}
    with pytest.raises(KeyError):
        told_of("", wrong)
    assert DATA in told("data").stage


def test_of_several_roles_that_are_late_the_one_that_is_late_first_is_the_culprit() -> None:
    """A rank of a later pipeline stage waits in forward for the one whose data comes late: it only leads there."""
    first = replace(told("data"), role="pp 0")
    waiting = replace(told("data"), role="pp 1", stage=FORWARD, place=1, leader=7)
    for order in ((first, waiting), (waiting, first)):
        found = with_stages(diagnosis(), order, window("data"), SHORT)
        assert found.culprits == (3,)
        assert [one.culprits for one in found.findings] == [(3,), ()]


def test_backward_goes_through_the_pipeline_the_other_way() -> None:
    early, late = (replace(told("backward"), role=f"pp {at}", last=3 + at) for at in (0, 1))
    assert with_stages(diagnosis(), (early, late), window("backward"), SHORT).culprits == (4,)
    early, late = (replace(one, stage=FORWARD) for one in (early, late))
    assert with_stages(diagnosis(), (early, late), window("backward"), SHORT).culprits == (3,)
