"""Where nothing names queue pairs, nothing is guessed: what could be two things is none, and no op is named by halves."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from nccl_instrument.agent.processes.segment_layout import COMM, OP
from nccl_instrument.agent.verbs.traffic import VerbsTraffic
from nccl_instrument.flows.association import PeerStream
from nccl_instrument.measure.meter import CELL, FLOW
from nccl_instrument.tables import (
    FUNC_RECV,
    FUNC_SEND,
    FUNCS,
    NO_OP,
    OP_API,
    OP_P2P,
    OP_STOPS_LOST,
    TRAFFIC_FINISHED,
    TRAFFIC_INCOMPLETE,
    TRAFFIC_P2P,
)
from nccl_instrument.verbs.reading import BLOCK, QUEUE_PAIR, Block
from nccl_instrument.wire import Rows

EPOCH, UNIT, MS = 32_000, 32, 1_000_000
ALL_REDUCE = FUNCS.index("AllReduce")
N_RANKS, RANK, BYTES = 4, 1, 32_000 * 8
VOLUME = 2 * BYTES * (N_RANKS - 1) // N_RANKS


def comm(comm_id: int = 5, *, began_ns: int = 1 * MS, joined_ns: int = 3 * MS, abi: int = 0) -> Rows:
    rows = np.zeros(1, COMM)
    rows["comm_id"], rows["comm_rank"], rows["n_ranks"], rows["abi"] = comm_id, RANK, N_RANKS, abi
    rows["began_ns"], rows["joined_ns"] = began_ns, joined_ns
    return rows


def calls(
    numbers: Sequence[int], *, every_ms: int = 10, func: int = ALL_REDUCE, peer: int = 0, comm_id: int = 5, at_ms: int = 0,
    flags: int = OP_API,
) -> Rows:  # fmt: skip
    """The n-th is enqueued at n times every_ms and launched 1 ms later."""
    rows = np.zeros(len(numbers), OP)
    rows["comm_id"], rows["comm_rank"], rows["func"], rows["peer"], rows["bytes"] = comm_id, RANK, func, peer, BYTES
    rows["op"] = rows["ordinal"] = numbers
    rows["flags"] = flags | (OP_P2P if func in (FUNC_SEND, FUNC_RECV) else 0)
    rows["enqueued_ns"] = (np.array(numbers) * every_ms + at_ms) * MS
    rows["launched_ns"] = rows["enqueued_ns"] + MS
    return rows


def block(
    bursts_ms: Sequence[float], n_bytes: int = VOLUME, *, connected_ns: int = 2 * MS, qpn: int = 0x101, to: int = 2,
    lost: int = 0, last_ms: int = 2_000, request_bytes: int = 65_536,
) -> Block:  # fmt: skip
    """One queue pair with so many bytes at each of these times, over 8 epochs."""
    head, flows, pairs = np.zeros(1, BLOCK), np.zeros(1, FLOW), np.zeros(1, QUEUE_PAIR)
    cells = np.zeros(8 * len(bursts_ms), CELL)
    cells["epoch"] = [int(ms * MS) // EPOCH + at for ms in bursts_ms for at in range(8)]
    cells["units"] = n_bytes // 8 // UNIT
    head["epoch_ns"], head["unit_bytes"], head["n_cells"], head["name"] = EPOCH, UNIT, len(cells), b"mlx5_0"
    head["now_ns"], head["lost_bytes"] = last_ms * MS, lost
    flows["qpn"], flows["n_cells"] = qpn, len(cells)
    pairs["qpn"], pairs["connected_ns"], pairs["connects"], pairs["work_requests"] = qpn, connected_ns, 1, 10
    pairs["bytes"], pairs["dgid"][0, 15] = 10 * request_bytes, to
    return Block(head[0], flows, cells, pairs)


def ops_of(rows: Rows) -> list[int]:
    assert (rows["flags"][rows["op"] >= 0] & TRAFFIC_FINISHED != 0).all()
    return sorted(rows["op"].tolist())


FIVE = range(1, 6)
STARTS = [10 * n + 2 for n in FIVE]


def test_five_ops_on_a_ring() -> None:
    rows = VerbsTraffic(EPOCH).rows([block(STARTS)], comm(), calls(FIVE))
    assert ops_of(rows) == list(FIVE) and (rows["n_bytes"] == VOLUME).all() and (rows["peer"] == -1).all()


@pytest.mark.parametrize(
    ("comms", "connected_ms"),
    [
        (np.concatenate([comm(), comm(6)]), 2.0),  # two were being made
        (comm(), 6.0),  # none was
        (comm(began_ns=0), 2.0),  # nobody knows when
    ],
)
def test_a_queue_pair_of_nobody_in_particular_is_nobodys(comms: Rows, connected_ms: float) -> None:
    rows = VerbsTraffic(EPOCH).rows([block(STARTS, connected_ns=int(connected_ms * MS))], comms, calls(FIVE))
    assert not len(rows)


def test_where_the_plugin_traces_it_tells_and_nothing_is_told_twice() -> None:
    assert not len(VerbsTraffic(EPOCH).rows([block(STARTS)], comm(abi=5), calls(FIVE)))
    assert not len(VerbsTraffic(EPOCH).rows([block(STARTS)], comm(), calls(FIVE, flags=0)))


def test_credits_of_a_receiver_are_no_data() -> None:
    assert not len(VerbsTraffic(EPOCH).rows([block(STARTS, 256, request_bytes=64)], comm(), calls(FIVE)))


@pytest.mark.parametrize("n_bytes", [VOLUME // 2, VOLUME * 3])
def test_another_volume_than_any_algorithms_names_no_op(n_bytes: int) -> None:
    many = range(1, 31)
    rows = VerbsTraffic(EPOCH).rows([block([10 * n + 2 for n in many], n_bytes)], comm(), calls(many))
    assert ops_of(rows) == [NO_OP] and rows["n_bytes"].sum() == 30 * n_bytes and rows["share_ns"][0] == -1


@pytest.mark.parametrize("numbers", [[3, 4, 5, 6, 7], [1, 2, 4, 5, 6]])
def test_without_the_first_call_or_with_one_missing_no_op_is_named(numbers: list[int]) -> None:
    rows = VerbsTraffic(EPOCH).rows([block([10 * n + 2 for n in numbers])], comm(), calls(numbers))
    assert ops_of(rows) == [NO_OP]


def test_after_a_loss_no_op_is_named_until_a_call_that_surely_begins_the_next_bytes() -> None:
    cut = VerbsTraffic(EPOCH)
    assert ops_of(cut.rows([block(STARTS)], comm(), calls(FIVE))) == list(FIVE)
    later = range(6, 9)
    rows = cut.rows([block([10 * n + 2 for n in later], lost=7, last_ms=100)], comm(), calls(later))
    assert ops_of(rows) == [NO_OP]
    close = range(9, 12)  # no pause before them
    rows = cut.rows([block([10 * n + 22 for n in close], lost=7, last_ms=200)], comm(), calls(close, at_ms=20))
    assert ops_of(rows) == [NO_OP]
    clear = range(12, 15)
    starts = [10 * n + 4_002 for n in clear]
    rows = cut.rows([block(starts, lost=7, last_ms=6_000)], comm(), calls(clear, at_ms=4_000))
    assert ops_of(rows) == list(clear) and (rows["start_ns"] // MS >= 4_120).all()


def test_what_is_open_at_a_loss_is_told_and_marked() -> None:
    cut = VerbsTraffic(EPOCH)
    assert ops_of(cut.rows([block(STARTS, last_ms=61)], comm(), calls(FIVE))) == list(FIVE)
    assert not len(cut.rows([block([62], VOLUME // 2, last_ms=70)], comm(), calls([6])))
    (row,) = cut.rows([block([], lost=7, last_ms=80)], comm(), calls([]))
    assert (row["op"], row["n_bytes"], row["flags"]) == (6, VOLUME // 2, TRAFFIC_INCOMPLETE)


def test_a_pause_in_which_the_call_before_has_moved_nothing_is_no_begin() -> None:
    cut = VerbsTraffic(EPOCH)
    assert ops_of(cut.rows([block(STARTS, last_ms=61)], comm(), calls(FIVE))) == list(FIVE)
    late = np.concatenate([calls([6], at_ms=2_000), calls([7], at_ms=4_000)])  # the sixth runs after the seventh's call
    rows = cut.rows([block([5_002, 5_012], lost=7, last_ms=6_000)], comm(), late)
    assert ops_of(rows) == [NO_OP]


def test_calls_whose_bytes_never_come_are_limited_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PeerStream.__init__, "__defaults__", (MS, 4_000_000, 8))
    cut = VerbsTraffic(EPOCH)
    cut.rows([block(STARTS)], comm(), calls(FIVE))
    many = range(6, 40)
    cut.rows([block([62], last_ms=3_000)], comm(), calls(many))
    assert cut.refused() == 34 - 8 and cut.refused() == 0


def test_communicators_that_are_gone_are_forgotten() -> None:
    cut = VerbsTraffic(EPOCH)
    for number in range(10, 20):
        cut.rows([block(STARTS, qpn=number)], comm(number), calls(FIVE, comm_id=number))
    assert len(cut.pairs.known) == 1 and len(cut._members) == 1 and len(cut._newest) == 1


def test_bytes_of_nobody_are_counted() -> None:
    cut = VerbsTraffic(EPOCH)
    cut.rows([block(STARTS, connected_ns=6 * MS, last_ms=20_000)], comm(), calls(FIVE))
    assert cut.pairs.unowned_bytes() == 5 * VOLUME and not cut.pairs.known and not cut.pairs.unowned_bytes()


def test_a_refused_call_is_no_op() -> None:
    refused = calls([1], flags=OP_API | OP_STOPS_LOST)
    refused["enqueued_ns"] -= MS
    rows = VerbsTraffic(EPOCH).rows([block(STARTS)], comm(), np.concatenate([refused, calls(FIVE)]))
    assert ops_of(rows) == list(FIVE)


def test_sends_to_one_peer_while_a_queue_pair_was_connected_are_its() -> None:
    ops = np.concatenate([calls(FIVE, func=FUNC_SEND, peer=3), calls(FIVE, func=FUNC_RECV, peer=2)])
    rows = VerbsTraffic(EPOCH).rows([block(STARTS, BYTES, connected_ns=int(10.5 * MS))], comm(), ops)
    assert ops_of(rows) == list(FIVE)
    assert (rows["peer"] == 3).all() and (rows["flags"] & TRAFFIC_P2P != 0).all()


def test_sends_to_two_peers_at_once_leave_a_queue_pair_nobodys() -> None:
    ops = np.concatenate([calls(FIVE, func=FUNC_SEND, peer=3), calls(FIVE, func=FUNC_SEND, peer=2)])
    assert not len(VerbsTraffic(EPOCH).rows([block(STARTS, BYTES, connected_ns=int(10.5 * MS))], comm(), ops))


def test_an_op_that_stands_still_is_told_once_unfinished() -> None:
    cut = VerbsTraffic(EPOCH)
    assert ops_of(cut.rows([block(STARTS)], comm(), calls(FIVE))) == list(FIVE)
    half = block([62], VOLUME // 2, last_ms=3_000)
    (standing,) = cut.rows([half], comm(), calls([6]))
    assert (standing["op"], standing["flags"] & TRAFFIC_FINISHED, standing["n_bytes"]) == (6, 0, VOLUME // 2)
    assert not len(cut.rows([block([], last_ms=5_000)], comm(), calls([])))


def test_bytes_that_come_in_two_blocks_are_one_epochs() -> None:
    cut, first = VerbsTraffic(EPOCH), block(STARTS)
    first.head["now_ns"], first.head["lag_ns"] = 60 * MS, 30 * MS  # two ops may yet get more
    rows = [cut.rows([first], comm(), calls(FIVE)), cut.rows([block([], last_ms=2_000)], comm(), calls([]))]
    assert ops_of(np.concatenate(rows)) == list(FIVE)


def sized(numbers: Sequence[int], n_bytes: int) -> Rows:
    rows = calls(numbers)
    rows["bytes"] = n_bytes
    return rows


def bursts(*moved: tuple[int, int], last_ms: int = 2_000) -> list[Block]:
    """(op, bytes): what moved 2 ms after its call."""
    return [block([10 * number + 2], n_bytes, last_ms=last_ms) for number, n_bytes in moved]


def ring(n_bytes: int) -> int:
    return 2 * n_bytes * (N_RANKS - 1) // N_RANKS


LARGE, SMALL = 32_000 * 8, 2_048 * 8


@pytest.mark.parametrize("factor", [2.0, 16 / 15])
def test_flags_of_ll_and_ll128_belong_to_their_op(factor: float) -> None:
    moved = int(VOLUME * factor) // (8 * UNIT) * (8 * UNIT)
    rows = VerbsTraffic(EPOCH).rows([block(STARTS, moved)], comm(), calls(FIVE))
    assert ops_of(rows) == list(FIVE) and (rows["n_bytes"] == moved).all()


def test_small_ops_run_another_algorithm_and_protocol_than_large_ones() -> None:
    small, large = [1, 3, 5, 7], [2, 4, 6, 8]
    ops = np.concatenate([sized(small, SMALL), sized(large, LARGE)])
    blocks = bursts(*((n, 2 * SMALL) for n in small), *((n, ring(LARGE)) for n in large))  # a tree with LL, a ring
    rows = VerbsTraffic(EPOCH).rows(blocks, comm(), ops)
    assert ops_of(rows) == list(range(1, 9))
    volumes = dict(zip(rows["op"].tolist(), rows["n_bytes"].tolist(), strict=True))
    assert {volumes[n] for n in small} == {2 * SMALL} and {volumes[n] for n in large} == {ring(LARGE)}


def test_a_kind_of_op_that_comes_later_is_learned_from_its_first() -> None:
    cut = VerbsTraffic(EPOCH)
    assert ops_of(cut.rows([block(STARTS)], comm(), calls(FIVE))) == list(FIVE)
    ops = np.concatenate([sized([301, 303], SMALL), calls([302, 304])])
    ops["op"] = ops["ordinal"] = [6, 8, 7, 9]
    moved = [(301, 2 * ring(SMALL)), (302, VOLUME), (303, 2 * ring(SMALL)), (304, VOLUME)]
    rows = cut.rows(bursts(*moved, last_ms=5_000), comm(), ops)
    assert ops_of(rows) == [6, 7, 8, 9]
    by_op = dict(zip(rows["op"].tolist(), rows["n_bytes"].tolist(), strict=True))
    assert by_op == {6: 2 * ring(SMALL), 7: VOLUME, 8: 2 * ring(SMALL), 9: VOLUME}


def test_a_later_kind_whose_bytes_fit_nothing_names_no_op_until_a_clear_begin() -> None:
    cut = VerbsTraffic(EPOCH)
    assert ops_of(cut.rows([block(STARTS)], comm(), calls(FIVE))) == list(FIVE)
    odd = sized([301], SMALL)
    odd["op"] = odd["ordinal"] = 6
    rows = cut.rows(bursts((301, 5 * ring(SMALL)), last_ms=5_000), comm(), odd)
    assert set(rows["op"].tolist()) == {NO_OP} and rows["n_bytes"].sum() == 5 * ring(SMALL)
    clear = calls([701, 702])
    clear["op"] = clear["ordinal"] = [7, 8]
    rows = cut.rows(bursts((701, VOLUME), (702, VOLUME), last_ms=9_000), comm(), clear)
    assert ops_of(rows) == [7, 8]
