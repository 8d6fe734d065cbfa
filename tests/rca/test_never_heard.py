"""Ranks of which nothing was ever heard, as where an agent runs on some nodes only: nobody who is heard is blamed for them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from ingest.window import Window
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, FaultKind, Grade, Symptom, SymptomKind
from rca.hang.progress import state_of
from rca.hang.waits import Why
from rca.settings import DEFAULT
from rca.triggers.look import look
from rca.triggers.normal import ALL, Normal
from rca.why_not import why_not
from tests.windows import make_window

FAULTS = ("nic_down", "frozen", "killed", "stuck_before", "proxy_asleep", "gpu_hung")
FAILURE = Symptom(SymptomKind.FAILURE, "job", 1, 1, 2, 0, (), "")


def diagnosed(window: Window) -> Diagnosis:
    return diagnose(window, FAILURE)


def without_its_node(fault: str, victim: int, **scenario) -> Window:  # type: ignore[no-untyped-def]
    return make_window(**{fault: victim}, without_nodes=[victim // 2], **scenario)


@pytest.mark.parametrize("transport", ["IB", "Socket"])
@pytest.mark.parametrize("fault", FAULTS)
def test_nobody_who_is_heard_is_blamed_for_a_rank_that_is_not(fault: str, transport: str) -> None:
    for victim in (0, 3, 4, 7):
        window = without_its_node(fault, victim, transport=transport, seed=victim % 3, at_ms=500 + 37 * victim)
        found = diagnosed(window).findings
        assert [one.culprits for one in found if one.grade is not Grade.WEAK] == [], (victim, found)
        assert victim in {rank for one in found for tied in one.tied for rank in tied.ranks}


def test_ranks_that_are_not_heard_are_named_as_unknown() -> None:
    (found,) = diagnosed(without_its_node("frozen", 4)).findings
    assert (found.rule, found.component, found.kind) == ("silence", Component.UNKNOWN, FaultKind.SILENCE)
    assert (found.culprits, found.grade, found.subject.ranks) == ((), Grade.WEAK, (4, 5))
    assert found.sentence.startswith("Nothing has ever been heard of ranks 4 and 5, and the waiting may end there")


def test_where_most_are_not_heard_they_are_counted_and_not_named() -> None:
    (found,) = diagnosed(make_window(frozen=4, without_nodes=[1, 2, 3])).findings
    assert (found.subject.kind, found.subject.ranks, found.tied) == ("communicator", (), ())
    assert any("of 8" in one.what and one.value == 2 for one in found.evidence)


def test_who_waits_for_ranks_that_are_not_heard_is_a_victim_and_not_asked_for_more() -> None:
    window = without_its_node("frozen", 4)
    found = diagnosed(window)
    assert set(found.victims) == {0, 1, 2, 3, 6, 7}
    assert {edge.waits_for for edge in found.path} <= set(found.victims)
    said = [why_not(window, FAILURE, found, rank).why_not for rank in found.victims]
    assert any("its waiting may end at ranks of which nothing is heard" in one for one in said)
    assert all("nothing is heard" in one or "waits for rank" in one for one in said)


@pytest.mark.parametrize("silent", [0, 2, 3])
@pytest.mark.parametrize(
    ("fault", "component"),
    [
        ("frozen", Component.PROCESS),
        ("killed", Component.PROCESS),
        ("nic_down", Component.NIC),
        ("stuck_before", Component.SOFTWARE),
    ],
)
def test_what_is_seen_at_a_rank_that_is_heard_is_named_with_others_unheard(
    fault: str, component: Component, silent: int
) -> None:
    for victim, seed in ((2, 0), (3, 1)):
        best = diagnosed(make_window(**{fault: victim}, seed=seed, without_nodes=[silent])).findings[0]  # type: ignore[arg-type]
        assert (best.culprits, best.component, best.grade) == ((victim,), component, Grade.STRONG)


def test_a_dead_port_is_named_though_nothing_is_heard_of_who_would_lose_data_over_it() -> None:
    best = diagnosed(make_window(nic_down=2, seed=1, at_ms=559, without_nodes=[0])).findings[0]
    assert (best.culprits, best.component, best.grade) == ((2,), Component.NIC, Grade.STRONG)


def test_beside_a_cause_that_is_seen_nothing_is_said_of_ranks_that_are_not_heard() -> None:
    assert len(diagnosed(make_window(frozen=1, without_nodes=[3])).findings) == 1


def test_a_gpu_that_has_what_it_needs_waits_for_nobody_though_some_are_not_heard() -> None:
    best = diagnosed(make_window(gpu_hung=1, at_ms=511, without_nodes=[2])).findings[0]
    assert (best.culprits, best.grade) == ((1,), Grade.MODERATE)


@pytest.mark.parametrize("fault", FAULTS)
def test_with_all_heard_nobody_waits_for_ranks_that_are_not(fault: str) -> None:
    state = state_of(make_window(**{fault: 3}), DEFAULT)  # type: ignore[arg-type]
    assert not (state.hidden.why == Why.NEVER_HEARD).any() and not state.graph.into[state.never_heard]


def test_a_moment_of_a_running_job_says_nothing_of_ranks_that_are_not_heard() -> None:
    window = make_window(without_nodes=[3])
    assert diagnose(window, replace(FAILURE, kind=SymptomKind.SILENCE)).findings == ()


def test_a_mate_that_is_not_heard_may_keep_its_node_where_nobody_sees_it() -> None:
    window = make_window(stuck_before=4)
    heard = ~np.isin(np.arange(8), [4])
    tables = {
        name: rows[(rows["rank"] < 0) | heard[rows["rank"]]] if "rank" in (rows.dtype.names or ()) else rows
        for name, rows in window.tables.items()
    }
    members, ranks = window.members[heard[window.members["rank"]]], window.ranks[heard[window.ranks["rank"]]]
    found = diagnosed(replace(window, tables=tables, members=members, ranks=ranks)).findings
    assert [one.culprits for one in found if one.grade is not Grade.WEAK] == []


def test_a_checkpoint_excuses_a_job_of_which_some_ranks_are_not_heard() -> None:
    window = make_window(stuck_before=0, io_bytes_per_s={0: 5_000_000}, without_nodes=[3])
    seen = look(window, Normal(intervals={ALL: {100: 1000}}))
    assert seen.symptoms == () and "rank 0" in seen.held
