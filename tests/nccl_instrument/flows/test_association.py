"""Rows of ops from the epochs of several channels, poll by poll, with losses and limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_instrument.flows.association import MOVED, PeerStream, active_counts, is_dense, summed
from nccl_instrument.tables import TRAFFIC_CUT, TRAFFIC_FINISHED, TRAFFIC_INCOMPLETE, TRAFFIC_P2P

EPOCH = 32_000
SILENCE = 40  # epochs: more than a millisecond


def cells(first: int, n: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(first, first + n), np.full(n, size, np.int64)


def expect(stream: PeerStream, *ops: tuple[int, float], is_p2p: bool = False) -> None:
    numbers, volumes = np.array([op for op, _ in ops]), np.array([volume for _, volume in ops], np.float64)
    stream.expect(numbers, volumes, np.full(len(ops), is_p2p))


def spans(rows: np.ndarray) -> list[tuple[int, int, int, int, int]]:
    return [
        (int(r["op"]), int(r["channel"]), int(r["start_ns"]) // EPOCH, int(r["end_ns"]) // EPOCH, int(r["n_bytes"]))
        for r in rows
    ]


def test_nothing_gives_nothing() -> None:
    stream = PeerStream(EPOCH)
    assert len(stream.poll(10**9)) == len(stream.open()) == 0
    assert stream.poll(10**9).dtype == MOVED


def test_channels_are_cut_together_and_told_apart() -> None:
    stream = PeerStream(EPOCH)
    expect(stream, (7, 1000), (8, 600))
    stream.feed(0, *cells(0, 10, 80))  # uneven: the second channel alone has not its half
    stream.feed(1, *cells(2, 5, 40))
    stream.feed(1, *cells(100, 6, 100))
    rows = stream.poll(1000 * EPOCH)
    assert spans(rows) == [(7, 0, 0, 10, 800), (7, 1, 2, 7, 200), (8, 1, 100, 106, 600)]
    assert (rows["flags"] == TRAFFIC_FINISHED).all()
    assert rows["actual_ns"].tolist() == [10 * EPOCH, 5 * EPOCH, 6 * EPOCH]


def test_shares_of_all_flows_add_up_to_the_time_in_which_any_was_active() -> None:
    fed = [cells(0, 10, 50), cells(5, 10, 50), cells(30, 4, 25)]
    streams = [PeerStream(EPOCH) for _ in fed]
    for stream, (epochs, n_bytes), n_active in zip(streams, fed, active_counts([one for one, _ in fed]), strict=True):
        expect(stream, (1, float(n_bytes.sum())), is_p2p=True)
        stream.feed(0, epochs, n_bytes, n_active)
    rows = np.concatenate([stream.poll(1000 * EPOCH) for stream in streams])
    assert rows["actual_ns"].tolist() == [10 * EPOCH, 10 * EPOCH, 4 * EPOCH]
    assert rows["share_ns"].sum() == (15 + 4) * EPOCH
    assert active_counts([]) == []


def test_an_op_is_over_only_after_silence_and_what_goes_on_is_shown_as_open() -> None:
    stream = PeerStream(EPOCH)
    expect(stream, (7, 1000), is_p2p=True)
    stream.feed(0, *cells(0, 5, 100))
    assert not len(stream.poll(5 * EPOCH))
    assert spans(stream.open()) == [(7, 0, 0, 5, 500)]
    assert stream.open()["flags"].tolist() == [TRAFFIC_P2P]
    stream.feed(0, *cells(5, 5, 100))
    assert not len(stream.poll(11 * EPOCH))
    assert stream.poll((10 + SILENCE) * EPOCH)["flags"].tolist() == [TRAFFIC_FINISHED | TRAFFIC_P2P]
    assert not len(stream.open())


def test_ops_without_a_gap_are_marked_and_bytes_of_no_op_have_no_number() -> None:
    stream = PeerStream(EPOCH)
    stream.feed(0, *cells(0, 20, 100))
    assert not len(stream.poll(1000 * EPOCH))
    assert spans(stream.open()) == [(-1, 0, 0, 20, 2000)]
    expect(stream, (1, 1000), (2, 1000))
    rows = stream.poll(1000 * EPOCH)
    assert spans(rows) == [(1, 0, 0, 10, 1000), (2, 0, 10, 20, 1000)]
    assert (rows["flags"] == TRAFFIC_FINISHED | TRAFFIC_CUT).all()


def test_channels_that_do_not_go_in_step_are_each_divided_by_their_own_bytes() -> None:
    """Ops without a gap: the second channel is five epochs behind the first all the time."""
    stream = PeerStream(EPOCH)
    expect(stream, (1, 2000), (2, 2000), (3, 2000))
    stream.feed(0, *cells(0, 30, 100))
    stream.feed(1, *cells(5, 30, 100))
    assert spans(stream.poll(1000 * EPOCH)) == [
        (1, 0, 0, 10, 1000), (1, 1, 5, 15, 1000), (2, 0, 10, 20, 1000), (2, 1, 15, 25, 1000),
        (3, 0, 20, 30, 1000), (3, 1, 25, 35, 1000),
    ]  # fmt: skip


def test_ops_without_bytes_for_this_peer_are_left_out() -> None:
    stream = PeerStream(EPOCH)
    expect(stream, (1, 0.0), (2, 500.0))
    stream.feed(3, *cells(0, 5, 100))
    assert spans(stream.poll(1000 * EPOCH)) == [(2, 3, 0, 5, 500)]


def test_a_loss_marks_what_is_open_and_the_next_iteration_is_cut_again() -> None:
    stream = PeerStream(EPOCH)
    expect(stream, (1, 1000), (2, 1000), (3, 1000))
    stream.feed(0, *cells(0, 4, 100))
    assert not len(stream.poll(4 * EPOCH))
    stream.feed(0, *cells(200, 10, 100))
    given_up = stream.lose(3, 150 * EPOCH)
    assert given_up["op"].tolist() == [1]
    assert given_up["flags"].tolist() == [TRAFFIC_INCOMPLETE]
    assert spans(stream.poll(1000 * EPOCH)) == [(3, 0, 200, 210, 1000)]


def test_epochs_beyond_the_limit_are_counted_and_their_op_is_marked() -> None:
    stream = PeerStream(EPOCH, cells_max=8)
    expect(stream, (1, 800))
    stream.feed(0, *cells(0, 20, 100))
    rows = stream.poll(1000 * EPOCH)
    assert stream.n_refused == 12
    assert (rows["flags"] & TRAFFIC_INCOMPLETE).all()


def test_an_op_of_any_length_needs_no_more_room_than_a_poll() -> None:
    stream = PeerStream(EPOCH, cells_max=200)
    expect(stream, (1, 10_000.0))
    for at in range(0, 100, 10):
        stream.feed(0, *cells(at, 10, 60))
        stream.feed(1, *cells(at, 10, 40))
        stream.poll((at + 10) * EPOCH)
    assert spans(stream.poll(1000 * EPOCH)) == [(1, 0, 0, 100, 6000), (1, 1, 0, 100, 4000)]
    assert stream.n_refused == 0


OPS = st.lists(
    st.tuples(st.integers(1, 30), st.integers(1, 2000), st.sampled_from([0, 3, 40, 90])), min_size=1, max_size=10
)


@settings(deadline=None)
@given(OPS, st.lists(st.integers(1, 60), min_size=1, max_size=20))
def test_polls_at_any_time_give_what_one_poll_at_the_end_gives(
    ops: list[tuple[int, int, int]], steps: list[int]
) -> None:
    at, stretches = 0, []
    for n, size, pause in ops:
        stretches.append(cells(at, n, size))
        at += n + pause
    epochs, sizes = (np.concatenate([one[which] for one in stretches]) for which in (0, 1))
    whole, pieces = PeerStream(EPOCH), PeerStream(EPOCH)
    for stream in (whole, pieces):
        expect(stream, *[(i, float(n * size)) for i, (n, size, _) in enumerate(ops)])
    whole.feed(0, epochs, sizes)
    expected, found, done, now = whole.poll(10**12).tolist(), [], 0, 0
    for step in (*steps, 10**6):
        now += step
        until = int(np.searchsorted(epochs, now))
        pieces.feed(0, epochs[done:until], sizes[done:until])
        found += pieces.poll(now * EPOCH).tolist()
        done = until
    assert found == expected
    assert sum(row[5] for row in expected) == sizes.sum()


@pytest.mark.parametrize("apart", [1, 10_000])
def test_counts_and_sums_are_the_same_whether_epochs_lie_close_or_far_apart(apart: int) -> None:
    draw = np.random.default_rng(apart)
    flows = [np.flatnonzero(draw.random(400) < 0.3) * apart + 10**9 for _ in range(5)]
    assert is_dense(np.concatenate(flows)) == (apart == 1)
    every, n = np.unique(np.concatenate(flows), return_counts=True)
    for flow, counts in zip(flows, active_counts(flows), strict=True):
        assert counts.tolist() == [int(n[every == epoch][0]) for epoch in flow]
    epochs, total = summed(np.concatenate(flows), np.concatenate([np.full(len(flow), 7) for flow in flows]))
    assert epochs.tolist() == every.tolist() and total.tolist() == (7 * n).tolist()
