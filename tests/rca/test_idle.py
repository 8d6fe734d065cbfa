"""The idle trigger: what is nobody's business comes first, then the job that does nothing and should."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ingest.window import Window
from rca.diagnose import diagnose
from rca.findings import SymptomKind
from rca.settings import DEFAULT, SECOND_NS, settings_with
from rca.triggers.idle import idle_limit_ns
from rca.triggers.look import Look, look
from rca.triggers.normal import ALL, Normal
from rca.triggers.pace import Pace
from tests.windows import make_window

USUAL = Normal(intervals={ALL: {100: 1000}})  # 2^25 ns, some 34 ms, between two ops
RARE = Normal(intervals={ALL: {140: 1000}})  # 41 s
QUICK = settings_with({"idle_s": 10})


def kinds(seen: Look) -> list[SymptomKind]:
    return [symptom.kind for symptom in seen.symptoms]


def idle(stalled_s: float = 70, **scenario: object) -> Window:
    return make_window(paused=True, stalled_s=stalled_s, **scenario)  # type: ignore[arg-type]


def test_a_pause_of_less_than_a_minute_is_nobodys_business() -> None:
    assert kinds(look(idle(55), USUAL)) == []


def test_a_job_without_a_normal_is_starting_and_may_take_its_time() -> None:
    assert kinds(look(idle(3000), Normal())) == []


def test_a_job_whose_ops_are_rare_may_be_quiet_for_ten_of_its_intervals() -> None:
    assert idle_limit_ns(RARE, DEFAULT) == pytest.approx(410 * SECOND_NS, rel=0.2)
    assert kinds(look(idle(300), RARE)) == []


def test_a_job_with_long_iterations_may_be_quiet_for_two_of_them() -> None:
    slow = replace(USUAL, pace=Pace(usual_ns=(50 * SECOND_NS,) * 20))
    assert kinds(look(idle(95), slow)) == []
    assert kinds(look(idle(105), slow)) == [SymptomKind.IDLE]


def test_a_pause_the_job_came_back_from_twice_is_one_of_its_own() -> None:
    once, twice = (replace(USUAL, pauses_ns=(100 * SECOND_NS,) * n) for n in (1, 2))
    assert kinds(look(idle(120), once)) == [SymptomKind.IDLE]
    assert kinds(look(idle(120), twice)) == []
    assert kinds(look(idle(160), twice)) == [SymptomKind.IDLE]


def test_a_pause_is_remembered_when_ops_go_on_and_a_stall_in_an_op_is_none() -> None:
    window = make_window(at_ms=500)
    began_ns = int(window.rows("op")["enqueued_ns"][window.rows("op")["enqueued_ns"] > 0].min())
    before = replace(USUAL, seen_ns=began_ns - 100 * SECOND_NS)
    assert look(window, before).normal.pauses_ns == (100 * SECOND_NS,)
    flow = window.rows("flow").copy()
    flow["tick_ns"] = began_ns - 5 * SECOND_NS
    stalled = replace(window, tables={**window.tables, "flow": flow})
    assert look(stalled, before).normal.pauses_ns == ()
    after_an_outage = replace(window, start_ns=began_ns)
    assert look(after_an_outage, before).normal.pauses_ns == ()


def test_who_reads_or_writes_files_explains_it_for_a_while() -> None:
    seen = look(idle(io_bytes_per_s={2: 5_000_000}), USUAL)
    assert kinds(seen) == []
    assert "rank 2 moves 5.0 MB/s of files" in seen.excused
    assert kinds(look(idle(2000, io_bytes_per_s={2: 5_000_000}), USUAL)) == [SymptomKind.IDLE]


def test_a_declared_pause_explains_it_as_long_as_it_lasts() -> None:
    seen = look(idle(5000), USUAL, paused="Paused by rita until 20:00 UTC: new switch")
    assert (kinds(seen), seen.excused) == ([], "Paused by rita until 20:00 UTC: new switch")


def test_a_pause_excuses_no_hang() -> None:
    assert kinds(look(make_window(frozen=3), USUAL, paused="Paused")) == [SymptomKind.FAILURE]


def test_an_op_in_flight_on_a_rank_that_is_not_watched_is_no_idle_job() -> None:
    window = make_window(16, tp=2, pp=2, stuck_before=15, stalled_s=70)
    watched = replace(DEFAULT, sampled_ranks_max=1)
    assert SymptomKind.IDLE not in kinds(look(window, USUAL, watched))


def test_while_a_node_catches_up_nobody_knows_what_is_in_flight_there() -> None:
    assert kinds(look(idle(catching_up=[2]), USUAL)) == []


def test_a_job_whose_processes_have_ended_is_not_idle() -> None:
    window = idle()
    process = window.rows("process").copy()
    process["alive"] = 0
    assert kinds(look(replace(window, tables={**window.tables, "process": process}), USUAL)) == []


def test_a_minute_without_any_op_in_flight_is_an_idle_job_since_its_last_op() -> None:
    window = idle()
    (symptom,) = look(window, USUAL).symptoms
    assert (symptom.kind, symptom.ranks, symptom.comm_id) == (SymptomKind.IDLE, (), 0)
    assert symptom.at_ns == max(
        int(window.rows("progress")["last_done_ns"].max()), int(np.max(window.rows("op")["done_ns"]))
    )
    assert "on any of 8 ranks for 70 s" in symptom.sentence


def test_an_idle_job_blames_nobody() -> None:
    window = idle()
    (symptom,) = look(window, USUAL).symptoms
    assert diagnose(window, symptom).culprits == ()


def test_the_limit_is_a_setting_of_the_job() -> None:
    assert kinds(look(idle(15), USUAL, QUICK)) == [SymptomKind.IDLE]
