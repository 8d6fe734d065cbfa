"""Slowdowns recorded from the live testbed: who is blamed, for what, and that nobody is where nobody should be.

The file's name says what was injected and on which ranks, at RECORDED_ONSET_S into the recording; nothing in the file does.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from ingest.window import Window, load_window
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, FaultKind, Symptom, SymptomKind

FOLDER = Path(__file__).parent / "recorded_slow"
ONSET_NS = 8_500_000_000  # from the window's start: iterations are slow from then on
SLOW = FaultKind.COMPUTATION_FAIL_SLOW
TRUTH = {
    "nic_limit_1": ((1,), Component.NIC, FaultKind.COMMUNICATION_FAIL_SLOW),
    "nic_limit_4": ((4,), Component.NIC, FaultKind.COMMUNICATION_FAIL_SLOW),
    "slow_compute_3": ((3,), Component.GPU, SLOW),
    "slow_compute_5": ((5,), Component.GPU, SLOW),
    "slow_compute_4_5": ((4, 5), Component.NODE, SLOW),
    "slow_compute_2_3": ((2, 3), Component.NODE, SLOW),
    "slow_copies_2": ((2,), Component.COPY, SLOW),
    "slow_copies_7": ((7,), Component.COPY, SLOW),
    "all_compute": ((), Component.GPU, FaultKind.GROUP_ANOMALY),
    "all_links": ((), Component.NETWORK, FaultKind.GROUP_ANOMALY),
}


def recorded(name: str) -> Window:
    return load_window(FOLDER / f"{name}.npz")


def diagnosed(window: Window, onset_ns: int = ONSET_NS) -> Diagnosis:
    at = window.start_ns + onset_ns
    symptom = Symptom(SymptomKind.STRAGGLER, window.job, window.attempt, at, window.end_ns, 0, (0,), "slow")
    return diagnose(window, symptom)


def without(window: Window, keep: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Window:
    return replace(window, tables={**window.tables, "op": window.rows("op")[keep]})


def test_before_anything_was_injected_nobody_is_named() -> None:
    window = recorded("slow_compute_3")
    healthy = without(window, window.rows("op")["done_ns"] < window.start_ns + ONSET_NS - 10**9)
    diagnosis = diagnosed(healthy, ONSET_NS // 2)
    assert diagnosis.findings == () and diagnosis.victims == ()


def test_without_iterations_before_the_onset_nobody_is_named_and_it_says_why() -> None:
    window = recorded("nic_limit_4")
    diagnosis = diagnosed(without(window, window.rows("op")["done_ns"] > window.start_ns + ONSET_NS))
    assert diagnosis.findings == () and "Too few iterations" in diagnosis.missing[-1]


@pytest.mark.parametrize("name", TRUTH)
def test_what_was_injected_is_named(name: str) -> None:
    best = diagnosed(recorded(name)).findings[0]
    assert (tuple(sorted(best.culprits)), best.component, best.kind) == TRUTH[name]


@pytest.mark.parametrize("name", [name for name in TRUTH if TRUTH[name][0]])
def test_nobody_else_is_blamed_and_all_others_are_victims_with_a_path(name: str) -> None:
    diagnosis = diagnosed(recorded(name))
    blamed = {rank for finding in diagnosis.findings for rank in finding.culprits}
    assert blamed == set(TRUTH[name][0])
    assert set(diagnosis.victims) == set(range(8)) - blamed
    assert {edge.waiter for edge in diagnosis.path} == set(diagnosis.victims)


@pytest.mark.parametrize("name", ["nic_limit_1", "slow_compute_5", "slow_copies_2"])
def test_nodes_whose_clocks_disagree_change_nothing(name: str) -> None:
    window = recorded(name)
    rng = np.random.default_rng(7)
    skew = rng.integers(-(10**9), 10**9, len(window.nodes))
    op = window.rows("op").copy()
    for column in op.dtype.names or ():
        if column.endswith("_ns") and "wait" not in column:
            op[column] = np.where(op[column] != 0, op[column] + skew[op["node"]] * (op["node"] % 2), 0)
    skewed = replace(window, tables={**window.tables, "op": op})
    assert diagnosed(skewed).culprits == TRUTH[name][0]


@pytest.mark.parametrize("name", ["nic_limit_4", "slow_compute_3", "slow_copies_7"])
def test_a_tenth_of_the_batches_lost_changes_no_culprit(name: str) -> None:
    window = recorded(name)
    op = window.rows("op")
    second = (op["done_ns"] // 10**9) * 64 + op["node"]
    lost = np.random.default_rng(3).random(int(second.max() - second.min()) + 1) < 0.1
    assert diagnosed(without(window, ~lost[second - second.min()])).culprits == TRUTH[name][0]


@pytest.mark.parametrize("name", ["nic_limit_1", "slow_compute_3", "slow_copies_2"])
def test_renaming_ranks_renames_the_culprit(name: str) -> None:
    window = recorded(name)
    new = np.array([5, 2, 7, 0, 6, 1, 3, 4])
    op, members, ranks = window.rows("op").copy(), window.members.copy(), window.ranks.copy()
    for rows in (op, members, ranks):
        rows["rank"] = new[rows["rank"]]
    other = {name: window.rows(name).copy() for name in ("process", "nic")}
    other["process"]["rank"] = new[other["process"]["rank"]]
    renamed = replace(window, members=members, ranks=ranks[np.argsort(ranks["rank"])], tables={"op": op, **other})
    assert diagnosed(renamed).culprits == tuple(int(new[rank]) for rank in TRUTH[name][0])
