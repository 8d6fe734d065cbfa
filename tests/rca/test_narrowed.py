"""A large slow job is diagnosed from some of its nodes: the same is named as from all of them, or all of them are read."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import cache
from typing import cast

import numpy as np
import pytest

from ingest.columns import Columns
from ingest.window import Window
from nccl_instrument.simulate.job import ORIGIN_NS
from nccl_instrument.simulate.layout import Layout
from rca.diagnose import diagnose
from rca.findings import Diagnosis, Finding, Grade, Symptom, SymptomKind
from rca.holes import NOT_READ
from rca.keys import Ints, Rows
from rca.narrowed import diagnose_slow, is_sure
from rca.settings import DEFAULT
from rca.slow.suspects import GLIMPSED, norm_nodes, suspects
from tests.nccl_instrument.simulate.jobs import window_after

LAYOUT = Layout(tp=2, pp=1, dp=24, ranks_per_node=2)
N_NODES, VICTIM = 24, 33
AT_S, SECONDS = 5.0, 11.0
ONSET_NS = ORIGIN_NS + int(AT_S * 1e9)


class Whole:
    """A window that is there as a whole, handed out as it is asked for; `asked` is of how many nodes, None all."""

    def __init__(self, window: Window) -> None:
        self.window, self.asked = window, list[int | None]()

    def frame(self) -> Window:
        return replace(self.window, tables={})

    def glimpse(self, start_ns: int, end_ns: int, columns: Collection[str]) -> Window:
        done = self.window.rows("op")["done_ns"]
        rows = self.window.rows("op")[(done >= start_ns) & (done < end_ns)]
        held = {name: rows[name] for name in columns}
        ops = Columns(self.window.rows("op").dtype, len(rows), held)
        return replace(self.window, start_ns=start_ns, end_ns=end_ns, tables={"op": cast(Rows, ops)})

    def whole(self, nodes: Ints | None) -> Window:
        self.asked.append(None if nodes is None else len(nodes))
        if nodes is None:
            return self.window
        tables = {name: rows[np.isin(rows["node"], nodes)] for name, rows in self.window.tables.items()}
        return replace(self.window, tables=tables)


@cache
def slow(fault: str, amount: float) -> Window:
    victim = {"links_slow": None, "gpus_slow": None, "cpu_contention": VICTIM // 2}.get(fault, VICTIM)
    return window_after(fault, LAYOUT, victim, amount, at_s=AT_S, seconds=SECONDS)


def symptom(window: Window) -> Symptom:
    return Symptom(SymptomKind.STRAGGLER, window.job, window.attempt, ONSET_NS, window.end_ns, 0, (0,), "slow")


def answered(found: Diagnosis) -> tuple[object, ...]:
    return tuple((one.rule, one.component, one.kind, one.grade, one.culprits) for one in found.findings[:1])


@pytest.mark.parametrize(("fault", "amount"), [("gpu_slow", 2.0), ("nic_limited", 0.2), ("gpu_pcie_slow", 4.0)])
def test_one_slow_rank_is_named_from_a_part_of_the_nodes_as_from_all(fault: str, amount: float) -> None:
    source = Whole(slow(fault, amount))
    window, found = diagnose_slow(source, symptom(source.window), DEFAULT, large_nodes=N_NODES)
    assert answered(found) == answered(diagnose(source.window, symptom(source.window)))
    assert found.culprits == (VICTIM,)
    assert None not in source.asked and len(window.unread) > N_NODES / 2


def test_that_most_nodes_were_not_read_is_said_and_their_ranks_are_not_called_silent() -> None:
    source = Whole(slow("gpu_slow", 2.0))
    _, found = diagnose_slow(source, symptom(source.window), DEFAULT, large_nodes=N_NODES)
    assert NOT_READ in found.missing and not any("Nothing in this window" in said for said in found.missing)


@pytest.mark.parametrize(("fault", "amount"), [("links_slow", 0.5), ("gpus_slow", 2.0)])
def test_what_is_everybodys_makes_nobody_stand_out_and_blames_nobody(fault: str, amount: float) -> None:
    source = Whole(slow(fault, amount))
    _, found = diagnose_slow(source, symptom(source.window), DEFAULT, large_nodes=N_NODES)
    assert answered(found) == answered(diagnose(source.window, symptom(source.window)))
    assert not found.culprits


def test_of_a_job_that_is_not_large_everything_is_read() -> None:
    source = Whole(slow("gpu_slow", 2.0))
    window, _ = diagnose_slow(source, symptom(source.window), DEFAULT, large_nodes=N_NODES + 1)
    assert source.asked == [None] and not window.unread


def test_when_the_rules_are_not_sure_of_what_a_part_says_everything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Whole(slow("gpu_slow", 2.0))
    monkeypatch.setattr("rca.narrowed.is_sure", lambda _: False)
    window, _ = diagnose_slow(source, symptom(source.window), DEFAULT, large_nodes=N_NODES)
    assert source.asked[-1] is None and not window.unread


def test_nobody_and_a_weak_finding_are_not_sure() -> None:
    source = Whole(slow("gpu_slow", 2.0))
    found = diagnose(source.window, symptom(source.window))
    best: Finding = found.findings[0]
    assert is_sure(found)
    assert not is_sure(replace(found, findings=()))
    assert not is_sure(replace(found, findings=(replace(best, grade=Grade.WEAK),)))
    assert not is_sure(replace(found, findings=(replace(best, culprits=()),)))


def test_nodes_that_stand_out_alike_are_no_matter_of_a_few() -> None:
    """Two in five nodes wait for nobody: which of them is to blame is for the rules, with everything read."""
    window = Whole(slow("gpus_slow", 2.0)).glimpse(ONSET_NS, ONSET_NS + 2 * 10**9, GLIMPSED)
    ops = window.rows("op")
    wait = ops["peer_wait_ns"].copy() + np.uint64(10**9)
    wait[ops["node"] % 5 < 2] = 0
    held = {name: ops[name] for name in GLIMPSED} | {"peer_wait_ns": wait}
    many = replace(window, tables={"op": cast(Rows, Columns(ops.dtype, len(ops), held))})
    assert suspects(many, 1e9) is None


def test_a_node_that_tells_less_than_its_replicas_is_looked_at() -> None:
    window = Whole(slow("gpus_slow", 2.0)).glimpse(ONSET_NS, ONSET_NS + 2 * 10**9, GLIMPSED)
    ops = window.rows("op")
    found = suspects(replace(window, tables={"op": ops[np.flatnonzero(ops["node"] != 5)]}), 1e9)
    assert found is not None and found.tolist() == [5]


def test_the_norm_is_whole_replicas() -> None:
    window = slow("gpu_slow", 2.0)
    nodes = norm_nodes(window)
    ranks = window.ranks[np.isin(window.ranks["node"], nodes)]
    assert len(nodes) == 4 and len(np.unique(ranks["dp"])) == 4
