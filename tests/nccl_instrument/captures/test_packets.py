"""What of a packet counts, and that what cannot be read is counted by its reason."""

from __future__ import annotations

import struct

import pytest

from tests.nccl_instrument.captures import made
from tests.nccl_instrument.captures.reduced import Reduced

HEADERS = {  # operation's headers after the base header, as the InfiniBand specification has them
    0x00: 0, 0x03: 4, 0x05: 4, 0x06: 16, 0x09: 4, 0x0A: 16, 0x0B: 20, 0x0C: 16, 0x0D: 4, 0x0E: 0, 0x10: 4, 0x11: 4, 0x12: 12,
    0x13: 28, 0x16: 4, 0x26: 16, 0x64: 8, 0x65: 12, 0x81: 16, 0xA0: 4, 0xAA: 20, 0xAE: 0,
}  # fmt: skip


@pytest.mark.parametrize("opcode", HEADERS)
def test_headers_of_each_operation_are_no_payload(opcode: int) -> None:
    ip = bytearray(made.roce(200 - made.EXTENSION.get(opcode, 0), opcode=opcode))
    found = Reduced(made.pcap([(0, made.ethernet(bytes(ip)))]))
    assert found.one["bytes"] == 200 - HEADERS[opcode]


@pytest.mark.parametrize("opcode", [0x1F, 0x40, 0x60, 0xC0, 0xFF])
def test_an_opcode_that_roce_has_not_got(opcode: int) -> None:
    counts = Reduced(made.pcap([(0, made.ethernet(made.roce(opcode=opcode)))])).counts
    assert (counts["packets_of_unknown_opcode"], counts["packets_roce"]) == (1, 0)


def test_padding_is_no_payload() -> None:
    assert Reduced(made.pcap([(0, made.ethernet(made.roce(1021)))])).one["bytes"] == 1021


def test_options_of_the_ip_header_are_passed_over() -> None:
    ip = bytearray(made.roce(64))
    ip[0], ip[2:4] = 0x47, struct.pack(">H", len(ip) + 8)
    frame = made.ethernet(bytes(ip[:20]) + bytes(8) + bytes(ip[20:]))
    assert Reduced(made.pcap([(0, frame)])).one["bytes"] == 64


def test_other_traffic_is_counted_and_nothing_else() -> None:
    fragment = bytearray(made.roce())
    fragment[6:8] = struct.pack(">H", 5)
    tcp = bytearray(made.roce())
    tcp[9] = 6
    frames = [made.roce(port=53), bytes(fragment), bytes(tcp)]
    arp = bytes(12) + b"\x08\x06" + bytes(46)
    found = Reduced(made.pcap([(0, made.ethernet(one)) for one in frames] + [(0, arp)]))
    assert (found.counts["packets_other"], found.counts["packets"], len(found.flows)) == (4, 4, 0)


@pytest.mark.parametrize("snap", range(54))
def test_a_packet_captured_too_short_is_counted_as_that(snap: int) -> None:
    counts = Reduced(made.pcap([(0, made.ethernet(made.roce()))], snap=snap)).counts
    assert (counts["packets_cut_short"], counts["packets_other"], counts["packets_roce"]) == (1, 0, 0)


def test_a_length_that_the_packet_never_had_is_refused() -> None:
    long, short = bytearray(made.roce(8)), bytearray(made.roce(8))
    long[2:4], short[2:4] = b"\xff\xff", struct.pack(">H", 30)
    counts = Reduced(made.pcap([(0, made.ethernet(bytes(one))) for one in (long, short)])).counts
    assert (counts["packets_of_wrong_length"], counts["packets_roce"]) == (2, 0)
