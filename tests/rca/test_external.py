"""Asked for by hand: the rules that have something to explain are run; and what an idle job says of itself."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from ingest.window import Window
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.tables import PROCESS_GONE
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, Grade, Symptom, SymptomKind
from rca.settings import DEFAULT
from rca.triggers.external import slow_since_ns, stands_still, taken_as
from rca.why_not import why_not
from rca.words import NOTHING_TO_EXPLAIN
from tests.nccl_instrument.simulate.jobs import EIGHT, run, window_after, window_of
from tests.rca import test_recorded, test_slowdown
from tests.windows import make_window

HANGS = sorted(path.stem for path in test_recorded.FOLDER.glob("*.npz"))


def asked(window: Window, kind: SymptomKind = SymptomKind.EXTERNAL) -> Diagnosis:
    return diagnose(window, Symptom(kind, window.job, 1, window.now_ns, window.now_ns, 0, (), "asked for"))


@cache
def healthy() -> Window:
    return window_of(run(EIGHT, seconds=12.0))


def test_of_a_healthy_job_nobody_is_named_and_it_says_that_nothing_is_to_be_explained() -> None:
    found = asked(healthy())
    assert (found.findings, found.missing[-1]) == ((), NOTHING_TO_EXPLAIN)
    assert found.symptom.kind is SymptomKind.EXTERNAL
    assert not stands_still(healthy(), DEFAULT)


def test_one_long_pause_is_no_slowdown() -> None:
    window = window_after("evaluation_pause", at_s=6.0, seconds=14.0, amount=2.0)
    assert slow_since_ns(window, DEFAULT) is None
    assert asked(window).culprits == ()


def test_a_rank_that_writes_a_checkpoint_is_told_and_not_blamed() -> None:
    window = window_after("checkpoint", EIGHT, 0, at_s=8.0, seconds=13.0)
    found = asked(window)
    (best,) = found.findings
    assert (found.culprits, best.subject.ranks, best.grade) == ((), (0,), Grade.WEAK)
    assert "MB/s of files: late, not stuck" in found.verdict
    assert why_not(window, found.symptom, found, 0).why_not.startswith("What was found is about it, and blames nobody")


@pytest.mark.parametrize(("seconds", "grade"), [(13.0, Grade.MODERATE), (20.0, Grade.STRONG)])
def test_who_has_not_entered_an_op_for_ten_seconds_is_surely_stuck_whenever_one_asks(
    seconds: float, grade: Grade
) -> None:
    stuck = asked(window_after("stuck_before", EIGHT, 0, at_s=8.0, seconds=seconds))
    assert (stuck.culprits, stuck.findings[0].grade) == ((0,), grade)


@pytest.mark.parametrize("name", HANGS)
def test_a_hang_is_explained_as_if_a_trigger_had_seen_it(name: str) -> None:
    window = test_recorded.load_recorded(test_recorded.FOLDER / f"{name}.npz")
    found = asked(window)
    seen = diagnose(window, test_recorded.look(window, test_recorded.USUAL).symptoms[0])
    assert (found.culprits, found.findings[0].component) == (seen.culprits, seen.findings[0].component)


@pytest.mark.parametrize("name", sorted(test_slowdown.TRUTH))
def test_a_slowdown_is_found_by_its_own_onset(name: str) -> None:
    window = test_slowdown.recorded(name)
    found, truth = asked(window), test_slowdown.TRUTH[name]
    assert (tuple(sorted(found.culprits)), found.findings[0].component, found.findings[0].kind) == truth
    onset_ns = slow_since_ns(window, DEFAULT)
    assert onset_ns is not None
    assert abs(onset_ns - window.start_ns - test_slowdown.ONSET_NS) < 2 * 10**9


def test_a_silent_node_is_seen_though_the_job_goes_on() -> None:
    early = asked(window_after("agent_silent", EIGHT, 2, at_s=2.0, seconds=14.5))
    assert not early.findings and any("the node is silent" in one for one in early.missing)
    window = window_after("agent_silent", EIGHT, 2, at_s=2.0, seconds=24.5)
    found = asked(window)
    assert (found.culprits, found.findings[0].component) == ((4, 5), Component.NODE)
    assert taken_as(window, found.symptom, DEFAULT).kind is SymptomKind.SILENCE


def test_any_rank_can_be_asked_about_after_an_external_diagnosis() -> None:
    window = test_slowdown.recorded("slow_copies_2")
    found = asked(window)
    assert why_not(window, found.symptom, found, 2).why_not.startswith("It is blamed")
    assert "inherited" in why_not(window, found.symptom, found, 6).why_not


# ---- idle ----


@cache
def idle() -> Window:
    """Nothing is in flight: all ranks have completed what they entered."""
    window = window_of(run(Layout(tp=1, pp=1, dp=8, ranks_per_node=2), seconds=6.0))
    return replace(
        window, tables={**window.tables, "flow": window.rows("flow")[:0], "live_op": window.rows("live_op")[:0]}
    )


def of_process(window: Window, rank: int, **columns: int) -> Window:
    rows = window.rows("process").copy()
    for name, value in columns.items():
        rows[name][rows["rank"] == rank] = value
    return replace(window, tables={**window.tables, "process": rows})


def test_an_idle_job_names_nobody_and_asks_for_stacks() -> None:
    found = asked(idle(), SymptomKind.IDLE)
    (best,) = found.findings
    assert (best.rule, best.culprits, best.grade, found.victims) == ("idle", (), Grade.WEAK, ())
    assert "py-spy dump --pid" in best.advice


def test_of_an_idle_job_a_stopped_process_is_named() -> None:
    best = asked(of_process(idle(), 5, state=ord("T")), SymptomKind.IDLE).findings[0]
    assert (best.rule, best.culprits, best.component, best.grade) == ("idle", (5,), Component.PROCESS, Grade.MODERATE)
    assert "kill -CONT" in best.advice


def test_of_an_idle_job_a_process_that_is_gone_is_named() -> None:
    best = asked(of_process(idle(), 3, alive=0, state=PROCESS_GONE), SymptomKind.IDLE).findings[0]
    assert (best.culprits, best.component) == ((3,), Component.PROCESS)


def test_a_job_of_which_all_processes_are_gone_has_no_culprit() -> None:
    window = idle()
    for rank in range(8):
        window = of_process(window, rank, alive=0, state=PROCESS_GONE)
    assert asked(window, SymptomKind.IDLE).culprits == ()


@pytest.mark.parametrize("kind", [SymptomKind.FAILURE, SymptomKind.SILENCE, SymptomKind.EXTERNAL])
def test_other_symptoms_are_not_idle(kind: SymptomKind) -> None:
    assert all(finding.rule != "idle" for finding in asked(idle(), kind).findings)


def test_where_somebody_waits_after_all_the_hang_is_explained() -> None:
    found = asked(make_window(stuck_before=5), SymptomKind.IDLE)
    assert {finding.rule for finding in found.findings} == {"hang"}
    assert found.culprits == (5,)
