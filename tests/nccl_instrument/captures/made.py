"""Captures made byte by byte for these tests, from the formats' layouts."""

from __future__ import annotations

import ipaddress
import struct
from collections.abc import Iterable

WRITE_FIRST, WRITE_MIDDLE, WRITE_LAST, WRITE_ONLY, READ, READ_ANSWER, ACK, CNP = 6, 7, 8, 10, 12, 14, 17, 0x81
EXTENSION = {WRITE_FIRST: 16, WRITE_ONLY: 16, READ: 16, ACK: 4, CNP: 16}
A, B, C = "10.0.0.1", "10.0.0.2", "10.0.0.3"
A6, B6 = "fd00::1", "fd00::2"


def roce(
    n_bytes: int = 1024, *, source: str = A, destination: str = B, qpn: int = 7, opcode: int = WRITE_MIDDLE, psn: int = 0,
    port: int = 4791, marked: bool = False,
) -> bytes:  # fmt: skip
    """An IP packet with so many bytes of payload."""
    pad = -n_bytes % 4
    bth = struct.pack(">BBHII", opcode, pad << 4, 0xFFFF, qpn, psn)
    rest = bth + bytes(EXTENSION.get(opcode, 0) + n_bytes + pad + 4)
    udp = struct.pack(">HHHH", 50_000, port, 8 + len(rest), 0) + rest
    ends = [ipaddress.ip_address(one).packed for one in (source, destination)]
    traffic_class = 3 if marked else 2
    if len(ends[0]) == 16:
        return struct.pack(">IHBB", 6 << 28 | traffic_class << 20, len(udp), 17, 64) + b"".join(ends) + udp
    head = struct.pack(">BBHHHBBH", 0x45, traffic_class, 20 + len(udp), 0, 0x4000, 64, 17, 0)
    return head + b"".join(ends) + udp


def ethernet(ip: bytes, *, tags: int = 0) -> bytes:
    kind = 0x86DD if ip[0] >> 4 == 6 else 0x0800
    return bytes(12) + struct.pack(">HH", 0x8100, 5) * tags + struct.pack(">H", kind) + ip


def cooked(ip: bytes) -> bytes:
    return bytes(14) + struct.pack(">H", 0x86DD if ip[0] >> 4 == 6 else 0x0800) + ip


def cooked2(ip: bytes) -> bytes:
    return struct.pack(">H", 0x86DD if ip[0] >> 4 == 6 else 0x0800) + bytes(18) + ip


def pcap(
    frames: Iterable[tuple[int, bytes]], *, order: str = "<", is_ns: bool = True, link: int = 1, snap: int = 65_535
) -> bytes:
    """frames: (time in ns, frame)."""
    found = struct.pack(order + "IHHiIII", 0xA1B23C4D if is_ns else 0xA1B2C3D4, 2, 4, 0, 0, snap, link)
    for ns, frame in frames:
        ticks = ns % 10**9 // (1 if is_ns else 1000)
        found += struct.pack(order + "IIII", ns // 10**9, ticks, min(len(frame), snap), len(frame)) + frame[:snap]
    return found


def block(kind: int, body: bytes, order: str = "<") -> bytes:
    body += bytes(-len(body) % 4)
    length = struct.pack(order + "I", len(body) + 12)
    return struct.pack(order + "I", kind) + length + body + length


def section(order: str = "<") -> bytes:
    return block(0x0A0D0D0A, struct.pack(order + "IHHq", 0x1A2B3C4D, 1, 0, -1), order)


def interface(order: str = "<", *, link: int = 1, resolution: int | None = 9, offset_s: int = 0) -> bytes:
    options = b"" if resolution is None else struct.pack(order + "HHBxxx", 9, 1, resolution)
    options += struct.pack(order + "HHq", 14, 8, offset_s) if offset_s else b""
    return block(1, struct.pack(order + "HHI", link, 0, 0) + options, order)


def packet(ticks: int, frame: bytes, order: str = "<", *, at: int = 0, snap: int = 65_535) -> bytes:
    head = struct.pack(order + "IIIII", at, ticks >> 32, ticks & 0xFFFFFFFF, min(len(frame), snap), len(frame))
    return block(6, head + frame[:snap], order)
