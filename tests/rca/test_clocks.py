"""Clocks of nodes, read off the ends of collectives: shifts are found within the error told, and blame nobody."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.simulate.faults import make_fault
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.tables import TIME_COLUMNS
from rca.clocks import node_clocks
from rca.diagnose import diagnose
from rca.findings import NodeClock
from tests.nccl_instrument.simulate.jobs import run, window_of
from tests.rca import test_recorded, test_slowdown
from tests.windows import make_window

MS = 1_000_000
SHIFTS_NS = (0, 40 * MS, -250 * MS, 3 * MS)


def shifted(window: Window, by_ns: tuple[int, ...]) -> Window:
    """The same job, with the clock of node i ahead by by_ns[i]."""
    tables = {}
    for name, rows in window.tables.items():
        rows = rows.copy()
        ahead = np.array(by_ns, np.int64)[rows["node"]]
        for column in TIME_COLUMNS[name]:
            rows[column] += np.where(rows[column] != 0, ahead, 0)
        tables[name] = rows
    return replace(window, tables=tables)


def by_node(clocks: tuple[NodeClock, ...]) -> dict[str, NodeClock]:
    return {clock.node: clock for clock in clocks}


@cache
def recorded(name: str) -> Window:
    if name in test_slowdown.TRUTH:
        return test_slowdown.recorded(name)
    return test_recorded.load_recorded(test_recorded.FOLDER / f"{name}.npz")


@pytest.mark.parametrize("name", ["frozen_6", "nic_down_1", "proxy_asleep_2_sockets", "slow_copies_2", "nic_limit_4"])
def test_a_shifted_clock_is_found_within_the_error_told(name: str) -> None:
    before, after = by_node(node_clocks(recorded(name))), by_node(node_clocks(shifted(recorded(name), SHIFTS_NS)))
    middle = np.median(SHIFTS_NS)
    for node, ahead in zip(recorded(name).nodes["name"], SHIFTS_NS, strict=True):
        was, now = before[node], after[node]
        assert abs(was.offset_ns) <= was.error_ns, "one machine has one clock"
        assert abs(now.offset_ns - (ahead - middle)) <= now.error_ns
        assert now.error_ns < 6 * MS


@pytest.mark.parametrize("name", sorted(test_slowdown.TRUTH))
def test_shifted_clocks_change_no_culprit_of_a_slowdown(name: str) -> None:
    found = test_slowdown.diagnosed(shifted(recorded(name), SHIFTS_NS))
    assert (tuple(sorted(found.culprits)), found.findings[0].component) == test_slowdown.TRUTH[name][:2]
    assert found.clocks


def test_the_simulators_own_clocks_are_found() -> None:
    layout = Layout(tp=2, pp=2, dp=4, ranks_per_node=2)
    skew = make_fault("clock_skew", layout, 0.1, victim=5, amount=0.04)
    clocks = by_node(node_clocks(window_of(run(layout, skew, seconds=5.0))))
    assert len(clocks) == layout.n_nodes
    names = sorted(clocks)
    for name in names:
        expected = 40 * MS if name == names[5] else 0
        assert abs(clocks[name].offset_ns - expected) <= clocks[name].error_ns + 3 * 500_000, "NTP keeps 0.5 ms"


def test_nodes_that_share_no_ops_with_the_others_are_left_out() -> None:
    window = recorded("frozen_6")
    op = window.rows("op")
    apart = replace(window, tables={**window.tables, "op": op[op["node"] != 2]})
    assert set(by_node(node_clocks(apart))) == set(window.nodes["name"]) - {window.nodes["name"][2]}


def test_a_late_end_now_and_then_pulls_no_clock() -> None:
    window = recorded("slow_copies_2")
    op = window.rows("op").copy()
    late = (op["node"] == 1) & (np.random.default_rng(1).random(len(op)) < 0.2)
    op["done_ns"][late] += 10**9
    clocks = by_node(node_clocks(replace(window, tables={**window.tables, "op": op})))
    name = window.nodes["name"][1]
    assert abs(clocks[name].offset_ns) <= clocks[name].error_ns


def test_without_ends_nothing_is_said() -> None:
    window = make_window(frozen=3)
    assert node_clocks(replace(window, tables={})) == ()
    op = window.rows("op")
    none = replace(window, tables={"op": op[:1]})
    assert node_clocks(none) == ()


def test_a_diagnosis_tells_the_clocks() -> None:
    window = shifted(recorded("killed_4"), SHIFTS_NS)
    found = diagnose(window, test_recorded.look(window, test_recorded.USUAL).symptoms[0])
    assert found.culprits == (4,)
    assert {clock.node for clock in found.clocks} == set(window.nodes["name"])
