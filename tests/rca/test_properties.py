"""What must not change a diagnosis: other names for the ranks, another time, rows in another order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.window import Window
from nccl_instrument.tables import TIME_COLUMNS
from rca.diagnose import diagnose
from rca.findings import Diagnosis, Symptom, SymptomKind
from tests.rca.transforms import renamed, shuffled, with_clocks
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
