"""Hostile captures: any bytes, and good captures with bytes changed, end in an answer or in a CaptureError."""

from __future__ import annotations

from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from nccl_instrument.captures.files import CaptureError
from tests.nccl_instrument.captures import made
from tests.nccl_instrument.captures.reduced import Reduced

IPS = [
    made.roce(n, source=a, destination=b, psn=n) for n in (0, 5, 900) for a, b in ((made.A, made.B), (made.A6, made.B6))
]
FRAMES = [(i * 40_000, made.ethernet(ip, tags=i % 3)) for i, ip in enumerate(IPS)]
GOOD = [
    made.pcap(FRAMES),
    made.pcap(FRAMES, order=">", is_ns=False, snap=94),
    made.pcap([(0, made.cooked2(ip)) for ip in IPS], link=276),
    made.section() + made.interface() + b"".join(made.packet(ns, frame) for ns, frame in FRAMES),
    made.section(">")
    + made.interface(">", resolution=0xA0)
    + b"".join(made.packet(ns, frame, ">") for ns, frame in FRAMES),
]
LENGTHS = [b"\xff" * 4, bytes(4), b"\xff\xff\xff\x7f", b"\0\0\0\x80", b"\x01\0\0\0"]
changes = st.lists(st.tuples(st.integers(0, 1 << 14), st.integers(0, 255)), max_size=12)


def whole(capture: bytes) -> None:
    """Every packet is of one kind, and every byte in an epoch."""
    found = Reduced(capture)
    counts = found.counts
    kinds = "roce", "other", "cut_short", "of_unknown_links", "of_unknown_opcode", "of_wrong_length"
    assert counts["packets"] == sum(counts[f"packets_{kind}"] for kind in kinds)
    assert found.cells["bytes"].sum() == found.flows["bytes"].sum()
    assert found.cells["packets"].sum() <= counts["packets_roce"]
    assert (found.cells["bytes"] >= 0).all()


def test_the_good_ones_are_whole() -> None:
    for capture in GOOD:
        whole(capture)
        assert Reduced(capture).flows["bytes"].sum() == 2 * 905


@settings(max_examples=300, deadline=None)
@given(which=st.sampled_from(GOOD), changed=changes, cut=st.integers(0, 1 << 13))
def test_changed_captures(which: bytes, changed: list[tuple[int, int]], cut: int) -> None:
    capture = bytearray(which)
    for at, value in changed:
        capture[at % len(capture)] = value
    with suppress(CaptureError):
        whole(bytes(capture[: len(capture) - cut] if cut < len(capture) else capture))


@settings(max_examples=150, deadline=None)
@given(magic=st.sampled_from([one[:28] for one in GOOD] + [b""]), rest=st.binary(max_size=600))
def test_any_bytes(magic: bytes, rest: bytes) -> None:
    with suppress(CaptureError):
        whole(magic + rest)


edits = st.lists(
    st.tuples(st.integers(0, 1 << 14), st.integers(0, 40), st.one_of(st.binary(max_size=40), st.sampled_from(LENGTHS))),
    max_size=8,
)


@settings(max_examples=300, deadline=None)
@given(which=st.sampled_from(GOOD), edited=edits)
def test_captures_with_pieces_taken_out_and_put_in(which: bytes, edited: list[tuple[int, int, bytes]]) -> None:
    """Lengths that cannot be, blocks that begin in the middle of others."""
    capture = bytearray(which)
    for at, n, put in edited:
        at %= len(capture) + 1
        capture[at : at + n] = put
    with suppress(CaptureError):
        whole(bytes(capture))
