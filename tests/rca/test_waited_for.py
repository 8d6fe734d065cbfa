"""Who is only seen to be waited for: nodes inside every tree, whose ops begin with the data of others."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from ingest.window import Window
from nccl_instrument.simulate.job import ORIGIN_NS
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import KIB, MIB, Physics
from rca.diagnose import diagnose
from rca.findings import Component, Finding, Grade, Symptom, SymptomKind
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
def slow(fault: str, victim: int | None, amount: float) -> Window:
    return window_after(fault, TREES, victim, amount, at_s=AT_S, seconds=SECONDS, physics=PHYSICS)


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


def test_where_neither_is_seen_the_nodes_ranks_are_tied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waited_for, "launch_alike", lambda slowdown, ranks: False)
    (found,) = findings(slow("background_compute", 2, 0.6))
    assert (found.culprits, found.grade, len(found.tied)) == ((), Grade.WEAK, 8)


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
