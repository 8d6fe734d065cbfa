"""Ranks of a node that stopped behind the same op are one GPU's doing, and one that stopped alone is its program's.

The windows were simulated (64 GPUs, TP 4, two stages). One, with experts in pairs inside the node: the GPU of rank 52 executes
nothing since the end of a step, and 48 and 53 to 55 entered nothing any more. Only their last seconds are kept.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from ingest.window import Window, load_window
from rca.diagnose import diagnose
from rca.findings import Component, FaultKind, Grade, Symptom, SymptomKind
from rca.hang.progress import state_of
from rca.hang.sinks import Sink, sinks
from rca.hang.together import _meet, _narrowed, once_together
from rca.settings import DEFAULT
from tests.windows import make_window

STOPPED = (48, 52, 53, 54, 55)


@cache
def held() -> Window:
    """Simulated (64 GPUs, TP 4, two stages, DP 8): the GPU of rank 35 executes nothing since before an op that 32 to 34 have been
    through, and that passes through the node one by one; none of 35 to 39 has started its next op, each another one."""
    return load_window(Path(__file__).parent / "recorded_in_node" / "gpu_error_35.npz")


@cache
def stopped() -> Window:
    return load_window(Path(__file__).parent / "recorded_in_node" / "gpu_error_52.npz")


@cache
def passed_in_node() -> Window:
    """Simulated (64 GPUs, TP 4, DP 16 with two experts, sockets, trees): the GPU of rank 29 executes nothing in the middle of an
    op that also passes rank 25 of its node; each is where the node meets the others on one of two channels."""
    return load_window(Path(__file__).parent / "recorded_in_node" / "gpu_error_29.npz")


def changed(table: str, ranks: tuple[int, ...], *comms: str, **columns: int) -> Window:
    """The window with these columns of these ranks in these communicators raised by so much."""
    rows, members = stopped().rows(table).copy(), stopped().members
    ids = members["comm_id"][np.isin(members["name"], comms)]
    those = np.isin(rows["rank"], ranks) & np.isin(rows["comm_id"], ids)
    for name, more in columns.items():
        rows[name][those] += more
    return replace(stopped(), tables={**stopped().tables, table: rows})


def joined(window: Window) -> list[tuple[int, ...]]:
    """Ranks of the sinks that were made of several."""
    state = state_of(window, DEFAULT)
    found = once_together(state, sinks(state))
    return [state.ranks.names(np.array(sink.ranks)) for sink in found if sink.is_in_node]


@pytest.mark.parametrize("rank", [0, 3, 6])
def test_a_program_that_stops_alone_is_joined_with_nobody(rank: int) -> None:
    assert joined(make_window(stuck_before=rank)) == []


def test_those_who_stopped_behind_another_op_are_not_joined() -> None:
    assert joined(stopped()) == [STOPPED]
    later = stopped().rows("progress")["last_enqueued_ns"].max() - stopped().rows("progress")["last_enqueued_ns"].min()
    ahead = changed("progress", (48, 53), "tp_12", "tp_13", last_enqueued_ns=int(later))
    assert joined(ahead) == [(52, 54, 55)]


def test_nor_are_those_who_are_all_seen_to_be_through_it() -> None:
    assert joined(changed("progress", STOPPED, "world", n_done=10**6)) == []


def test_nor_are_ranks_whose_processes_are_seen_to_have_stopped() -> None:
    rows = stopped().rows("process").copy()
    rows["state"][[rank in STOPPED for rank in rows["rank"].tolist()]] = ord("T")
    assert joined(replace(stopped(), tables={**stopped().tables, "process": rows})) == []


def test_one_of_those_who_stopped_together_keeps_its_node_and_none_is_called_its_programs_doing() -> None:
    window = stopped()
    symptom = Symptom(SymptomKind.FAILURE, window.job, 1, window.end_ns - 30 * 10**9, window.end_ns, 0, (0,), "stands")
    best = diagnose(window, symptom).findings[0]
    assert (best.culprits, best.component, best.grade) == ((), Component.PROCESS, Grade.WEAK)
    assert (best.kind, best.subject.name) == (FaultKind.COMPUTATION_FAIL_STOP, "node6")
    assert {rank for one in best.tied for rank in one.ranks} == set(STOPPED)
    assert "or its program stopped there" in best.sentence


def sinks_of(window: Window) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(ranks, tied ranks) of every sink."""
    state = state_of(window, DEFAULT)
    found = once_together(state, sinks(state))
    return [
        (state.ranks.names(np.array(sink.ranks)), state.ranks.names(np.array(sink.tied, np.int64))) for sink in found
    ]


def test_of_several_gpus_that_have_not_started_the_first_of_the_node_that_its_mates_do_not_wait_with_is_named() -> None:
    window = held()
    assert len(sinks(state_of(window, DEFAULT))) > 1
    assert sinks_of(window) == [((35,), ())]
    symptom = Symptom(SymptomKind.FAILURE, window.job, 1, window.end_ns - 30 * 10**9, window.end_ns, 0, (0,), "stands")
    best = diagnose(window, symptom).findings[0]
    assert (best.culprits, best.grade, best.component) == ((35,), Grade.MODERATE, Component.PROCESS)
    assert "63 ranks wait for it" in best.sentence


def test_a_gpu_that_has_what_it_asks_for_does_not_wait_for_more_of_it() -> None:
    """The parent of rank 29 sends no more, but what it sent lies there: rank 29 is not its victim. Rank 25 was named."""
    window = passed_in_node()
    state = state_of(window, DEFAULT)
    flows = state.pairs.where((state.pairs.receiver == 29) & (state.pairs.sender == 61))
    asked, received, _, consumed = flows.taken.T
    assert ((asked > received) & (received > consumed)).sum() == 1
    assert sinks_of(window) == [((25, 29), (25, 29))]
    assert not ((state.certain.waiter == 29) & (state.certain.target == 61)).any()


def node_of_eight(has_run: tuple[int, ...], entered: tuple[int, ...] = (66,) * 8, is_local: bool = True) -> Any:
    """Two tensor groups of four, and the whole job's communicator, in which each enqueued its last op at another time.

    has_run: the ranks whose GPUs have run that op.
    """
    rank, world_ns = np.arange(8), 10**9 + np.array([160, 150, 155, 90, 20, 0, 30, 10]) * 1000
    return SimpleNamespace(
        ranks=SimpleNamespace(node=np.zeros(8, np.int64)),
        ran_ns=np.where(np.isin(rank, has_run), world_ns, world_ns - 20_000),
        members=SimpleNamespace(
            rank_at=np.concatenate([rank, rank]), comm=np.concatenate([rank // 4, np.full(8, 2)]),
            is_local=np.array([is_local, is_local, False]), of=lambda comm: slice(4 * comm, 4 * comm + 4),
            entered=np.array([*(9,) * 8, *entered]),
            last_enqueued_ns=np.concatenate([np.full(8, 2 * 10**9), world_ns]),
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("tied", "has_run", "named"),
    [
        ((3, 4, 5, 6, 7), (0, 1, 2), (3,)),
        ((4, 5, 6, 7), (0, 1, 2, 3), (4, 5, 6, 7)),
        ((2, 4, 5, 6, 7), (0, 1, 3), (2, 4, 5, 6, 7)),
        ((3, 4, 6, 7), (0, 1, 2), (3, 4, 6, 7)),
        ((3, 4, 5, 6, 7), (0, 2), (3, 4, 5, 6, 7)),
        ((3, 4, 5, 6, 7), (0, 1, 2, 6), (3, 4, 5, 6, 7)),
        ((0, 1, 2, 3, 4, 5, 6, 7), (), (0, 1, 2, 3, 4, 5, 6, 7)),
        ((3, 4, 5, 6, 7), (), (3, 4, 5, 6, 7)),
    ],
    ids=["its mates are through", "none of its mates is", "one after it is", "one of those after it is not held",
         "one before it is not", "one of them is", "nobody is before it", "nobody is through"],
)  # fmt: skip
def test_the_first_that_an_op_did_not_come_to_is_named_where_it_waits_for_none_of_the_others(
    tied: tuple[int, ...], has_run: tuple[int, ...], named: tuple[int, ...]
) -> None:
    found = _narrowed(node_of_eight(has_run), Sink(0, frozenset({20}), tied, tied=tied, is_in_node=True))
    assert found.ranks == named and found.waiters == {20, *tied} - set(named)


def test_nothing_shows_it_without_mates_inside_the_node_or_where_hosts_have_come_apart() -> None:
    tied, through = (3, 4, 5, 6, 7), (0, 1, 2)
    sink = Sink(0, frozenset(), tied, tied=tied)
    assert _narrowed(node_of_eight(through), sink).ranks == (3,)
    assert _narrowed(node_of_eight(through, is_local=False), sink).ranks == tied
    assert _narrowed(node_of_eight(through, entered=(67, 66, 66, 66, 66, 66, 66, 66)), sink).ranks == tied


@pytest.mark.parametrize(
    ("local", "in_op", "meet"),
    [((), (), False), ((1,), (), True), ((), (1,), True), ((), (2,), False)],
    ids=["in the whole job's alone", "inside the node", "in the op in question", "in an op of others"],
)
def test_ranks_that_only_the_whole_jobs_communicator_joins_do_not_meet(
    local: tuple[int, ...], in_op: tuple[int, ...], meet: bool
) -> None:
    """Ranks 0 and 1 of one node are in communicator 0 with all, in 1 with each other, 2 is of others."""
    members = SimpleNamespace(
        rank_at=np.array([0, 1, 2, 3, 0, 1, 2, 3]), comm=np.array([0, 0, 0, 0, 1, 1, 2, 2]),
        is_local=np.isin(np.arange(3), local),
    )  # fmt: skip
    n = len(in_op)
    fronts = SimpleNamespace(comm=np.array(in_op, np.int64), is_front=np.ones(n, bool), at=np.zeros(n, np.int64))
    state: Any = SimpleNamespace(ranks=SimpleNamespace(node=np.array([0, 0, 1, 1])), members=members, fronts=fronts)
    assert _meet(state, [Sink(0, frozenset(), (0,)), Sink(1, frozenset(), (1,))]) is meet
