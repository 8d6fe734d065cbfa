"""Whatever part of a window is missing or odd: looks and diagnoses still answer, and what is missing is said."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.window import Window
from rca.diagnose import diagnose
from rca.findings import Symptom, SymptomKind, diagnosis_from_json, to_json
from rca.holes import NOT_LOOKED_AT, NOT_SHOWN, best_of
from rca.narrowed import unseen_of
from rca.settings import DEFAULT
from rca.triggers.look import look
from rca.triggers.normal import ALL, Normal
from tests.windows import lagging, make_window

FAULTS = ("nic_down", "frozen", "killed", "stuck_before", "proxy_asleep", "gpu_hung")
USUAL = Normal(intervals={ALL: {100: 1000}})
TABLES = ("op", "live_op", "flow", "progress", "process", "nic", "loss")


def answered(window: Window) -> None:
    """Looks and diagnoses, and the diagnosis survives JSON."""
    look(window, USUAL)
    found = diagnose(window, Symptom(SymptomKind.EXTERNAL, "job", 1, 1, 2, 0, (), ""))
    assert diagnosis_from_json(to_json(found)) == found


def thinned(window: Window, share: float, seed: int) -> Window:
    """The window with that share of the rows of every table lost, members and ranks included."""
    random = np.random.default_rng(seed)
    tables = {name: rows[random.random(len(rows)) > share] for name, rows in window.tables.items()}
    members = window.members[random.random(len(window.members)) > share / 4]
    ranks = window.ranks[random.random(len(window.ranks)) > share / 4]
    return replace(window, tables=tables, members=members, ranks=ranks)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(FAULTS), st.floats(0, 1), st.integers(0, 10**6))
def test_any_rows_may_be_missing(fault: str, share: float, seed: int) -> None:
    answered(thinned(make_window(**{fault: 3}), share, seed))  # type: ignore[arg-type]


def test_a_dead_nic_of_which_neither_users_nor_lost_data_are_known_is_some_ranks_of_its_node() -> None:
    answered(thinned(make_window(nic_down=3), 0.5, 651))


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("fault", FAULTS)
def test_any_table_may_be_missing(fault: str, table: str) -> None:
    window = make_window(**{fault: 3})  # type: ignore[arg-type]
    answered(replace(window, tables={name: rows for name, rows in window.tables.items() if name != table}))


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(FAULTS), st.integers(0, 10**6))
def test_any_numbers_may_stand_in_flows(fault: str, seed: int) -> None:
    window = make_window(**{fault: 3})  # type: ignore[arg-type]
    random, flow = np.random.default_rng(seed), window.rows("flow").copy()
    flow["counters"] = random.integers(0, 64, flow["counters"].shape)
    flow["peer"] = random.integers(-1, 9, len(flow))
    flow["channel"] = random.integers(0, 4, len(flow))
    answered(replace(window, tables={**window.tables, "flow": flow}))


def test_ranks_whose_number_is_unknown_are_left_out() -> None:
    window = make_window(frozen=3)
    tables = {name: rows.copy() for name, rows in window.tables.items()}
    for rows in tables.values():
        rows["rank"][rows["rank"] == 6] = -1
    members = window.members.copy()
    members["rank"][members["rank"] == 6] = -1
    answered(replace(window, tables=tables, members=members, ranks=window.ranks[window.ranks["rank"] != 6]))


def test_an_empty_window_is_nobodys_fault() -> None:
    window = make_window()
    empty = replace(
        window, nodes=window.nodes[:0], ranks=window.ranks[:0], members=window.members[:0], tables={}, world_size=0
    )
    assert look(empty, USUAL).symptoms == ()
    assert diagnose(empty, Symptom(SymptomKind.EXTERNAL, "job", 1, 1, 2, 0, (), "")).findings == ()


def test_findings_that_are_left_out_are_counted_and_make_no_other_answer() -> None:
    window = make_window(frozen=3, killed=5)
    symptom = look(window, Normal()).symptoms[0]
    whole, most = diagnose(window, symptom), diagnose(window, symptom, replace(DEFAULT, findings_max=1))
    assert len(whole.findings) == 2 and not whole.missing
    assert most.findings == whole.findings[:1] and most.missing == (f"{NOT_SHOWN}1.",)
    assert unseen_of(most) == ()


@pytest.mark.parametrize(("most", "left"), [(5, 0), (1, 1)])
def test_nodes_that_a_rule_does_not_get_to_are_counted_too(most: int, left: int) -> None:
    symptom = Symptom(SymptomKind.SILENCE, "job", 1, 1, 2, 0, (), "")
    window = lagging(make_window(silent=[1, 2]), (1, 25.0), (2, 25.0))
    found = diagnose(window, symptom, replace(DEFAULT, findings_max=most))
    assert len(found.findings) == 2 - left
    assert (f"{NOT_LOOKED_AT}{left}." in found.missing) == bool(left)


def test_places_where_waiting_ends_that_are_not_looked_at_are_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    window = make_window(frozen=3, killed=5)
    symptom = look(window, Normal()).symptoms[0]
    monkeypatch.setattr("rca.hang.sinks.SINKS_MAX", 1)
    found = diagnose(window, symptom)
    assert len(found.findings) == 1 and found.missing == (f"{NOT_LOOKED_AT}1.",)


def test_what_is_left_out_is_counted_once_however_often_findings_are_joined() -> None:
    found = diagnose(make_window(frozen=3), look(make_window(frozen=3), Normal()).symptoms[0]).findings
    shown, missing = best_of(found * 7, 5, ("a node was silent",))
    assert len(shown) == 5 and missing == ("a node was silent", f"{NOT_SHOWN}2.")
    assert best_of((*shown, *found), 5, missing)[1] == ("a node was silent", f"{NOT_SHOWN}3.")
