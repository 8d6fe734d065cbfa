"""Who is only seen to be waited for: nodes inside every tree, whose ops begin with the data of others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.simulate.job import ORIGIN_NS
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import KIB, MIB, Physics
from rca.diagnose import diagnose
from rca.findings import Component, Finding, Grade, Symptom, SymptomKind
from rca.keys import Mask, Rows
from rca.rules import waited_for
from rca.settings import DEFAULT
from rca.slow.slowdown import slowdown_of
from tests.nccl_instrument.simulate.jobs import window_after

TREES = Layout(tp=2, pp=1, dp=32, ep=4, ranks_per_node=8)
PHYSICS = Physics(
    n_channels=1, n_microbatches=3, n_layers=1, step_gap_ms=3.0, forward_ms=27.0, backward_ms=54.0, optimizer_ms=8.0,
    tp_kib=32 * MIB // KIB, pp_kib=32 * MIB // KIB, ep_kib=128 * MIB // KIB, dp_kib=1800 * MIB // KIB, dp_reduce="tree",
)  # fmt: skip
AT_S, SECONDS = 14.0, 26.0
ONSET_NS = ORIGIN_NS + int(AT_S * 1e9)


@cache
def slow(fault: str, victim: int | None, amount: float, ep: int = 4, ahead: int = PHYSICS.ahead) -> Window:
    layout, physics = replace(TREES, ep=ep), replace(PHYSICS, ahead=ahead)
    return window_after(fault, layout, victim, amount, at_s=AT_S, seconds=SECONDS, physics=physics)


def findings(window: Window) -> tuple[Finding, ...]:
    symptom = Symptom(SymptomKind.STRAGGLER, window.job, window.attempt, ONSET_NS, window.end_ns, 0, (0,), "slow")
    return diagnose(window, symptom).findings


def test_a_node_whose_ranks_launch_alike_is_named() -> None:
    (found,) = findings(slow("background_compute", 2, 0.6))
    assert (found.rule, found.culprits, found.component) == ("waited_for", tuple(range(16, 24)), Component.NODE)
    assert found.grade is Grade.MODERATE and found.subject.name == "node2"


def test_a_gpu_that_launches_last_of_its_node_is_named() -> None:
    (found,) = findings(slow("gpu_slow", 50, 1.7))
    assert (found.rule, found.culprits, found.component) == ("waited_for", (50,), Component.GPU)


@pytest.mark.parametrize(("victim", "amount", "ep"), [(2, 0.6, 1), (0, 0.8, 4)], ids=["dense", "experts"])
def test_where_neither_is_seen_the_nodes_ranks_are_tied(victim: int, amount: float, ep: int) -> None:
    """All ops are called long before their time, and in some of them everybody waits longer."""
    (found,) = findings(slow("background_compute", victim, amount, ep, 12))
    assert (found.rule, found.culprits, found.grade, len(found.tied)) == ("waited_for", (), Grade.WEAK, 8)
    assert {rank for one in found.tied for rank in one.ranks} == set(range(8 * victim, 8 * victim + 8))


def test_ranks_that_are_only_in_ops_in_which_nobody_waits_say_nothing() -> None:
    (found,) = findings(slow("background_compute", 2, 0.6, 4, 1))
    assert (found.rule, found.culprits) == ("waited_for", tuple(range(16, 24)))


@pytest.mark.parametrize(("fault", "amount"), [("links_slow", 0.5), ("gpus_slow", 1.7)])
def test_of_what_is_everybodys_nobody_is_waited_for(fault: str, amount: float) -> None:
    slowdown = slowdown_of(slow(fault, None, amount), ONSET_NS, DEFAULT)
    assert slowdown is not None and not len(waited_for.waited_for(slowdown))


def test_of_two_nodes_that_wait_no_longer_neither_is_named() -> None:
    window = slow("background_compute", 2, 0.6)
    nodes = window.ranks.copy()
    half = nodes["rank"] % 8 < 4
    nodes["node"][half & (nodes["node"] == 2)] = 3  # half of the slow ones stand elsewhere
    slowdown = slowdown_of(replace(window, ranks=nodes), ONSET_NS, DEFAULT)
    assert slowdown is not None and not len(waited_for.waited_for(slowdown))


SLOW_GPU = ("gpu_slow", 50, 1.7)


def changed(window: Window, is_changed: Callable[[Rows], Mask], **to: int) -> Window:
    """The window with other values in some ops since the slowdown; without these ops where no value is given."""
    ops = np.asarray(window.rows("op")).copy()
    those = is_changed(ops) & (ops["enqueued_ns"] >= ONSET_NS)
    for name, value in to.items():
        ops[name][those] = value
    return replace(window, tables={**window.tables, "op": ops if to else ops[~those]})


def without_node(window: Window, node: int) -> Window:
    """As if nothing of that node's ranks had been traced."""
    ops = np.asarray(window.rows("op"))
    return replace(window, tables={**window.tables, "op": ops[ops["rank"] // 8 != node]})


def rules_of(window: Window) -> list[str]:
    return [one.rule for one in findings(window)]


def test_a_node_of_which_nothing_is_known_since_is_not_one_that_waits_no_longer() -> None:
    untraced = without_node(slow(*SLOW_GPU), 6)
    assert "waited_for" not in rules_of(untraced)
    assert "waited_for" not in rules_of(changed(untraced, lambda ops: ops["rank"] // 8 == 3))
    assert "waited_for" not in rules_of(changed(slow(*SLOW_GPU), lambda ops: ops["rank"] // 8 == 3))


def test_a_node_of_which_one_rank_waits_longer_is_not_waited_for() -> None:
    window = changed(slow(*SLOW_GPU), lambda ops: ops["rank"] == 50, peer_wait_ns=10**9, receive_peer_wait_ns=10**9)
    assert "waited_for" not in rules_of(window)


def test_nodes_that_are_not_known_are_no_third_node() -> None:
    window = slow(*SLOW_GPU)
    ranks = window.ranks.copy()
    ranks["node"][(ranks["node"] != 6) & (ranks["node"] != 0)] = -1
    slowdown = slowdown_of(replace(window, ranks=ranks), ONSET_NS, DEFAULT)
    assert slowdown is not None and not len(waited_for.waited_for(slowdown))
