"""Both formats, both byte orders, every clock and link type that matters: the same packets come out."""

from __future__ import annotations

import struct

import pytest

from nccl_instrument.captures import files
from nccl_instrument.captures.files import CaptureError
from tests.nccl_instrument.captures import made
from tests.nccl_instrument.captures.reduced import US, Reduced

WALL_NS = 1_700_000_000 * 10**9
EPOCH = WALL_NS // (32 * US)
FRAMES = [
    (WALL_NS + at, made.ethernet(made.roce(n)))
    for at, n in ((0, 1024), (31 * US, 100), (33 * US, 7), (9_000 * US, 4096))
]
SAME = {(7, EPOCH): 1124, (7, EPOCH + 1): 7, (7, EPOCH + 281): 4096}


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("is_ns", [True, False])
def test_classic_captures(order: str, is_ns: bool) -> None:
    assert Reduced(made.pcap(FRAMES, order=order, is_ns=is_ns)).by_epoch == SAME


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize(
    "resolution, per_s", [(None, 10**6), (6, 10**6), (9, 10**9), (12, 10**12), (7, 10**7), (0x80 | 30, 2**30)]
)
def test_pcapng_with_any_clock(order: str, resolution: int | None, per_s: int) -> None:
    offset_s = WALL_NS // 10**9 if per_s > 10**9 else 0  # a picosecond clock's 64 bits are over after seven months
    found = made.section(order) + made.interface(order, resolution=resolution, offset_s=offset_s)
    for ns, frame in FRAMES:
        found += made.packet((ns - offset_s * 10**9) * per_s // 10**9 + (per_s == 2**30), frame, order)
    assert Reduced(found).by_epoch == SAME


def test_an_interface_may_count_from_another_second() -> None:
    found = made.section() + made.interface(offset_s=1_700_000_000)
    found += b"".join(made.packet(ns - WALL_NS, frame) for ns, frame in FRAMES)
    assert Reduced(found).by_epoch == SAME


def test_sections_of_either_order_and_interfaces_of_their_own_in_one_file() -> None:
    found = b""
    for order, (ns, frame) in zip("<><>", FRAMES, strict=True):
        found += made.section(order) + made.interface(order, link=101) + made.interface(order)
        found += made.packet(ns, frame[14:], order) if ns % 2 else made.packet(ns, frame, order, at=1)
    assert Reduced(found).by_epoch == SAME


def test_blocks_of_other_kinds_are_passed_over_and_old_packet_blocks_read() -> None:
    ns, frame = FRAMES[0]
    old = struct.pack("<HHIIII", 0, 0, ns >> 32, ns & 0xFFFFFFFF, len(frame), len(frame)) + frame
    found = (
        made.section() + made.block(4, b"names") + made.interface() + made.block(2, old) + made.block(0xBAD, bytes(64))
    )
    assert Reduced(found).by_epoch == {(7, EPOCH): 1024}


@pytest.mark.parametrize("source, destination", [(made.A, made.B), (made.A6, made.B6)])
@pytest.mark.parametrize(
    "link, frame",
    [
        (1, made.ethernet), (1, lambda ip: made.ethernet(ip, tags=1)), (1, lambda ip: made.ethernet(ip, tags=2)),
        (113, made.cooked), (276, made.cooked2), (101, bytes),
    ],
)  # fmt: skip
def test_link_types(link: int, frame, source: str, destination: str) -> None:  # type: ignore[no-untyped-def]
    ip = made.roce(1000, source=source, destination=destination, qpn=0xABCDEF, marked=True)
    for snap in (65_535, 90):
        one = Reduced(made.pcap([(WALL_NS, frame(ip))], link=link, snap=snap)).one
        assert (one["source"].decode(), one["destination"].decode()) == (source, destination)
        assert (one["qpn"], one["bytes"], one["marked"]) == (0xABCDEF, 1000, 1)


def test_records_that_straddle_chunks_are_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    ng = made.section() + made.interface() + b"".join(made.packet(ns, frame) for ns, frame in FRAMES)
    for chunk in (1, 17, 1000):
        monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
        assert Reduced(made.pcap(FRAMES)).by_epoch == SAME
        assert Reduced(ng).by_epoch == SAME


@pytest.mark.parametrize("lost", [1, 15, 16, 500])
def test_a_file_that_ends_inside_a_record_gives_what_is_before_it_and_counts_the_rest(lost: int) -> None:
    for capture in (
        made.pcap(FRAMES),
        made.section() + made.interface() + b"".join(made.packet(ns, frame) for ns, frame in FRAMES),
    ):
        found = Reduced(capture[:-lost])
        assert found.by_epoch == {key: n for key, n in SAME.items() if n != 4096}
        assert found.counts["packets_cut_off"] == 1


@pytest.mark.parametrize(
    "capture, words",
    [
        (b"", "is empty"),
        (b"GIF89a, no capture", "neither pcap nor pcapng"),
        (b"\x1f\x8b\x08\x00 packed", "compressed"),
        (made.pcap([])[:20], "inside its header"),
        (
            made.pcap([]) + struct.pack("<IIII", 1, 1, 2**31, 1) + bytes(99),
            "at byte 24: a packet of 2,147,483,648 bytes",
        ),
        (made.section() + struct.pack("<II", 6, 2**31) + bytes(8), "at byte 28: a block of 2,147,483,648 bytes"),
        (made.section() + struct.pack("<II", 6, 0) + bytes(8), "a block of 0 bytes"),
        (made.section() + struct.pack("<IIII", 9, 16, 0, 20), "two lengths differ"),
        (made.section() + made.interface(resolution=0x7F), "whose clock cannot be"),
        (made.section() + made.interface(offset_s=2**62), "whose clock cannot be"),
        (made.section() + made.interface() * 4097, "more than 4,096 interfaces"),
        (made.section() + made.block(6, bytes(4)), "a packet's block of 16 bytes"),
        (made.section() + made.block(6, struct.pack("<IIIII", 0, 0, 0, 500, 500)), "500 bytes in a block of 32"),
        (made.section() + made.block(1, b""), "an interface's block"),
        (made.block(0x0A0D0D0A, bytes(16)), "without a byte order"),
    ],
)
def test_what_cannot_be_is_an_error_that_says_where(capture: bytes, words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        Reduced(capture)


def test_packets_of_no_interface_without_time_or_of_strange_links_are_counted() -> None:
    frame = FRAMES[0][1]
    found = made.section() + made.interface(link=147) + made.packet(WALL_NS, frame) + made.packet(WALL_NS, frame, at=3)
    found += made.block(3, struct.pack("<I", len(frame)) + frame) + made.packet(2**63, frame)
    counts = Reduced(found).counts
    assert counts["packets_of_unknown_interfaces"] == counts["packets_of_unknown_links"] == 1
    assert (counts["packets_without_time"], counts["packets_roce"]) == (2, 0)
