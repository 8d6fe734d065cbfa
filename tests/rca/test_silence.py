"""The silence rule: who sends nothing any more, and when that means nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ingest.window import Rows, Window
from rca.diagnose import diagnose
from rca.findings import Component, FaultKind, Finding, Grade, Symptom, SymptomKind
from rca.hang.progress import state_of
from rca.ranks import are_alive_unheard
from rca.rules import silence
from rca.settings import DEFAULT
from tests.windows import lagging, make_window


def findings(kind: SymptomKind = SymptomKind.SILENCE, **scenario) -> tuple[Finding, ...]:  # type: ignore[no-untyped-def]
    window = make_window(**scenario)
    state = state_of(lagging(window, *((node, 25.0) for node in scenario.get("silent", ()))), DEFAULT)
    return silence.explain(state, Symptom(kind, "job", 1, 1, 2, 0, (), ""), DEFAULT)


@pytest.mark.parametrize(
    "scenario", [{}, {"catching_up": [1]}, {"silent": range(4)}, {"frozen": 2}], ids=["healthy", "spool", "all", "hang"]
)
def test_nobody_is_silent(scenario: dict) -> None:  # type: ignore[type-arg]
    assert findings(**scenario) == ()


def test_a_stall_is_not_answered_with_the_silence_of_a_node_that_nobody_waits_for() -> None:
    assert findings(SymptomKind.FAILURE, paused=True, silent=[1]) == ()


def test_a_process_that_was_seen_stopped_before_its_node_fell_silent_is_named() -> None:
    window = make_window(frozen=3)
    nodes = window.nodes.copy()
    nodes["watermark_ns"][1] = window.now_ns - DEFAULT.silence_ns
    found = diagnose(replace(window, nodes=nodes), Symptom(SymptomKind.FAILURE, "job", 1, 1, 2, 0, (), ""))
    assert any((f.culprits, f.component) == ((3,), Component.PROCESS) for f in found.findings)


def test_a_silent_node_is_named_with_its_ranks() -> None:
    (found,) = findings(silent=[1])
    assert (found.culprits, found.component, found.kind) == ((2, 3), Component.NODE, FaultKind.SILENCE)
    assert found.subject.name == "node1"


def test_of_a_silent_node_with_whose_ranks_ops_go_on_nobody_is_said_to_wait() -> None:
    (found,) = findings(silent=[1])
    assert found.grade is Grade.MODERATE
    assert found.sentence.endswith(
        "while others report; ops in communicators with its ranks go on, so that it is likely its agent, or its way here."
    )


def test_no_other_trouble_names_a_node_with_which_the_job_goes_on_before_its_time() -> None:
    window = lagging(make_window(silent=[1, 2]), (1, 25), (2, 11))
    found = silence.explain(state_of(window, DEFAULT), Symptom(SymptomKind.SILENCE, "job", 1, 1, 2, 0, (), ""), DEFAULT)
    assert [one.subject.name for one in found] == ["node1"]


def of_racks(unknown: tuple[int, ...] = ()) -> tuple[Finding, ...]:
    """Eight nodes in racks of two, of which the second is silent while the job goes on; unknown: ranks of whose communicators
    nothing is known."""
    window = lagging(make_window(16, dp=4, silent=[2, 3]), (2, 25), (3, 25))
    members = window.members.copy()
    members["comm_id"][np.isin(members["rank"], unknown)] = 1
    racks = {str(name): f"r{node // 2}" for node, name in enumerate(window.nodes["name"])}
    cut = replace(window, racks=racks, members=members)
    assert are_alive_unheard(cut, DEFAULT).tolist() == [False] * 2 + [True, not unknown] + [False] * 4
    return silence.explain(state_of(cut, DEFAULT), Symptom(SymptomKind.SILENCE, "job", 1, 1, 2, 0, (), ""), DEFAULT)


def test_of_a_silent_rack_with_which_the_job_goes_on_nobody_is_said_to_wait() -> None:
    (rack,) = of_racks()
    assert (rack.subject.kind, rack.subject.name, rack.grade) == ("rack", "r1", Grade.MODERATE)
    assert "go on, so that it is likely its agent" in rack.sentence and "wait for" not in rack.sentence


def test_a_silent_rack_of_which_one_node_is_known_to_live_is_not_said_to_go_on() -> None:
    (rack,) = of_racks(unknown=(6, 7))
    assert (rack.subject.kind, rack.subject.name) == ("rack", "r1")
    assert "go on" not in rack.sentence


def fresh(window: Window) -> Window:
    """The window in which one rank that is heard has completed an op of each larger communicator a second ago."""
    rows, members = window.rows("progress").copy(), window.members["comm_id"]
    larger = [one for one in np.unique(members) if (members == one).sum() > 2]
    rows["last_done_ns"][(rows["rank"] == 0) & np.isin(rows["comm_id"], larger)] = window.now_ns - 10**9
    return replace(window, tables={**window.tables, "progress": rows})


def test_what_one_rank_has_completed_does_not_prove_that_a_node_lives() -> None:
    assert not are_alive_unheard(fresh(make_window(frozen=3, silent=[1])), DEFAULT).any()


def test_what_two_send_each_other_does_not_prove_that_a_third_lives() -> None:
    window = lagging(make_window(silent=[1]), (1, 11))
    assert are_alive_unheard(window, DEFAULT)[1]
    rows = window.rows("progress").copy()
    rows["n_p2p_enqueued"] = 1
    assert not are_alive_unheard(replace(window, tables={**window.tables, "progress": rows}), DEFAULT).any()


def test_a_silent_node_that_others_wait_for_is_surer() -> None:
    window = make_window(frozen=3, silent=[1])
    found = diagnose(window, Symptom(SymptomKind.SILENCE, "job", 1, 1, 2, 0, (), ""))
    node = next(finding for finding in found.findings if finding.rule == "silence")
    assert node.grade is Grade.STRONG
    assert any("silent" in sentence for sentence in found.missing)


def without_rows(rank: int, **scenario) -> Window:  # type: ignore[no-untyped-def]
    """The window of a job of which this rank sends nothing any more, as when its segment cannot be read."""
    window = make_window(**scenario)
    tables = {name: rows[rows["rank"] != rank] for name, rows in window.tables.items()}
    return replace(window, tables=tables, nodes=older(window))


def older(window: Window) -> Rows:
    nodes = window.nodes.copy()
    nodes["first_ns"] = window.start_ns - 10**10
    return nodes


@pytest.mark.parametrize("kind", [SymptomKind.SILENCE, SymptomKind.FAILURE])
def test_a_rank_that_stops_reporting_on_a_reporting_node_is_found(kind: SymptomKind) -> None:
    state = state_of(without_rows(3), DEFAULT)
    (found,) = silence.explain(state, Symptom(kind, "job", 1, 1, 2, 0, (), ""), DEFAULT)
    assert (found.subject.ranks, found.component, found.kind) == ((3,), Component.UNKNOWN, FaultKind.SILENCE)
    assert found.grade in (Grade.WEAK, Grade.MODERATE)


def test_a_rank_of_a_node_whose_stored_data_cannot_be_read_is_not_called_silent() -> None:
    window = replace(without_rows(3), unreadable={"node1": 2})
    state = state_of(window, DEFAULT)
    assert silence.explain(state, Symptom(SymptomKind.SILENCE, "job", 1, 1, 2, 0, (), ""), DEFAULT) == ()


def test_a_rank_that_ended_cleanly_is_not_silent() -> None:
    window = make_window(paused=True, stalled_s=30, killed=3)
    tables = {name: rows[rows["rank"] != 3] for name, rows in window.tables.items() if name != "op"}
    tables["process"] = window.rows("process")
    tables["process"]["tick_ns"][tables["process"]["rank"] == 3] -= 15 * 10**9
    state = state_of(replace(window, tables=tables, nodes=older(window)), DEFAULT)
    assert silence.explain(state, Symptom(SymptomKind.SILENCE, "job", 1, 1, 2, 0, (), ""), DEFAULT) == ()


def test_a_rank_of_a_silent_node_is_its_nodes_matter() -> None:
    assert [found.component for found in findings(silent=[1])] == [Component.NODE]
