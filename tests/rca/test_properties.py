"""What must not change a diagnosis: other names for the ranks, another time, rows in another order."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ingest.window import Window
from nccl_instrument.simulate.faults import make_fault
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import Physics, cluster_physics
from nccl_instrument.tables import TIME_COLUMNS
from rca.diagnose import diagnose
from rca.findings import Diagnosis, Symptom, SymptomKind
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


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(FAULTS), st.integers(0, 7), st.permutations(range(8)), st.integers(0, 9))
def test_renaming_ranks_renames_the_culprits_and_nothing_else(
    fault: str, victim: int, order: list[int], seed: int
) -> None:
    window, names = make_window(**{fault: victim}, seed=seed), np.array(order)  # type: ignore[arg-type]
    before, after = diagnosed(window), diagnosed(renamed(window, names))
    assert essence(before, names) == essence(after)
    assert {int(names[rank]) for rank in before.victims} == set(after.victims)


@settings(max_examples=10, deadline=None)
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


@st.composite
def large_jobs(draw: st.DrawFn) -> tuple[Layout, Physics]:
    """64 GPUs on eight nodes, laid out any way."""
    tp, pp = draw(st.sampled_from([(8, 1), (8, 2), (4, 2), (4, 1), (2, 4), (2, 1)]))
    ep = draw(st.sampled_from([1, 2, 4])) if 64 // (tp * pp) % 4 == 0 else 1
    layout = Layout(tp, pp, 64 // (tp * pp), ep, 8, nics_per_node=draw(st.sampled_from([0, 1, 2, 4])))
    return layout, replace(cluster_physics(layout), dp_reduce=draw(st.sampled_from(["sharded", "ring", "tree"])))


@settings(max_examples=3, deadline=None, phases=[Phase.generate])
@given(
    large_jobs(),
    st.sampled_from(["nic_down", "rank_frozen", "rank_killed", "stuck_before"]),
    st.integers(0, 63),
    st.sampled_from(["IB", "Socket"]),
    st.integers(0, 999),
)
def test_losing_any_batches_of_other_nodes_of_a_large_job_changes_no_culprit(
    job: tuple[Layout, Physics], name: str, victim: int, transport: str, seed: int
) -> None:
    layout, physics = job
    fault = make_fault(name, layout, 2.5, victim=victim)
    window = window_of(run(layout, fault, seconds=8.0, physics=physics, transport=transport))
    nodes = {rank // 8 for rank in fault.ranks}
    others = [(node, second) for node in range(8) if node not in nodes for second in range(seconds_of(window))]
    draw = Random(seed)
    lost = [batch for batch in others if draw.random() < 0.3]
    assert diagnosed(without_batches(window, lost)).culprits in ((), diagnosed(window).culprits)


def test_ranks_of_which_no_row_is_left_are_blamed_for_nothing() -> None:
    window = make_window(nic_down=1)
    lost = [(node, second) for node in range(1, 4) for second in range(seconds_of(window))]
    found = diagnosed(without_batches(window, lost))
    assert found.culprits in ((), (1,))
    for finding in found.findings:
        assert set(finding.culprits) <= {1}
