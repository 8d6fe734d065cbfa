"""Every byte is in its epoch or counted, whatever the order, the number of flows and the memory there is."""

from __future__ import annotations

import threading
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_instrument.measure.meter import SENT, Meter, MeterError, Polled

US = 1_000
EPOCH = 32 * US
SECOND = 1_000_000_000
CHUNK = 256  # bytes: as many epochs as a flow takes from the pool at once


def by_epoch(polled: Polled) -> dict[tuple[int, int], int]:
    """(queue pair, epoch) → bytes in units."""
    found: dict[tuple[int, int], int] = defaultdict(int)
    qpns = np.repeat(polled.flows["qpn"], polled.flows["n_cells"])
    for qpn, cell in zip(qpns.tolist(), polled.cells.tolist(), strict=True):
        found[qpn, polled.first_epoch + cell[0]] += cell[1] * polled.unit_bytes
    return dict(found)


def test_bytes_are_in_the_epoch_in_which_they_left() -> None:
    with Meter(1000, aggregated_bytes=0) as meter:
        for qpn, at_us, n_bytes in ((7, 0, 4096), (7, 31, 64), (7, 33, 128), (9, 100, 32)):
            meter.transfer(qpn, 1000 + at_us * US, n_bytes)
        assert by_epoch(meter.poll(SECOND)) == {(7, 0): 4160, (7, 1): 128, (9, 3): 32}


def test_what_is_below_a_unit_is_carried_and_the_total_is_exact() -> None:
    with Meter(0, aggregated_bytes=0) as meter:
        for _ in range(10):
            meter.transfer(1, 5, 33)
        polled = meter.poll(SECOND)
        assert by_epoch(polled) == {(1, 0): 320}
        assert polled.flows["bytes"].tolist() == [330]


def test_small_transfers_are_one_event_once_enough_have_gathered() -> None:
    with Meter(0, aggregated_bytes=4096) as meter:
        for at in range(8):
            meter.transfer(1, at * EPOCH, 1024)
        assert by_epoch(meter.poll(SECOND)) == {(1, 3): 4096, (1, 7): 4096}
        assert (meter.counts()["transfers"], meter.counts()["events"]) == (8, 2)


def test_a_poll_takes_what_is_no_event_yet() -> None:
    with Meter(0) as meter:
        meter.transfer(1, 3 * EPOCH, 1024)
        assert by_epoch(meter.poll(SECOND)) == {(1, 3): 1024}


def test_a_silent_flow_is_aged_and_its_memory_serves_another() -> None:
    with Meter(0, flows_max=1, pool_bytes_max=CHUNK) as meter:
        meter.transfer(1, 0, 4096)
        assert len(meter.poll(SECOND).flows) == 1
        meter.transfer(2, SECOND, 4096)
        assert meter.counts()["flows_refused"] == 1
        meter.poll(2 * SECOND)
        meter.transfer(2, 2 * SECOND, 4096)
        assert by_epoch(meter.poll(3 * SECOND)) == {(2, 2 * SECOND // EPOCH): 4096}
        assert (meter.counts()["flows_aged"], meter.counts()["pool_bytes"]) == (1, CHUNK)


def test_more_than_an_epoch_can_hold_goes_on_in_the_next() -> None:
    with Meter(0, aggregated_bytes=0) as meter:
        meter.transfer(1, 0, 5 * 2**20)
        found = by_epoch(meter.poll(SECOND))
        assert sorted(found) == [(1, 0), (1, 1), (1, 2)]
        assert sum(found.values()) == 5 * 2**20


def test_long_epochs_count_in_larger_units_and_lose_nothing() -> None:
    with Meter(0, epoch_ns=1_000_000, aggregated_bytes=0) as meter:
        assert meter.unit_bytes == 1024
        for _ in range(1000):
            meter.transfer(1, 500, 50_000)
        assert sum(by_epoch(meter.poll(SECOND)).values()) == 50_000_000 // 1024 * 1024


def test_late_and_early_events_are_counted_and_kept() -> None:
    with Meter(0, aggregated_bytes=0, poll_ns=10_000_000) as meter:
        meter.poll(SECOND)
        meter.transfer(1, 0, 64)
        meter.transfer(1, 9 * SECOND, 64)
        assert sum(by_epoch(meter.poll(2 * SECOND)).values()) == 128
        assert (meter.counts()["late_events"], meter.counts()["early_events"]) == (1, 1)


def test_without_memory_for_epochs_bytes_are_lost_and_counted_and_the_total_still_exact() -> None:
    with Meter(0, aggregated_bytes=0, pool_bytes_max=CHUNK) as meter:
        meter.transfer(1, 0, 64)
        meter.transfer(1, SECOND, 96)
        polled = meter.poll(2 * SECOND)
        assert (sum(by_epoch(polled).values()), polled.flows["bytes"].tolist()) == (64, [160])
        assert meter.counts()["lost_bytes"] == 96


def test_a_number_beyond_24_bits_is_no_queue_pair() -> None:
    with Meter(0) as meter:
        meter.transfer(2**24, 0, 64)
        meter.transfer(2**24 - 1, 0, 64)
        assert meter.poll(SECOND).flows["qpn"].tolist() == [2**24 - 1]
        assert meter.counts()["bad_qpns"] == 1


def test_a_poll_asks_again_with_more_room() -> None:
    with Meter(0, aggregated_bytes=0) as meter:
        for qpn in range(600):
            for at in range(150):
                meter.transfer(qpn, at * EPOCH, 32)
        polled = meter.poll(SECOND)
        assert (len(polled.flows), len(polled.cells)) == (600, 90_000)


@pytest.mark.parametrize("wrong", [{"epoch_ns": 7_999}, {"epoch_ns": 1_000_001}, {"poll_ns": 1}, {"flows_max": 0}])
def test_settings_that_cannot_be_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(MeterError):
        Meter(0, **wrong)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3_000), st.integers(1, 70_000)), max_size=60),
    st.sampled_from([0, 4096]), st.integers(1, 4),
)  # fmt: skip
def test_no_byte_appears_or_goes(transfers: list[tuple[int, int, int]], aggregated: int, n_polls: int) -> None:
    with Meter(0, aggregated_bytes=aggregated, epoch_ns=8_000) as meter:
        total: dict[int, int] = defaultdict(int)
        units: dict[int, int] = defaultdict(int)
        transfers.sort(key=lambda one: one[1])
        for part in range(n_polls):
            for qpn, at_us, n_bytes in transfers[part::n_polls]:
                meter.transfer(qpn, at_us * US, n_bytes)
            polled = meter.poll(3_001 * US)
            for qpn, n_bytes in zip(polled.flows["qpn"].tolist(), polled.flows["bytes"].tolist(), strict=True):
                total[qpn] += n_bytes
            for (qpn, _), n_bytes in by_epoch(polled).items():
                units[qpn] += n_bytes
        expected: dict[int, int] = defaultdict(int)
        for qpn, _, n_bytes in transfers:
            expected[qpn] += n_bytes
        assert total == expected
        assert all(expected[qpn] - 32 * n_polls < units[qpn] <= expected[qpn] for qpn in expected)
        assert meter.counts()["lost_bytes"] == 0


def test_threads_and_polls_at_once_lose_nothing() -> None:
    with Meter(0, aggregated_bytes=4096) as meter:

        def feed(first: int) -> None:
            for at in range(20_000):
                meter.transfer(first + at % 50, at * US, 100)

        threads = [threading.Thread(target=feed, args=(first,)) for first in (0, 25, 100)]
        for thread in threads:
            thread.start()
        taken = 0
        while any(thread.is_alive() for thread in threads):
            taken += int(meter.poll(0).flows["bytes"].sum())
        taken += int(meter.poll(SECOND).flows["bytes"].sum())
        assert taken == 3 * 20_000 * 100
        assert meter.counts()["transfers"] == 60_000


def test_pauses_longer_than_a_cell_can_tell_are_bridged() -> None:
    with Meter(0, aggregated_bytes=0, epoch_ns=8 * US) as meter:
        for qpn, epoch in ((1, 3), (1, 70_000), (1, 249_999), (2, 140_000)):
            meter.transfer(qpn, epoch * 8 * US, 64)
        polled = meter.poll(2 * SECOND)
        assert by_epoch(polled) == {(1, 3): 64, (1, 70_000): 64, (1, 249_999): 64, (2, 140_000): 64}
        assert polled.flows["n_cells"].tolist() == [3, 1]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from([1, 2, 3, 2**24]), st.integers(0, 3_000), st.integers(1, 70_000)), max_size=150),
    st.sampled_from([0, 4096]),
)
def test_a_burst_counts_like_its_transfers_one_by_one(transfers: list[tuple[int, int, int]], aggregated: int) -> None:
    with (
        Meter(0, aggregated_bytes=aggregated, flows_max=2) as one,
        Meter(0, aggregated_bytes=aggregated, flows_max=2) as burst,
    ):
        for qpn, at_us, n_bytes in transfers:
            one.transfer(qpn, at_us * US, n_bytes)
        burst.transfers(np.array([(at * US, n_bytes, qpn, 0) for qpn, at, n_bytes in transfers], SENT))
        alone, together = one.poll(SECOND), burst.poll(SECOND)
        assert (alone.flows == together.flows).all() and (alone.cells == together.cells).all()
        assert one.counts() == burst.counts()


@settings(max_examples=300, deadline=None)
@given(st.integers(8_000, 1_000_000), st.integers(0, 2**63 - 1), st.integers(-2, 2))
def test_an_event_is_in_the_epoch_that_division_says_whatever_the_epoch_and_the_time(
    epoch_ns: int, near_ns: int, off_ns: int
) -> None:
    at_ns = min(max(near_ns // epoch_ns * epoch_ns + off_ns, 0), 2**63 - 1)
    with Meter(0, epoch_ns=epoch_ns, aggregated_bytes=0, poll_ns=epoch_ns, flows_max=1) as meter:
        meter.poll(max(at_ns - epoch_ns, 0))
        meter.transfer(1, at_ns, 2048)
        assert list(by_epoch(meter.poll(at_ns))) == [(1, at_ns // epoch_ns)]
        assert meter.counts()["late_events"] == meter.counts()["early_events"] == 0


def test_flows_that_share_a_chunk_of_time_keep_their_epochs_across_many_polls() -> None:
    with Meter(0, aggregated_bytes=0, poll_ns=10_000_000, flows_max=50, pool_bytes_max=50 * 8 * CHUNK) as meter:
        for poll in range(30):
            begin = poll * 10_000_000 // EPOCH
            expected = {(qpn, begin + 1 + (qpn * 7 + poll) % 300): 32 * (qpn + 1) for qpn in range(50)}
            for (qpn, epoch), n_bytes in expected.items():
                meter.transfer(qpn, epoch * EPOCH, n_bytes)
            assert by_epoch(meter.poll((poll + 1) * 10_000_000)) == expected
        assert meter.counts()["lost_bytes"] == 0 and meter.counts()["pool_bytes"] <= 50 * CHUNK
