"""The batches: what a decoder accepts, in order, the same bytes for the same seed; clocks, losses, silence, spools."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from ingest.door.impossible import impossible_rows
from nccl_instrument.simulate.faults import make_fault
from nccl_instrument.tables import LOSSES, OP_HAS_FLOWS, OP_NO_NETWORK
from nccl_instrument.wire import TraceBatch
from tests.nccl_instrument.simulate.jobs import EIGHT, decoded, healthy, run, table

SECOND = 10**9


def of_node(batches: tuple[TraceBatch, ...], name: str) -> list[TraceBatch]:
    return [batch for batch in batches if batch.node == name]


def test_every_node_sends_a_batch_a_second() -> None:
    for node in range(4):
        mine = of_node(healthy(), f"node{node}")
        assert [batch.number for batch in mine] == [0, 1, 2, 3]
        assert set(np.diff([batch.mono_ns for batch in mine]).round(-6).tolist()) == {SECOND}


def test_no_row_is_impossible() -> None:
    for batch in healthy():
        for name, rows in batch.tables.items():
            assert not impossible_rows(name, rows, batch.mono_ns).any(), name


def test_a_seed_reproduces_the_bytes_and_another_one_does_not() -> None:
    digests = [
        hashlib.sha256(b"".join(one.encoded for one in run(seconds=2, seed=seed))).digest() for seed in (5, 5, 6)
    ]
    assert digests[0] == digests[1] != digests[2]


def test_ops_inside_a_node_have_no_end_and_the_others_do() -> None:
    ops = table(healthy(), "op")
    is_local = ops["flags"] & OP_NO_NETWORK != 0
    assert (ops["done_ns"][is_local] == 0).all()
    assert (ops["done_ns"][~is_local] > ops["enqueued_ns"][~is_local]).all()
    assert is_local.any()
    assert (ops["flags"][~is_local] & OP_HAS_FLOWS != 0).all()


def test_ops_are_numbered_without_a_gap() -> None:
    ops = table(healthy(), "op")
    collectives = ops[ops["seq"] >= 0]
    for comm_id, comm_rank in set(zip(collectives["comm_id"].tolist(), collectives["comm_rank"].tolist(), strict=True)):
        mine = collectives[(collectives["comm_id"] == comm_id) & (collectives["comm_rank"] == comm_rank)]
        assert np.array_equal(np.sort(mine["op"]), np.arange(1, len(mine) + 1))


def test_every_node_has_a_clock_of_its_own() -> None:
    starts = {batch.node: batch.mono_ns for batch in healthy() if batch.number == 0}
    assert len({start // SECOND for start in starts.values()}) == 4


def test_a_skewed_clock_moves_the_wall_and_nothing_else() -> None:
    skewed = decoded(run(EIGHT, make_fault("clock_skew", EIGHT, 1, victim=2, amount=1.5)))
    moved = [theirs.wall_ns - ours.wall_ns for theirs, ours in zip(skewed, healthy(), strict=True)]
    assert moved == [3 * SECOND // 2 if batch.node == "node2" else 0 for batch in healthy()]
    assert np.array_equal(table(skewed, "op"), table(healthy(), "op"))


def test_a_lost_batch_is_counted_by_the_next_one() -> None:
    batches = decoded(run(seconds=10, missing=0.2))
    assert 20 < len(batches) < 40
    lost = table(batches, "loss")
    assert set(lost["kind"].tolist()) == {LOSSES.index("spool_batches")}
    gaps = sum(int((np.diff([b.number for b in of_node(batches, f"node{n}")]) - 1).sum()) for n in range(4))
    first_missing = sum(of_node(batches, f"node{n}")[0].number for n in range(4))
    assert lost["count"].sum() == gaps + first_missing


def test_a_silent_node_sends_nothing_more_and_a_restarted_agent_boots_anew() -> None:
    batches = decoded(run(EIGHT, make_fault("agent_restart", EIGHT, 2, victim=1, amount=3), seconds=8))
    mine = of_node(batches, "node1")
    assert [batch.number for batch in mine] == [0, 1, 0, 1, 2]
    assert len({batch.boot_id for batch in mine}) == 2
    assert len(table(mine, "op")) > 3 * len(table(mine[:2], "op")), "completions wait in the segment for the new agent"
    silent = decoded(run(EIGHT, make_fault("node_silent", EIGHT, 2, victim=1), seconds=6))
    assert len(of_node(silent, "node1")) <= 2
    assert len(of_node(silent, "node0")) == 6


def test_a_spool_drains_in_order_after_the_outage() -> None:
    sent = [
        one for one in run(EIGHT, make_fault("spool_drain", EIGHT, 1, victim=0, amount=3), seconds=6) if one.node == 0
    ]
    assert [batch.number for batch in decoded(sent)] == [0, 1, 2, 3, 4, 5]
    late = [one.arrives_ns - batch.wall_ns for one, batch in zip(sent, decoded(sent), strict=True)]
    assert max(late) > 2 * SECOND
    assert late[-1] < SECOND


@pytest.mark.parametrize("name", ["spool_drain", "server_outage"])
def test_batches_come_in_the_order_they_arrive_though_a_node_is_late(name: str) -> None:
    """Each node is cut at a moment of its own: the late one's alone must not come before what is cut meanwhile."""
    fault = make_fault(name, EIGHT, 2.0, victim=1 if name == "spool_drain" else None, amount=4.0)
    sent = run(EIGHT, fault, seconds=9.0)
    assert [one.arrives_ns for one in sent] == sorted(one.arrives_ns for one in sent)
    late = [one for one in sent if one.arrives_ns - one.cut_ns > 2 * 10**9]
    assert {one.node for one in late} == ({1} if name == "spool_drain" else {0, 1, 2, 3})
