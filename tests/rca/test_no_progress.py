"""Jobs without traces: nobody's own counts rise although they had, with somebody waiting in an op."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ingest.window import WINDOW_DTYPE, Window
from nccl_instrument.tables import ENDINGS, LACKS_DONE, SOURCE_RECORDER, SOURCE_STEPS
from rca.diagnose import diagnose
from rca.findings import Grade, SymptomKind
from rca.settings import DEFAULT
from rca.triggers.look import look
from rca.triggers.no_progress import died_by_exception, idle_by_counts, is_by_status
from rca.triggers.normal import Normal, normal_from_json, normal_to_json
from tests.windows import SECOND, make_window

RANKS = 4


def told(
    seconds: int, *, stops_at: float = 1e9, waiting: tuple[int, ...] = (0, 1, 2), every_s: float = 0.1,
    source: int = SOURCE_RECORDER, io: dict[int, int] | None = None, has_traces: bool = False,
) -> Window:  # fmt: skip
    """Four ranks that told their counts for so many seconds; from `stops_at` on those of `waiting` are in an op."""
    healthy = make_window(ranks=8, stuck_before=3, io_bytes_per_s=io) if io else make_window(ranks=8)
    start = healthy.end_ns - seconds * SECOND
    rows = np.zeros(RANKS * seconds, WINDOW_DTYPE["status"])
    for at, row in enumerate(rows):
        rank, second = at % RANKS, at // RANKS + 1
        done_s = min(second, stops_at)
        n = int(done_s / every_s)
        row["rank"], row["node"], row["pid"], row["global_rank"], row["source"] = rank, rank // 2, rank, rank, source
        row["tick_ns"], row["written_ns"] = start + second * SECOND, start + second * SECOND
        row["changed_ns"] = start + int(n * every_s * SECOND)
        row["n_done"], row["n_started"] = n, n
        row["n_enqueued"] = n + (second > stops_at and rank in waiting)
    kept = healthy.tables if has_traces else {name: rows[:0] for name, rows in healthy.tables.items()}
    ranks = healthy.ranks[healthy.ranks["rank"] < RANKS]
    return replace(healthy, tables={**kept, "process": healthy.rows("process"), "status": rows}, ranks=ranks)


def normal_of(every_s: float) -> Normal:
    """What is usual for a job that changes its counts so often."""
    return look(told(15, every_s=every_s)).normal


def test_ranks_that_had_gone_on_and_stand_still_with_ops_in_progress_are_a_failure() -> None:
    seen = look(told(15, stops_at=9), normal_of(0.1))
    (symptom,) = seen.symptoms
    assert (symptom.kind, is_by_status(symptom)) == (SymptomKind.FAILURE, True)
    assert symptom.sentence == "No op has finished for 6.0 s on ranks 0–2, by their own Flight Recorders."


def test_while_nothing_is_known_of_the_job_the_papers_ten_seconds_hold() -> None:
    assert look(told(15, stops_at=7)).symptoms == ()
    assert len(look(told(15, stops_at=4)).symptoms) == 1


def test_a_job_that_is_slow_by_nature_is_given_its_time() -> None:
    slow = look(told(60, every_s=6.0)).normal
    assert look(told(60, stops_at=49, every_s=6.0), slow).symptoms == ()
    assert len(look(told(60, stops_at=36, every_s=6.0), slow).symptoms) == 1


def test_nobody_is_stuck_who_waits_in_no_op_or_has_only_begun() -> None:
    assert look(told(15, stops_at=3, waiting=())).symptoms == ()
    assert look(told(15, stops_at=0.2)).symptoms == ()


def test_traces_of_calls_alone_do_not_silence_the_ranks_own_counts() -> None:
    """The shim in front of NCCL's API sees ops called, never done."""
    window = told(15, stops_at=4, has_traces=True)
    calls = {name: rows[:0] if name in ("flow", "op") else rows for name, rows in window.tables.items()}
    ranks = window.ranks.copy()
    ranks["counters_seen"] |= LACKS_DONE
    assert look(replace(window, tables=calls, ranks=ranks)).symptoms
    assert not look(window).symptoms


def test_of_step_counts_nobody_knows_whether_an_op_is_in_progress_so_it_may_be() -> None:
    (symptom,) = look(told(15, stops_at=3, waiting=(), source=SOURCE_STEPS)).symptoms
    assert symptom.sentence.endswith("by their own step counts.")


def test_traces_see_more_so_counts_are_not_asked_beside_them() -> None:
    assert not any(is_by_status(one) for one in look(told(15, stops_at=3, has_traces=True)).symptoms)


def test_the_normal_keeps_the_ages_and_each_counts_once() -> None:
    once = normal_of(0.1)
    again = look(told(15), once).normal
    assert once.count("status") == again.count("status") > 40
    assert normal_from_json(normal_to_json(again)) == again


def test_a_process_that_writes_no_counts_any_more_is_named_and_one_that_writes_is_not() -> None:
    window = told(15, stops_at=9)
    (symptom,) = look(window, normal_of(0.1)).symptoms
    assert diagnose(window, symptom).findings == ()
    rows = window.rows("status").copy()
    rows["written_ns"][rows["rank"] == 2] = window.end_ns - 6 * SECOND
    (found,) = diagnose(replace(window, tables={**window.tables, "status": rows}), symptom).findings
    assert (found.rule, found.culprits, found.grade) == ("own_counts", (2,), Grade.MODERATE)
    assert "its Python does not run" in found.sentence


def test_a_rank_that_moves_files_while_the_others_wait_is_late_not_stuck() -> None:
    seen = look(told(15, stops_at=9, io={3: 50_000_000}), normal_of(0.1))
    assert (seen.symptoms, seen.held) == ((), "The job waits, and rank 3 moves files: late, not stuck.")


def test_ranks_that_died_by_an_exception_are_known_and_others_are_not() -> None:
    window = told(15, stops_at=9)
    assert died_by_exception(window) == ()
    rows = window.rows("status").copy()
    rows["ending"][rows["rank"] != 2] = ENDINGS.index("by an exception")
    assert died_by_exception(replace(window, tables={**window.tables, "status": rows})) == (0, 1, 3)


def test_a_job_that_tells_its_counts_and_does_nothing_for_a_minute_is_idle() -> None:
    window = told(80, stops_at=15, waiting=())
    (symptom,) = look(window, normal_of(0.1)).symptoms
    assert (symptom.kind, is_by_status(symptom), symptom.ranks) == (SymptomKind.IDLE, False, ())
    assert symptom.sentence == "No op is in flight on any of 4 ranks for 65 s."
    assert diagnose(window, symptom).culprits == ()


@pytest.mark.parametrize(
    ("seconds", "stops_at", "every_s"),
    [(80, 25, 0.1), (120, 20, 12.0)],  # less than a minute; less than ten times what is usual
)
def test_less_than_a_minute_or_than_ten_times_what_is_usual_is_nobodys_business(
    seconds: int, stops_at: float, every_s: float
) -> None:
    normal = look(told(120, every_s=every_s)).normal
    assert look(told(seconds, stops_at=stops_at, waiting=()), normal).symptoms == ()


def test_a_job_that_tells_too_little_to_know_what_is_usual_is_not_idle() -> None:
    assert look(told(80, stops_at=15, waiting=())).symptoms == ()


def test_who_waits_in_an_op_or_does_not_tell_is_not_idle() -> None:
    window = told(80, stops_at=15, waiting=())
    rows = window.rows("status")
    assert idle_by_counts(window, normal_of(0.1), DEFAULT) is not None
    silent = replace(window, tables={**window.tables, "status": rows[rows["rank"] != 2]})
    assert idle_by_counts(silent, normal_of(0.1), DEFAULT) is None
    assert idle_by_counts(told(80, stops_at=15, waiting=(1,)), normal_of(0.1), DEFAULT) is None


def test_a_declared_pause_or_file_traffic_explains_a_job_that_does_nothing() -> None:
    window, normal = told(80, stops_at=15, waiting=()), normal_of(0.1)
    paused = look(window, normal, paused="Somebody declared a pause.")
    assert (paused.symptoms, paused.excused) == ((), "Somebody declared a pause.")
    saving = look(told(80, stops_at=15, waiting=(), io={3: 5_000_000}), normal)
    assert saving.symptoms == () and "5.0 MB/s of files" in saving.excused
