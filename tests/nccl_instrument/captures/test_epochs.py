"""Bytes in their epochs, gaps, numbers left out and repeated; whatever the order and the size of the batches."""

from __future__ import annotations

import random

from nccl_instrument.captures import files
from tests.nccl_instrument.captures import made
from tests.nccl_instrument.captures.reduced import US, Reduced

EPOCH_NS, MS = 32 * US, 1_000_000


def capture(*sent: tuple[int, bytes]) -> bytes:
    return made.pcap([(ns, made.ethernet(ip)) for ns, ip in sent])


def test_flows_are_told_apart_by_both_ends_and_the_queue_pair() -> None:
    ends = [(made.A, made.B, 7), (made.B, made.A, 7), (made.A, made.C, 7), (made.A, made.B, 8)]
    found = Reduced(
        capture(*[(0, made.roce(100 + i, source=a, destination=b, qpn=q)) for i, (a, b, q) in enumerate(ends)])
    )
    told = [(row["source"].decode(), row["destination"].decode(), row["qpn"]) for row in found.flows]
    assert sorted(told) == sorted(ends)
    assert sorted(found.flows["bytes"].tolist()) == [100, 101, 102, 103]


def test_a_gap_counts_from_its_length_on() -> None:
    sent = [0, EPOCH_NS, 20 * EPOCH_NS, 60 * EPOCH_NS, 61 * EPOCH_NS]
    one = Reduced(capture(*[(ns, made.roce(64)) for ns in sent])).one
    assert (one["gaps"], one["gap_epochs"], one["longest_gap_epochs"], one["epochs"]) == (1, 39, 39, 5)


def test_acknowledgements_make_no_epochs_and_congestion_is_counted() -> None:
    sent = [made.roce(0, opcode=made.ACK), made.roce(0, opcode=made.CNP), made.roce(64, marked=True)]
    found = Reduced(capture(*[(i * MS, ip) for i, ip in enumerate(sent)]))
    assert (found.one["packets"], found.one["cnps"], found.one["marked"], len(found.cells)) == (3, 1, 1, 1)


def numbered(*psns: int, opcode: int = made.WRITE_MIDDLE) -> list[bytes]:
    return [made.roce(64, psn=psn % 2**24, opcode=opcode) for psn in psns]


def steps_of(*ips: bytes) -> tuple[int, int]:
    one = Reduced(capture(*[(i, ip) for i, ip in enumerate(ips)])).one
    return int(one["skipped"]), int(one["repeated"])


def test_packet_numbers_in_order_are_no_loss_even_where_they_begin_anew() -> None:
    assert steps_of(*numbered(*range(2**24 - 3, 2**24 + 3))) == (0, 0)


def test_numbers_left_out_and_sent_again() -> None:
    assert steps_of(*numbered(5, 6, 9, 10)) == (2, 0)
    assert steps_of(*numbered(5, 6, 9, 7, 8, 9, 10)) == (2, 3)


def test_answers_have_numbers_of_their_own() -> None:
    mixed = numbered(100, 101) + numbered(9, 10, opcode=made.READ_ANSWER) + numbered(102)
    assert steps_of(*mixed) == (0, 0)


def test_a_read_takes_numbers_that_nobody_sends() -> None:
    assert steps_of(*numbered(1), *numbered(2, opcode=made.READ), *numbered(40, 41)) == (0, 0)


def test_batches_of_any_size_give_the_same(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    chance = random.Random(4)
    sent = []
    for i in range(400):
        ns = i * 20 * US + (5 * MS if i % 90 == 0 else 0)
        sent.append((ns, made.roce(chance.randrange(4000), qpn=chance.randrange(5), psn=i)))
    whole = Reduced(capture(*sent))
    monkeypatch.setattr(files, "CHUNK_BYTES", 3_000)
    parts = Reduced(capture(*sent))
    assert parts.by_epoch == whole.by_epoch
    assert sum(whole.by_epoch.values()) == whole.flows["bytes"].sum()
    for name in ("bytes", "skipped", "repeated", "packets", "first_epoch", "last_epoch"):
        assert parts.flows[name].tolist() == whole.flows[name].tolist(), name


def test_going_back_in_time_is_counted_and_no_byte_lost() -> None:
    late, early = capture((50 * EPOCH_NS, made.roce(100))), capture((0, made.roce(28)))
    found = Reduced(late, early, late)
    assert found.by_epoch == {(7, 50): 200, (7, 0): 28}
    assert (found.one["disordered"], found.one["first_epoch"], found.one["last_epoch"]) == (1, 0, 50)


def test_flows_beyond_the_limit_are_counted_with_their_bytes() -> None:
    sent = [(i, made.roce(100, qpn=i)) for i in range(10)]
    found = Reduced(capture(*sent), flows_max=3)
    assert (len(found.flows), found.counts["packets_of_refused_flows"], found.counts["bytes_of_refused_flows"]) == (
        3,
        7,
        700,
    )


def test_epochs_beyond_the_limit_are_counted_and_totals_stay_exact() -> None:
    found = Reduced(capture(*[(i * EPOCH_NS, made.roce(100)) for i in range(10)]), cells_max=4)
    assert (len(found.cells), found.counts["epochs_refused"], found.one["bytes"]) == (4, 6, 1000)


def test_many_flows_have_a_row_each() -> None:
    found = Reduced(capture(*[(i, made.roce(64, qpn=i % 300)) for i in range(900)]))
    assert found.flows["bytes"].tolist() == [192] * 300
