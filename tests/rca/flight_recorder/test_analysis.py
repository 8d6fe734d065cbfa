"""Who is behind, who left something out, who wants the wrong order: on dumps of real jobs and of made ones."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from rca.findings import FaultKind, Finding, Grade
from rca.flight_recorder.analysis import edges_of, findings_of, waiting_of
from rca.flight_recorder.sandbox import read_dumps
from tests.rca.flight_recorder.real import dumps_of
from tests.rca.flight_recorder.test_reading import old_entry


def findings(dumps: list[tuple[str, bytes]], **known: Any) -> tuple[Finding, ...]:
    return findings_of(waiting_of(read_dumps(dumps), **known))


def dump(rank: int, *ops: tuple[str, int, str, bool], ranks: str = "[0, 1, 2, 3]") -> tuple[str, bytes]:
    """A rank that entered (group, number, function, finished) one after the other."""
    entries = [
        old_entry(
            record_id=at, process_group=(group, ""), collective_seq_id=seq, profiling_name=f"nccl:{name}",
            state="completed" if is_finished else "started", retired=is_finished, time_created_ns=at + 1,
        )
        for at, (group, seq, name, is_finished) in enumerate(ops)
    ]  # fmt: skip
    config = {group: {"name": group, "desc": "", "ranks": ranks} for group, *_ in ops} or {"g": {"ranks": ranks}}
    return f"x-{rank}", pickle.dumps({"version": "2.10", "pg_config": config, "entries": entries}, protocol=2)


def test_nobody_is_named_while_all_ops_are_over() -> None:
    assert findings(dumps_of("healthy")) == ()
    assert findings([]) == ()


def test_a_rank_stuck_in_front_of_an_op_is_named_with_those_who_wait() -> None:
    state = waiting_of(read_dumps(dumps_of("loader")))
    best = findings_of(state)[0]
    assert (best.culprits, best.grade, best.kind) == ((2,), Grade.STRONG, FaultKind.COMPUTATION_FAIL_STOP)
    assert "job.py" in str(best.evidence[0].value)
    victims, edges = edges_of(state, best.culprits, 10)
    assert victims == (0, 1, 3)
    assert {(edge.waiter, edge.waits_for) for edge in edges} == {(0, 2), (3, 2), (1, 0)}


def test_two_groups_in_opposite_order_are_a_deadlock_of_both_sides() -> None:
    best = findings(dumps_of("order"))[0]
    assert (best.kind, best.culprits) == (FaultKind.DEADLOCK, (0, 1, 2, 3))
    assert "a (5) and b (6)" in best.sentence


def test_a_rank_that_left_an_op_out_is_named_although_all_wait_in_a_circle() -> None:
    best = findings(dumps_of("skip"))[0]
    assert (best.kind, best.culprits) == (FaultKind.MISMATCH, (3,))
    assert "left out op 21 of dp1" in best.sentence


def test_another_function_than_the_rest_is_a_mismatch() -> None:
    best = findings(dumps_of("kind"))[0]
    assert (best.kind, best.culprits, best.grade) == (FaultKind.MISMATCH, (1,), Grade.STRONG)


def test_two_ranks_without_a_majority_are_tied() -> None:
    both = [
        dump(0, ("g", 1, "all_reduce", False), ranks="[0, 1]"),
        dump(1, ("g", 1, "broadcast", False), ranks="[0, 1]"),
    ]
    best = findings(both)[0]
    assert best.culprits == ()
    assert [subject.ranks for subject in best.tied] == [(0,), (1,)]


def test_of_two_ranks_the_one_that_broke_its_habit_deviates() -> None:
    usual = [
        ("g", 2 * step + at, name, True) for step in range(5) for at, name in enumerate(("all_reduce", "broadcast"))
    ]
    both = [
        dump(0, *usual, ("g", 10, "all_reduce", False), ranks="[0, 1]"),
        dump(1, *usual, ("g", 10, "broadcast", False), ranks="[0, 1]"),
    ]
    assert findings(both)[0].culprits == (1,)


def test_an_op_that_everybody_is_in_belongs_to_the_layer_below() -> None:
    found = findings([dump(rank, ("g", 1, "all_reduce", False)) for rank in range(4)])
    assert [(one.culprits, one.subject.kind) for one in found] == [((), "communicator")]
    assert "inside the collective" in found[0].sentence


def test_a_member_that_never_entered_anything_is_known_from_the_configuration() -> None:
    three = [dump(rank, ("g", 1, "all_reduce", False)) for rank in range(3)]
    heard = findings([*three, dump(3)])[0]
    assert (heard.culprits, heard.grade) == ((3,), Grade.STRONG)
    unheard = findings(three)[0]
    assert (unheard.culprits, unheard.grade) == ((3,), Grade.WEAK)
    assert "sent no dump" in unheard.sentence


def test_members_the_launcher_declares_count_where_the_dump_names_none() -> None:
    two = [dump(rank, ("g", 1, "all_reduce", False), ranks="[]") for rank in range(2)]
    assert findings(two)[0].culprits == ()
    assert findings([*two, dump(2, ranks="[]")], members={"g": (0, 1, 2)})[0].culprits == (2,)


def test_uneven_sizes_of_an_all_to_all_are_nobodys_mistake() -> None:
    ranks = [dump(rank, ("g", 1, "all_to_all", False)) for rank in range(4)]
    uneven = [(name, raw.replace(b"K\x04\x85", bytes([0x4B, at + 1, 0x85]))) for at, (name, raw) in enumerate(ranks)]
    assert all(one.kind is not FaultKind.MISMATCH for one in findings(uneven))
    same = [dump(rank, ("g", 1, "all_reduce", False)) for rank in range(4)]
    one_off = [same[0], same[1], same[2], (same[3][0], same[3][1].replace(b"K\x04\x85", b"K\x05\x85"))]
    assert findings(one_off)[0].culprits == (3,)


@pytest.mark.parametrize("arrow", ["send 0->1", "recv 0<-1"])
def test_a_send_or_receive_waits_for_its_other_end(arrow: str) -> None:
    entry = old_entry(profiling_name=f"nccl:{arrow}", is_p2p=True, p2p_seq_id=1, state="started", retired=False)
    before = old_entry(time_created_ns=1)
    config = {"0": {"ranks": "[4, 5]"}}
    mine = pickle.dumps({"version": "2.9", "pg_config": config, "entries": [before, entry]}, protocol=2)
    other = pickle.dumps({"version": "2.9", "pg_config": config, "entries": [before]}, protocol=2)
    assert findings([("a-4", mine), ("a-5", other)])[0].culprits == (5,)
    far = entry | {"profiling_name": f"nccl:{'recv 1<-0' if 'send' in arrow else 'send 1->0'}"}
    posted = pickle.dumps({"version": "2.9", "pg_config": config, "entries": [before, far]}, protocol=2)
    assert all(one.culprits == () for one in findings([("a-4", mine), ("a-5", posted)]))
