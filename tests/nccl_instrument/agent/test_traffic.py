"""Rows of traffic from a process's chunks: whole iterations alone, marked when anything of them was lost."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np
import pytest

from nccl_instrument.agent.processes.ring import OpRing
from nccl_instrument.agent.processes.segment_layout import OP, TRANSFER
from nccl_instrument.agent.traffic import traffic as module
from nccl_instrument.agent.traffic import transfers
from nccl_instrument.agent.traffic.iterations import Iteration
from nccl_instrument.agent.traffic.sampling import Cost, Sampling
from nccl_instrument.agent.traffic.traffic import SILENT_NS, Traffic
from nccl_instrument.agent.traffic.transfers import Sent, Transfers, laid_out
from nccl_instrument.measure.meter import MeterError
from nccl_instrument.tables import (
    FUNC_SEND,
    FUNCS,
    OP_P2P,
    TRAFFIC_FINISHED,
    TRAFFIC_INCOMPLETE,
    TRAFFIC_P2P,
    TRAFFIC_SOURCES,
)
from nccl_instrument.wire import Rows

MS = 1_000_000
WORLD, PAIR = 0xAA, 0xBB
SIZES = {WORLD: 4, PAIR: 2}
EPOCH = 32_000
CHUNK = 65_536
NO_OPS = np.zeros(0, OP)


@dataclass
class Process:
    """A process whose calls and chunks are given: an AllReduce of everybody and a send to rank 1, every 100 ms."""

    n_ring: int = 4096
    sampling: Sampling = field(default_factory=Sampling)

    def __post_init__(self) -> None:
        self.head, self.ring = np.zeros(1, np.uint64), np.zeros(self.n_ring, TRANSFER)
        self.traffic = Traffic(OpRing(self.head, self.ring, 0), 1, "nic3", self.sampling)

    def chunk(self, number: int, channel: int, step: int, *, is_p2p: bool = False, at_ms: float = 0.0) -> None:
        """Sent in a millisecond, from `at_ms` on."""
        index = int(self.head[0])
        row = self.ring[index % self.n_ring]
        row["comm_id"], row["comm_rank"], row["op"] = (PAIR, 0, number) if is_p2p else (WORLD, 2, number)
        row["peer"], row["channel"], row["step"], row["is_p2p"] = 1 if is_p2p else 3, channel, step, is_p2p
        row["posted_ns"], row["done_ns"], row["bytes"], row["qpn"] = at_ms * MS, (at_ms + 1) * MS, CHUNK, 70 + channel
        row["stamp"] = 2 * (index + 1)
        self.head[0] = index + 1

    def calls(self, number: int) -> Rows:
        rows = np.zeros(2, OP)
        rows["comm_id"], rows["comm_rank"], rows["op"] = [WORLD, PAIR], [2, 0], number + 1
        rows["ordinal"], rows["func"] = rows["op"], [FUNCS.index("AllReduce"), FUNC_SEND]
        rows["flags"], rows["peer"], rows["bytes"] = [0, OP_P2P], [-1, 1], [8 * CHUNK, 2 * CHUNK]
        rows["enqueued_ns"] = (100 * number + np.array([1, 2])) * MS
        return rows

    def send(self, number: int, leave_out: tuple[int, int] | None = None) -> None:
        """The chunks of an iteration: two channels of four, and a send of two; (channel, step) of the first is left out."""
        at = 100.0 * number + 10
        for step in range(4):
            for channel in range(2):
                if (channel, step) != leave_out:
                    self.chunk(number + 1, channel, step, at_ms=at + 2 * step)
        for step in range(2):
            self.chunk(number + 1, 0, step, is_p2p=True, at_ms=at + 30 + step)

    def run(self, first: int, last: int) -> Rows:
        """A cut after each of these iterations."""
        found = []
        for number in range(first, last):
            self.send(number)
            found.append(self.traffic.rows(self.calls(number), NO_OPS, SIZES, (100 * number + 90) * MS))
        return np.concatenate(found)


def test_every_op_of_an_iteration_has_a_row_per_flow_with_what_it_moved_and_when() -> None:
    rows = Process().run(0, 12)
    assert set(rows["op"].tolist()) >= set(range(8, 12))
    of_one = rows[rows["op"] == 8]
    assert of_one[["comm_id", "comm_rank", "peer", "channel", "queue_pair"]].tolist() == [
        (WORLD, 2, 3, 0, 70), (WORLD, 2, 3, 1, 71), (PAIR, 0, 1, 0, 70)
    ]  # fmt: skip
    begin = (700 + 10) * MS
    assert (np.abs(of_one["start_ns"] - [begin, begin, begin + 30 * MS]) < EPOCH).all()
    assert (np.abs(of_one["end_ns"] - [begin + 7 * MS, begin + 7 * MS, begin + 32 * MS]) < EPOCH).all()
    assert of_one["n_bytes"].tolist() == [4 * CHUNK, 4 * CHUNK, 2 * CHUNK]
    assert (np.abs(of_one["actual_ns"] - [4 * MS, 4 * MS, 2 * MS]) <= 8 * EPOCH).all()
    assert of_one["flags"].tolist() == [TRAFFIC_FINISHED, TRAFFIC_FINISHED, TRAFFIC_FINISHED | TRAFFIC_P2P]
    assert set(of_one["slice_bytes"].tolist()) == {CHUNK} and set(of_one["epoch_ns"].tolist()) == {EPOCH}
    assert set(of_one["nic"].tolist()) == {b"nic3"} and set(of_one["source"].tolist()) == {
        TRAFFIC_SOURCES.index("plugin")
    }
    assert (of_one["share_ns"] > 0).all() and of_one["share_ns"][0] == of_one["share_ns"][1] < of_one["actual_ns"][0]


def test_no_op_comes_twice_and_none_before_the_next_iteration_began() -> None:
    rows = Process().run(0, 12)
    keys = list(zip(rows["comm_id"].tolist(), rows["op"].tolist(), rows["channel"].tolist(), strict=True))
    assert len(keys) == len(set(keys))
    assert rows["op"].max() == 11  # the twelfth may still go on


def test_a_chunk_that_is_missing_marks_its_iteration_and_no_other() -> None:
    process = Process()
    process.run(0, 8)
    process.send(8, leave_out=(1, 2))
    process.traffic.rows(process.calls(8), NO_OPS, SIZES, 890 * MS)
    rows = process.run(9, 12)
    assert set(rows["op"].tolist()) == {9, 10, 11} and marked(rows) == {9}


def marked(rows: Rows) -> set[int]:
    """Ops of iterations of which something was lost."""
    return set(rows["op"][(rows["flags"] & TRAFFIC_INCOMPLETE) != 0].tolist())


def test_records_that_were_overwritten_mark_the_iterations_under_way_then() -> None:
    process = Process(n_ring=32)
    before = process.run(0, 8)
    assert not (before["flags"] & TRAFFIC_INCOMPLETE).any()
    for _ in range(5):
        process.send(8)
    rows = process.traffic.rows(process.calls(8), NO_OPS, SIZES, 890 * MS)
    rows = np.concatenate([rows, process.run(9, 12)])
    assert 9 in marked(rows) and not {10, 11} & marked(rows)


def test_a_lost_record_of_an_op_marks_its_iteration_and_no_other() -> None:
    process = Process()
    assert not marked(process.run(0, 8))
    process.send(8)
    process.traffic.lose_ops(1)  # the send's; its chunks are of no op then
    rows = process.traffic.rows(process.calls(8)[:1], NO_OPS, SIZES, 890 * MS)
    rows = np.concatenate([rows, process.run(9, 12)])
    assert 9 in marked(rows) and not {10, 11} & marked(rows)
    assert not ((rows["op"] == 9) & (rows["comm_id"] == PAIR)).any()


def test_a_lost_record_that_is_noticed_when_its_iteration_is_over_marks_it() -> None:
    process = Process()
    process.run(0, 8)
    process.send(8)
    process.send(9)
    process.traffic.lose_ops(1)
    calls = np.concatenate([process.calls(8)[:1], process.calls(9)])
    rows = process.traffic.rows(calls, NO_OPS, SIZES, 990 * MS)
    assert 9 in set(rows["op"].tolist()) and 9 in marked(rows)


def test_an_iteration_with_too_many_epochs_is_counted_and_costs_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "CELLS_MAX", 8)
    process = Process(sampling=Sampling(rows_per_s=1))
    assert not len(process.run(0, 12)) and process.traffic.n_too_large > 0
    assert process.sampling.every > 1


def test_only_every_second_iteration_is_measured_when_that_is_all_there_is_room_for() -> None:
    sampling = Sampling(rows_per_s=100)
    sampling.told(99, Cost(rows=190, cells=0, transfers=0, took_ns=1_000 * MS))  # another process of this node
    rows = Process(sampling=sampling).run(0, 20)
    assert sampling.every == 4  # 3 rows every 100 ms of our own on top
    assert {(op - 1) % 4 for op in rows["op"].tolist() if op > 4} == {0}


def test_nothing_is_read_or_sent_where_nothing_is_to_be_measured() -> None:
    process = Process(sampling=Sampling(rows_per_s=0))
    assert len(process.run(0, 12)) == 0
    assert process.traffic.transfers.ring.n_waiting == 0 and process.traffic.transfers.n_lost == 0


def test_an_op_that_stands_still_is_told_once_unfinished_and_again_when_it_is_over() -> None:
    process = Process()
    process.run(0, 10)
    for step in range(2):
        process.chunk(11, 0, step, at_ms=1010 + step)
    live = process.calls(10)
    live["n_flows_begun"] = 1
    soon, later = 1020 * MS, 1020 * MS + SILENT_NS
    assert not [row for row in process.traffic.rows(NO_OPS, live, SIZES, soon) if row["op"] == 11]
    told = process.traffic.rows(NO_OPS, live, SIZES, later)
    assert told[["op", "n_bytes", "flags"]].tolist() == [(11, 2 * CHUNK, 0)]
    assert len(process.traffic.rows(NO_OPS, live, SIZES, later + MS)) == 0
    for step in range(2, 4):
        process.chunk(11, 0, step, at_ms=3000 + step)
    rows = process.traffic.rows(process.calls(10)[:1], NO_OPS, SIZES, 3050 * MS)
    following = process.calls(11)
    following["enqueued_ns"] = 3100 * MS
    rows = np.concatenate([rows, process.traffic.rows(following, NO_OPS, SIZES, 3200 * MS)])
    whole = rows[(rows["op"] == 11) & ((rows["flags"] & TRAFFIC_FINISHED) != 0)]
    assert whole["n_bytes"].tolist() == [4 * CHUNK]


def test_an_op_that_stands_still_in_an_iteration_that_is_not_measured_is_told_of_too() -> None:
    process = Process()
    process.run(0, 10)
    process.sampling.told(2, Cost(rows=10**6, cells=0, transfers=0, took_ns=1))
    process.traffic.rows(process.calls(10), NO_OPS, SIZES, 1090 * MS)
    for step in range(2):
        process.chunk(12, 1, step, at_ms=1110 + step)
    live = process.calls(11)
    live["n_flows_begun"] = 1
    assert len(process.traffic.rows(NO_OPS, live, SIZES, 1200 * MS)) == 0
    assert process.traffic.transfers.ring.n_waiting == 0
    told = process.traffic.rows(NO_OPS, live, SIZES, 1200 * MS + SILENT_NS)
    assert told[["op", "channel", "n_bytes", "flags"]].tolist() == [(12, 1, 2 * CHUNK, 0)]
    assert len(process.traffic.rows(NO_OPS, live, SIZES, 1300 * MS + SILENT_NS)) == 0


def test_of_a_standstill_whose_first_chunks_were_overwritten_the_rest_is_marked() -> None:
    process = Process()
    process.run(0, 10)
    process.sampling.told(2, Cost(rows=10**6, cells=0, transfers=0, took_ns=1))
    process.traffic.rows(process.calls(10), NO_OPS, SIZES, 1090 * MS)
    for step in range(1, 3):
        process.chunk(12, 1, step, at_ms=1110 + step)
    live = process.calls(11)
    live["n_flows_begun"] = 1
    process.traffic.rows(NO_OPS, live, SIZES, 1200 * MS)
    told = process.traffic.rows(NO_OPS, live, SIZES, 1200 * MS + SILENT_NS)
    assert told["flags"].tolist() == [TRAFFIC_INCOMPLETE]


def test_the_epochs_of_the_newest_iterations_are_kept_and_no_more_than_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Process()
    process.run(0, 12)
    one = process.traffic.raw[-1]
    assert one.sent.cells["n_bytes"].sum() == 10 * CHUNK and one.iteration.number == 10
    monkeypatch.setattr(module, "RAW_BYTES_MAX", 3 * one.n_bytes)
    process.run(12, 24)
    assert [raw.iteration.number for raw in process.traffic.raw] == [20, 21, 22]


def test_iterations_with_too_many_epochs_are_measured_in_longer_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "CELLS_MAX", 200)
    rows = Process().run(0, 12)
    of_one = rows[rows["op"] == 8]
    assert set(of_one["epoch_ns"].tolist()) == {64_000}
    assert of_one["n_bytes"].tolist() == [4 * CHUNK, 4 * CHUNK, 2 * CHUNK]


def test_without_the_library_the_same_is_made_in_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(spans: Rows, epoch_ns: int) -> Rows:
        raise MeterError("not built")

    with_it = Process().run(0, 12)
    monkeypatch.setattr(transfers, "spread", missing)
    without = Process().run(0, 12)
    for name in ("op", "channel", "start_ns", "end_ns", "actual_ns", "n_bytes", "flags"):
        assert (with_it[name] == without[name]).all(), name


def test_chunks_in_numbers_that_cannot_be_end_in_no_endless_work() -> None:
    process = Process()
    process.run(0, 10)
    process.send(10)
    process.ring["posted_ns"][:] = -(2**62)
    process.ring["done_ns"][-50:] = 2**62
    with suppress(ValueError, OverflowError, IndexError):  # the agent stops following a segment that makes no sense
        process.run(11, 14)


def recorded(n_chunks: int, each_us: int) -> tuple[OpRing, Iteration]:
    """A ring with an op of two channels, whose chunks follow each other, every fourth after a pause of one chunk's time."""
    head, ring = np.array([2 * n_chunks], np.uint64), np.zeros(2 * n_chunks, TRANSFER)
    step = np.arange(2 * n_chunks) // 2
    ring["comm_id"], ring["comm_rank"], ring["peer"], ring["op"] = WORLD, 2, 3, 1
    ring["channel"], ring["step"], ring["bytes"] = np.arange(2 * n_chunks) % 2, step, 1000 + step % 7
    begins = (step + step // 4) * each_us * 1000 + 5 * MS
    ring["posted_ns"], ring["done_ns"] = begins, begins + each_us * 1000
    ring["stamp"] = 2 * (np.arange(2 * n_chunks) + 1)
    ops = np.zeros(1, OP)
    ops["comm_id"], ops["comm_rank"], ops["op"], ops["peer"] = WORLD, 2, 1, -1
    return OpRing(head, ring, 0), Iteration(0, MS, 10**12, ops, is_whole=True)


def told(n_chunks: int, each_us: int) -> tuple[Sent, Transfers]:
    ring, iteration = recorded(n_chunks, each_us)
    held = Transfers(ring, EPOCH)
    held.read()
    return laid_out(held.since(0), iteration, held.epoch_ns), held


def test_joining_chunks_of_one_epoch_changes_no_epoch_and_loses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, _ = told(2_000, 3)
    monkeypatch.setattr(transfers, "KEPT_MAX", 3_000)
    squeezed, held = told(2_000, 3)
    assert (plain.cells == squeezed.cells).all() and squeezed.epoch_ns == EPOCH
    assert held.n_lost == 0 and squeezed.is_whole and len(squeezed.rows) < len(plain.rows) // 2
    assert squeezed.rows["n_chunks"].sum() == len(plain.rows) and squeezed.rows["largest"].max() == 1006


def test_an_iteration_of_too_many_chunks_is_told_in_longer_epochs_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, _ = told(4_000, 20)
    monkeypatch.setattr(transfers, "KEPT_MAX", 1_000)
    squeezed, held = told(4_000, 20)
    assert held.n_lost == 0 and squeezed.is_whole and EPOCH < squeezed.epoch_ns <= 1_000_000
    assert squeezed.cells["n_bytes"].sum() == plain.cells["n_bytes"].sum()
    assert int(squeezed.cells["epoch"].max()) == int(plain.cells["epoch"].max()) * EPOCH // squeezed.epoch_ns
    held.since(10**12)
    assert held.epoch_ns == EPOCH, "what comes next is measured finely again"


def test_what_there_is_no_room_for_even_then_is_lost_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "KEPT_MAX", 100)
    squeezed, held = told(1_000, 2_000)
    assert held.n_lost == 1_900 and not squeezed.is_whole


def test_a_hole_between_joined_chunks_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfers, "KEPT_MAX", 3_000)
    ring, iteration = recorded(2_000, 3)
    ring._ring["stamp"][501] = 0
    held = Transfers(ring, EPOCH)
    held.read()
    held.read()
    assert not laid_out(held.since(0), iteration, held.epoch_ns).is_whole
