"""What must not change a diagnosis: other names for the ranks, another time, rows in another order."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.window import Window
from nccl_instrument.simulate.faults import make_fault
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import cluster_physics
from nccl_instrument.tables import TIME_COLUMNS
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, Symptom, SymptomKind
from tests.nccl_instrument.simulate.jobs import run, window_of
from tests.rca.transforms import renamed, seconds_of, shuffled, with_clocks, without_batches
from tests.windows import make_window

FAULTS = ("nic_down", "frozen", "killed", "stuck_before", "proxy_asleep", "gpu_hung")


def diagnosed(window: Window) -> Diagnosis:
    return diagnose(window, Symptom(SymptomKind.FAILURE, "job", 1, 1, 2, 0, (), ""))


def essence(found: Diagnosis, names: np.ndarray | None = None) -> list[tuple[object, ...]]:
    """What every finding says, with ranks under `names` (new name of each old one)."""
    rename = (lambda ranks: {int(names[rank]) for rank in ranks}) if names is not None else set
    return [(f.rule, f.component, f.kind, f.grade, f.score, frozenset(rename(f.culprits))) for f in found.findings]


def shifted(window: Window, by_ns: int) -> Window:
    """The same job at another time."""
    tables = {}
    for name, rows in window.tables.items():
        rows = rows.copy()
        for column in TIME_COLUMNS[name]:
            rows[column] += np.where(rows[column] != 0, by_ns, 0)
        tables[name] = rows
    nodes = window.nodes.copy()
    for column in ("watermark_ns", "received_ns", "first_ns"):
        nodes[column] += by_ns
    times = {name: getattr(window, name) + by_ns for name in ("start_ns", "end_ns", "now_ns")}
    return replace(window, nodes=nodes, tables=tables, **times)


@settings(max_examples=20, deadline=None, derandomize=True)
@given(st.sampled_from(FAULTS), st.integers(0, 7), st.permutations(range(8)), st.integers(0, 9))
def test_renaming_ranks_renames_the_culprits_and_nothing_else(
    fault: str, victim: int, order: list[int], seed: int
) -> None:
    window, names = make_window(**{fault: victim}, seed=seed), np.array(order)  # type: ignore[arg-type]
    before, after = diagnosed(window), diagnosed(renamed(window, names))
    assert essence(before, names) == essence(after)
    assert {int(names[rank]) for rank in before.victims} == set(after.victims)


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.sampled_from(FAULTS), st.integers(-(10**17), 10**17))
def test_another_time_changes_nothing(fault: str, by_ns: int) -> None:
    window = make_window(**{fault: 3})  # type: ignore[arg-type]
    assert essence(diagnosed(window)) == essence(diagnosed(shifted(window, by_ns)))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_order_of_rows_changes_nothing(fault: str) -> None:
    window = make_window(**{fault: 3})  # type: ignore[arg-type]
    mixed = shuffled(window, seed=1)
    assert essence(diagnosed(window)) == essence(diagnosed(mixed))


@pytest.mark.parametrize("fault", FAULTS[:5])
def test_clocks_of_nodes_that_differ_change_no_culprit(fault: str) -> None:
    window = make_window(**{fault: 3})  # type: ignore[arg-type]
    ahead_ns = (np.arange(len(window.nodes)) - 1) * 120_000_000
    assert diagnosed(with_clocks(window, ahead_ns)).culprits == (3,)


@pytest.mark.parametrize("fault", FAULTS[:5])
def test_losing_an_uninvolved_nodes_batches_changes_no_culprit(fault: str) -> None:
    assert diagnosed(make_window(**{fault: 1}, without_nodes=[3])).culprits == (1,)  # type: ignore[arg-type]


JOBS = (  # on eight nodes
    (Layout(tp=2, pp=2, dp=4, ranks_per_node=2), "IB"),
    (Layout(tp=1, pp=2, dp=8, ranks_per_node=2, nics_per_node=1), "Socket"),
)


@pytest.mark.parametrize("fault", ["nic_down", "rank_frozen", "rank_killed", "stuck_before"])
@pytest.mark.parametrize(("layout", "transport"), JOBS)
def test_losing_a_third_of_other_nodes_batches_blames_nobody_else_and_seldom_hides_who_it_is(
    fault: str, layout: Layout, transport: str
) -> None:
    injected = make_fault(fault, layout, 2.5, victim=5)
    physics = cluster_physics(layout)
    window = window_of(run(layout, injected, seconds=7.0, physics=physics, transport=transport))
    nodes = {rank // layout.ranks_per_node for rank in injected.ranks}
    others = [(node, second) for node in range(8) if node not in nodes for second in range(seconds_of(window))]
    named = []
    for seed in range(6):
        draw = Random(seed)
        found = diagnosed(without_batches(window, [batch for batch in others if draw.random() < 0.3]))
        assert found.culprits in ((), tuple(sorted(injected.ranks)))
        named.append(bool(found.culprits))
    assert sum(named) > len(named) // 2


def without_rows_of(window: Window, ranks: list[int]) -> Window:
    """Of these ranks nothing is heard."""
    tables = {
        name: rows[~np.isin(rows["rank"], ranks)] if "rank" in (rows.dtype.names or ()) else rows
        for name, rows in window.tables.items()
    }
    return replace(window, tables=tables)


def test_ranks_of_which_no_row_is_left_are_one_tie_per_node_and_blamed_for_nothing() -> None:
    window = make_window(nic_down=1)
    lost = [(node, second) for node in range(1, 4) for second in range(seconds_of(window))]
    first, *others = diagnosed(without_batches(window, lost)).findings
    assert first.culprits == (1,) and not first.tied
    assert [one.culprits for one in others] == [(), (), ()]
    assert {tuple(rank for tied in one.tied for rank in tied.ranks) for one in others} == {(2, 3), (4, 5), (6, 7)}


@pytest.mark.parametrize("fault", FAULTS[1:])
def test_one_rank_of_a_node_that_is_not_heard_is_named_once_for_its_silence(fault: str) -> None:
    found = diagnosed(without_rows_of(make_window(**{fault: 3}), [3]))  # type: ignore[arg-type]
    assert [(one.rule, one.culprits, one.tied) for one in found.findings] == [("silence", (3,), ())]


def test_one_rank_of_a_node_that_was_not_heard_yet_is_neither_tied_nor_blamed() -> None:
    window = without_rows_of(make_window(frozen=3), [3])
    nodes = window.nodes.copy()
    nodes["first_ns"] = nodes["watermark_ns"] - 5 * 10**9
    found = diagnosed(replace(window, nodes=nodes))
    assert [(one.rule, one.culprits, one.tied, one.subject.ranks) for one in found.findings] == [("hang", (), (), (3,))]


def test_a_port_seen_down_is_told_of_a_rank_that_is_not_heard() -> None:
    found = diagnosed(without_rows_of(make_window(nic_down=3), [3]))
    assert (found.findings[0].rule, found.culprits, found.findings[0].component) == ("hang", (3,), Component.NIC)
