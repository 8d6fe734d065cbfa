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
from nccl_instrument.simulate.faults import make_fault
from nccl_instrument.simulate.job import ORIGIN_NS
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.tables import FUNC_RECV
from rca.diagnose import diagnose
from rca.findings import Diagnosis, Finding, Grade, Symptom, SymptomKind
from rca.holes import NOT_READ
from rca.keys import Ints, Rows
from rca.narrowed import TOO_MUCH, diagnose_all, diagnose_slow, is_sure, unseen_of
from rca.settings import DEFAULT
from rca.slow.suspects import CLOCKED_NODES, FEW, GLIMPSED, foremost, norm_nodes, slow_span, suspects
from tests.nccl_instrument.simulate.jobs import run, window_after, window_of

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
def slow(fault: str, amount: float, layout: Layout = LAYOUT, victim: int = VICTIM, seconds: float = SECONDS) -> Window:
    named = {"links_slow": None, "gpus_slow": None, "cpu_contention": victim // 2}.get(fault, victim)
    return window_after(fault, layout, named, amount, at_s=AT_S, seconds=seconds)


def symptom(window: Window) -> Symptom:
    return Symptom(SymptomKind.STRAGGLER, window.job, window.attempt, ONSET_NS, window.end_ns, 0, (0,), "slow")


def answered(found: Diagnosis) -> tuple[object, ...]:
    return tuple((one.rule, one.component, one.kind, one.grade, one.culprits) for one in found.findings[:1])


@pytest.mark.parametrize(
    ("fault", "amount", "culprits"),
    [("nic_limited", 0.2, (VICTIM,)), ("gpu_pcie_slow", 4.0, (VICTIM,)), ("cpu_contention", 0.8, (VICTIM - 1, VICTIM))],
)
def test_who_stands_out_is_named_from_a_part_of_the_nodes_as_from_all(
    fault: str, amount: float, culprits: tuple[int, ...]
) -> None:
    source = Whole(slow(fault, amount))
    window, found = diagnose_slow(source, symptom(source.window), DEFAULT, large_nodes=N_NODES)
    assert answered(found) == answered(diagnose(source.window, symptom(source.window)))
    assert found.culprits == culprits
    assert None not in source.asked and len(window.unread) > N_NODES / 2


@pytest.mark.parametrize("n_nodes", [24, 28])
def test_a_slow_gpu_that_waits_hardly_less_than_its_replicas_is_named_all_the_same(n_nodes: int) -> None:
    source = Whole(slow("gpu_slow", 2.0, replace(LAYOUT, dp=n_nodes)))
    _, found = diagnose_slow(source, symptom(source.window), DEFAULT, large_nodes=n_nodes)
    assert found.culprits == (VICTIM,)


def test_peers_that_did_not_stand_out_are_blamed_by_all_nodes_or_not_at_all() -> None:
    """Of the two partners of this NIC not all partners are read: its slow connections could be theirs."""
    source = Whole(slow("nic_limited", 0.5, LAYOUT, 23))
    window, found = diagnose_slow(source, symptom(source.window), DEFAULT, large_nodes=N_NODES)
    assert found.culprits == (23,) and not window.unread


EXPERTS = Layout(tp=2, pp=1, dp=24, ep=12, ranks_per_node=2)
PAIRS = Layout(tp=2, pp=12, dp=2, ranks_per_node=2)


@pytest.mark.parametrize(
    ("layout", "fault", "amount", "victim"),
    [(EXPERTS, "gpu_pcie_slow", 4.0, 11), (PAIRS, "nic_limited", 0.2, 7)],
    ids=["experts", "two replicas"],
)
def test_of_a_job_with_too_few_replicas_to_compare_everything_is_read(
    layout: Layout, fault: str, amount: float, victim: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rca.slow.suspects.NORM_NODES", 4)
    source = Whole(slow(fault, amount, layout, victim, 14.0))
    window, found = diagnose_slow(source, symptom(source.window), DEFAULT, large_nodes=N_NODES)
    assert found.culprits == (victim,) and not window.unread


def test_a_node_with_a_rank_that_has_no_replicas_is_looked_at() -> None:
    whole = slow("gpus_slow", 2.0)
    ranks = whole.ranks.copy()
    ranks["ep"][ranks["rank"] == 9] = 5
    window = replace(Whole(whole).glimpse(ONSET_NS, ONSET_NS + 2 * 10**9, GLIMPSED), ranks=ranks)
    found = suspects(window, 1e12)
    assert found is not None and found.tolist() == ranks["node"][ranks["rank"] == 9].tolist()


@cache
def slow_twice() -> Window:
    """A slow NIC, and one that costs a third of it."""
    faults = (
        make_fault("nic_limited", LAYOUT, AT_S, victim=rank, amount=by) for rank, by in ((VICTIM, 0.2), (10, 0.4))
    )
    return window_of(run(LAYOUT, *faults, seconds=SECONDS))


def test_a_second_culprit_is_named_beside_one_that_stands_out_three_times_as_much() -> None:
    source = Whole(slow_twice())
    _, found = diagnose_slow(source, symptom(source.window), DEFAULT, large_nodes=N_NODES)
    assert found.culprits == diagnose(source.window, symptom(source.window)).culprits == (10, VICTIM)


def test_where_more_follow_than_can_be_read_those_count_that_have_half_of_what_the_first_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source = Whole(slow_twice())
    span = slow_span(source.whole(norm_nodes(source.window)), ONSET_NS)
    assert span is not None
    glimpse, nodes = source.glimpse(span[0], span[1], GLIMPSED), source.window.ranks["node"]
    first, second = (int(nodes[source.window.ranks["rank"] == rank][0]) for rank in (VICTIM, 10))
    every = suspects(glimpse, span[2])
    assert every is not None and {first, second} <= set(every.tolist())
    monkeypatch.setattr("rca.slow.suspects.BY_EACH", len(every) - 1)
    some = suspects(glimpse, span[2])
    assert some is not None and first in some and second not in some


def test_when_somebody_is_blamed_who_did_not_stand_out_everything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Whole(slow("nic_limited", 0.2))
    home = int(source.window.ranks["node"][source.window.ranks["rank"] == VICTIM][0])
    nobody = np.zeros(0, np.int64)
    monkeypatch.setattr("rca.narrowed.norm_nodes", lambda _: np.arange(home - 2, home + 2))
    monkeypatch.setattr("rca.narrowed.suspects", lambda *_: nobody)
    monkeypatch.setattr("rca.narrowed.peers", lambda *_: nobody)
    window, found = diagnose_slow(source, symptom(source.window), DEFAULT, large_nodes=N_NODES)
    assert found.culprits == (VICTIM,) and not window.unread
    assert source.asked == [4, 0, 4, None]


def test_that_most_nodes_were_not_read_is_said_and_their_ranks_are_not_called_silent() -> None:
    source = Whole(slow("nic_limited", 0.2))
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
    assert source.asked == [CLOCKED_NODES, None] and not window.unread


def test_a_job_that_is_hardly_more_than_its_norm_is_read_once() -> None:
    source = Whole(slow("gpu_slow", 2.0, replace(LAYOUT, dp=8), 5))
    diagnose_slow(source, symptom(source.window), DEFAULT, large_ops=1)
    assert source.asked == [None]


@pytest.mark.parametrize(("share", "is_large"), [(0.9, True), (1.1, False)])
def test_few_nodes_that_told_very_many_ops_are_a_large_job(share: float, is_large: bool) -> None:
    source = Whole(slow("nic_limited", 0.2))
    large_ops = int(len(source.window.rows("op")) * share)
    window, found = diagnose_slow(source, symptom(source.window), DEFAULT, large_ops=large_ops)
    assert found.culprits == (VICTIM,) and bool(window.unread) == is_large


def test_when_the_rules_are_not_sure_of_what_a_part_says_everything_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Whole(slow("nic_limited", 0.2))
    monkeypatch.setattr("rca.narrowed.is_sure", lambda _: False)
    window, _ = diagnose_slow(source, symptom(source.window), DEFAULT, large_nodes=N_NODES)
    assert source.asked[-1] is None and not window.unread


def test_where_all_is_too_much_the_peers_of_who_is_blamed_are_read_and_the_answer_says_what_it_rests_on() -> None:
    """Of the two partners of this NIC not all partners are read at first (see above)."""
    source = Whole(slow("nic_limited", 0.5, LAYOUT, 23))
    ops_max = len(source.window.rows("op")) - N_NODES
    window, found = diagnose_slow(source, symptom(source.window), DEFAULT, large_nodes=N_NODES, ops_max=ops_max)
    assert None not in source.asked and window.unread
    assert found.culprits == (23,) and {NOT_READ, TOO_MUCH} <= {*found.missing}
    assert not {NOT_READ, TOO_MUCH} & {*unseen_of(found)}


@pytest.mark.parametrize(("share", "is_all"), [(1.1, True), (0.9, False)])
def test_all_nodes_are_read_for_who_wants_them_unless_that_is_too_much(share: float, is_all: bool) -> None:
    source = Whole(slow("nic_limited", 0.2))
    window, found = diagnose_all(source, symptom(source.window), DEFAULT, int(len(source.window.rows("op")) * share))
    assert found.culprits == (VICTIM,)
    assert (None in source.asked) == is_all == (not window.unread)


@pytest.mark.parametrize("fault", ["gpus_slow", "gpu_slow"])
def test_where_all_is_too_much_and_few_nodes_do_not_tell_those_that_stand_out_most_are_read(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rca.narrowed.suspects", lambda *_: None)
    monkeypatch.setattr("rca.slow.suspects.NORM_NODES", 4)
    source = Whole(slow(fault, 2.0))
    nodes_max, n_ops = 14, len(source.window.rows("op"))
    ops_max = n_ops * nodes_max // N_NODES + N_NODES
    window, found = diagnose_slow(source, symptom(source.window), DEFAULT, large_nodes=N_NODES, ops_max=ops_max)
    assert None not in source.asked
    assert len(window.nodes) - len(window.unread) <= nodes_max
    assert found.culprits == ((VICTIM,) if fault == "gpu_slow" else ())


def test_before_a_slow_iteration_is_known_whole_the_norm_alone_is_read_of_too_much() -> None:
    source = Whole(slow("gpu_slow", 2.0))
    early = replace(symptom(source.window), at_ns=source.window.end_ns - 10**6)
    window, _ = diagnose_slow(source, early, DEFAULT, large_nodes=N_NODES, ops_max=1000)
    assert None not in source.asked and len(window.nodes) - len(window.unread) == len(norm_nodes(source.window))


def test_nobody_and_a_weak_finding_are_not_sure() -> None:
    source = Whole(slow("gpu_slow", 2.0))
    found = diagnose(source.window, symptom(source.window))
    best: Finding = found.findings[0]
    assert is_sure(found)
    assert not is_sure(replace(found, findings=()))
    assert not is_sure(replace(found, findings=(replace(best, grade=Grade.WEAK),)))
    assert not is_sure(replace(found, findings=(replace(best, culprits=()),)))


def glimpse_with(peer_wait_ns: Ints, gpu_wait_ns: Ints) -> Window:
    """Of a job in which nobody stands out, by node (N_NODES,) so much more waited for others and for the own GPU in each op."""
    window = Whole(slow("gpus_slow", 2.0)).glimpse(ONSET_NS, ONSET_NS + 2 * 10**9, GLIMPSED)
    ops = window.rows("op")
    more = {"peer_wait_ns": peer_wait_ns, "gpu_wait_ns": gpu_wait_ns}
    held = {name: ops[name] for name in GLIMPSED}
    held |= {name: ops[name] + by_node.astype(np.uint64)[ops["node"]] for name, by_node in more.items()}
    return replace(window, tables={"op": cast(Rows, Columns(ops.dtype, len(ops), held))})


NODES = np.arange(N_NODES)
TWO_IN_FIVE = np.where(NODES % 5 < 2, 0, 10**9)  # these wait for others less than their replicas


def test_nodes_that_stand_out_alike_are_no_matter_of_a_few() -> None:
    """Two in five nodes wait for nobody: which of them is to blame is for the rules, with everything read."""
    assert suspects(glimpse_with(TWO_IN_FIVE, 0 * NODES), 1e9) is None


@pytest.mark.parametrize(("more_ns", "chosen"), [(3 * 10**9, [7]), (10**8, None)])
def test_unless_one_stands_out_by_more_otherwise_whom_they_may_follow(more_ns: int, chosen: list[int] | None) -> None:
    found = suspects(glimpse_with(TWO_IN_FIVE, np.where(NODES == 7, more_ns, 0)), 1e9)
    assert (None if found is None else found.tolist()) == chosen


@pytest.mark.parametrize(("at_half", "at_less", "n_chosen"), [(1, 4, 2), (1, 2, 4), (5, 0, 4)])
def test_of_more_than_can_be_looked_at_those_are_chosen_that_have_half_of_the_most_and_so_many_at_most(
    at_half: int, at_less: int, n_chosen: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rca.slow.suspects.BY_EACH", 4)
    more_ns = np.zeros(N_NODES, np.int64)
    more_ns[: 1 + at_half + at_less] = 3 * 10**9
    more_ns[: 1 + at_half] = 6 * 10**9
    more_ns[0] = 10**10
    found = suspects(glimpse_with(0 * NODES, more_ns), 1e9)
    assert found is not None and len(found) == n_chosen and 0 in found
    assert found.max() < 1 + at_half + (at_less if n_chosen > 2 else 0)


def with_receives(window: Window, gpu_wait_ns: Ints) -> Window:
    """Each rank's last op as a receive, by node (N_NODES,) so much longer in the hands of the own GPU."""
    ops = window.rows("op")
    last = len(ops) - 1 - np.unique(ops["rank"][::-1], return_index=True)[1]
    held = {name: ops[name].copy() for name in GLIMPSED}
    held["func"][last], held["n_flows"][last] = FUNC_RECV, 1
    held["gpu_wait_ns"][last] = gpu_wait_ns.astype(np.uint64)[ops["node"][last]]
    return replace(window, tables={"op": cast(Rows, Columns(ops.dtype, len(ops), held))})


@pytest.mark.parametrize(("n_slow", "is_chosen"), [(1, True), (FEW, True), (FEW + 1, False)])
def test_few_that_stand_out_in_what_is_sent_to_one_alone_are_chosen_where_places_in_trees_hide_them(
    n_slow: int, is_chosen: bool
) -> None:
    slow_nodes = 3 + np.arange(n_slow)
    places = glimpse_with(0 * NODES, np.where(NODES % 2 == 0, 2 * 10**9, 0))
    window = with_receives(places, np.where(np.isin(NODES, slow_nodes), 10**9, 0))
    for found in (suspects(window, 1e9), foremost(window, 1e9)):
        assert found is not None and np.isin(slow_nodes, found).all() == is_chosen


def test_those_few_are_chosen_as_well_where_many_stand_out_by_more_in_all_ops() -> None:
    places = glimpse_with(3 * TWO_IN_FIVE, np.where(NODES % 2 == 0, 2 * 10**9, 0))
    window = with_receives(places, np.where(NODES == 7, 10**9, 0))
    assert suspects(window, 1e9) is None
    assert 7 in foremost(window, 1e9)


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
