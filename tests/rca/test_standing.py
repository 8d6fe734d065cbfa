"""Table 4 over time: nobody stands still in a healthy job; in a stalled one every rank moves, then shows its condition."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.simulate.faults import make_fault
from nccl_instrument.tables import DIRECTIONS
from rca.findings import NodeClock, State
from rca.hang.standing import MOVES, OWN_END, RANKS_MAX, STEP_NS, STOPPED, UNHEARD, Span, Standing, standing
from tests.nccl_instrument.simulate.jobs import EIGHT, run, window_of

SECOND = 10**9
CONDITIONS = {state.value for state in State}
VICTIM = 3
FAULT_S = 4.0


@cache
def stalled(fault: str = "nic_down") -> Window:
    """Eight ranks; four seconds after it began the job comes to rest, and is watched for five more."""
    one = make_fault(fault, EIGHT, FAULT_S, victim=VICTIM)
    return window_of(run(EIGHT, one, seconds=9.0), span_s=8.0)


def of(rank: int, shown: Standing) -> list[Span]:
    return [span for span in shown.spans if span.rank == rank]


def test_nobody_stands_still_in_a_healthy_job() -> None:
    shown = standing(window_of(run(seconds=4.0)), range(8))
    assert {span.doing for span in shown.spans} & CONDITIONS == set()
    assert MOVES in {span.doing for span in shown.spans}


def test_spans_of_a_rank_cover_the_window_without_gaps() -> None:
    shown = standing(stalled(), range(8))
    for rank in range(8):
        mine = of(rank, shown)
        assert (mine[0].from_ns, mine[-1].to_ns) == (shown.from_ns, shown.to_ns)
        assert all(one.to_ns == other.from_ns for one, other in pairwise(mine))
        assert all(one.from_ns < one.to_ns for one in mine)


def test_ranks_move_until_the_fault_and_stand_still_in_a_condition_after_it() -> None:
    shown = standing(stalled(), range(8))
    for rank in range(8):
        last = of(rank, shown)[-1]
        assert last.doing in CONDITIONS, last
        assert MOVES in {span.doing for span in of(rank, shown)[:-1]}
        assert last.comm_name
        assert last.peer_rank in range(8)
    assert {span.doing for span in of(VICTIM, shown)} & {State.NOT_TRANSMITTED, State.NOT_DELIVERED}


def test_a_rank_stands_still_since_its_flows_last_moved_finer_than_a_step() -> None:
    window = stalled()
    shown = standing(window, range(8))
    fault_ns = window.end_ns - int((9.0 - FAULT_S) * SECOND)
    since = [of(rank, shown)[-1].from_ns - fault_ns for rank in range(8)]
    assert all(-STEP_NS // 5 < ns < STEP_NS for ns in since), since
    assert any(ns % STEP_NS != (shown.from_ns - fault_ns) % STEP_NS for ns in since)


def test_both_ends_tell_whose_side_it_is_and_one_end_alone_tells_nothing() -> None:
    window = stalled("proxy_stuck")
    flow = window.rows("flow")
    told = [span for span in standing(window, range(8)).spans if span.verdict in ("local", "remote")]
    assert told
    for span in told:
        alone = replace(window, tables={**window.tables, "flow": flow[flow["rank"] == span.rank]})
        for one in of(span.rank, standing(alone, [span.rank])):
            by_one_end = (DIRECTIONS.index(one.direction), one.doing) in OWN_END if one.direction else False
            assert one.verdict in ("", "local" if by_one_end else "undecided")


def test_a_stopped_process_is_said_to_be_stopped() -> None:
    shown = standing(stalled("rank_frozen"), range(8))
    assert of(VICTIM, shown)[-1].doing == STOPPED
    assert STOPPED not in {span.doing for span in shown.spans if span.rank != VICTIM}


def test_what_a_node_never_told_is_not_drawn_as_well() -> None:
    window = stalled()
    node = int(window.ranks["node"][VICTIM])
    cut_ns = window.start_ns + (window.end_ns - window.start_ns) // 2
    tables = {
        name: rows[(rows["node"] != node) | (rows["tick_ns"] < cut_ns)]
        if "tick_ns" in (rows.dtype.names or ())
        else rows
        for name, rows in window.tables.items()
    }
    shown = standing(replace(window, tables=tables), [VICTIM])
    assert shown.spans[-1].doing == UNHEARD
    assert shown.spans[-1].from_ns >= cut_ns


def test_a_clock_that_is_ahead_changes_nothing_once_it_is_known() -> None:
    window = stalled()
    node = int(window.ranks["node"][VICTIM])
    tables = {}
    for name, rows in window.tables.items():
        tables[name] = rows.copy()
        if "tick_ns" in (rows.dtype.names or ()):
            tables[name]["tick_ns"][rows["node"] == node] += 3 * SECOND
    ahead = NodeClock(str(window.nodes["name"][node]), 3 * SECOND, 1000)
    assert standing(replace(window, tables=tables), range(8), [ahead]) == standing(window, range(8))


def test_ranks_beyond_the_limit_are_counted_and_unknown_ones_are_unheard() -> None:
    shown = standing(stalled(), range(RANKS_MAX + 5))
    assert (len(shown.ranks), shown.omitted) == (RANKS_MAX, 5)
    assert {span.doing for span in of(RANKS_MAX - 1, shown)} == {UNHEARD}


@pytest.mark.parametrize("tables", [{}, {"flow": None}])
def test_a_window_without_rows_is_unheard(tables: dict[str, None]) -> None:
    window = stalled()
    kept = {} if not tables else {name: rows[:0] for name, rows in window.tables.items()}
    shown = standing(replace(window, tables=kept), [0, 1])
    assert [span.doing for span in shown.spans] == [UNHEARD, UNHEARD]
    assert standing(window, []).spans == ()


def test_the_order_in_which_rows_arrived_changes_nothing() -> None:
    window = stalled()
    mixed = np.random.default_rng(5)
    tables = {name: rows[mixed.permutation(len(rows))] for name, rows in window.tables.items()}
    assert standing(replace(window, tables=tables), range(8)) == standing(window, range(8))
