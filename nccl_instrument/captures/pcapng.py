"""pcapng: a file of blocks; sections with a byte order of their own, interfaces with a clock resolution of their own."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from nccl_instrument.captures.files import (
    BLOCK_BYTES_MAX,
    CAPTURED_BYTES_MAX,
    TIME_NS_MAX,
    Batch,
    CaptureError,
    Input,
    Ints,
    batch_of,
    fields,
)

SECTION: Final = 0x0A0D0D0A
INTERFACE, OLD_PACKET, SIMPLE_PACKET, PACKET = 1, 2, 3, 6
ORDER_MAGIC: Final = 0x1A2B3C4D
RESOLUTION_OPTION, OFFSET_OPTION = 9, 14
INTERFACES_MAX: Final = 4_096


@dataclass(frozen=True, slots=True)
class Interface:
    """ticks_per_s: of its clock; offset_s: added to its times."""

    link: int
    ticks_per_s: int = 1_000_000
    offset_s: int = 0


@dataclass(slots=True)
class Section:
    """What the blocks so far said of those to come."""

    order: str
    interfaces: list[Interface] = field(default_factory=list)


@dataclass(slots=True)
class Found:
    """The packet blocks of a chunk: (block's begin, interface) of each, until the section changes."""

    begins: list[int] = field(default_factory=list)
    interfaces: list[int] = field(default_factory=list)


def pcapng_batches(source: Input) -> Iterator[Batch]:
    """The packets of all sections."""
    section = Section("<")
    while True:
        found, is_changed = _walk(source, section)
        if found.begins:
            yield _batch(source, section, found)
        if is_changed:
            section = _new_section(source)
            continue
        source.fill()
        if source.is_over:
            source.end()
            return


def _walk(source: Input, section: Section) -> tuple[Found, bool]:
    """The packet blocks that are there whole, which are used then; and whether the next block begins a section."""
    found, held, begin = Found(), source.held, source.used
    header = struct.Struct(section.order + "II").unpack_from
    number = struct.Struct(section.order + "I").unpack_from
    while begin + 12 <= len(held):
        kind, length = header(held, begin)
        if kind == SECTION and source.section_at != source.at + begin:
            source.used = begin
            return found, True
        if length < 12 or length % 4 or length > BLOCK_BYTES_MAX:
            raise CaptureError(f"damaged at byte {source.at + begin:,}: a block of {length:,} bytes")
        if begin + length > len(held):
            break
        if number(held, begin + length - 4)[0] != length:
            raise CaptureError(f"damaged at byte {source.at + begin:,}: a block's two lengths differ")
        if kind in (PACKET, OLD_PACKET):
            _note_packet(source, section, found, begin, kind, length)
        elif kind == INTERFACE:
            _note_interface(source, section, begin, length)
        source.counts["packets_without_time"] += kind == SIMPLE_PACKET
        begin += length
    source.used = begin
    return found, False


def _new_section(source: Input) -> Section:
    """The section whose header is next; the header stays, to be passed as a block of it."""
    magic, at = source.held[source.used + 8 : source.used + 12], source.at + source.used
    if magic not in (struct.pack("<I", ORDER_MAGIC), struct.pack(">I", ORDER_MAGIC)):
        raise CaptureError(f"damaged at byte {at:,}: a section without a byte order")
    source.section_at = at
    return Section("<" if magic == struct.pack("<I", ORDER_MAGIC) else ">")


def _note_packet(source: Input, section: Section, found: Found, begin: int, kind: int, length: int) -> None:
    if length < 32:
        raise CaptureError(f"damaged at byte {source.at + begin:,}: a packet's block of {length} bytes")
    word = "I" if kind == PACKET else "H"
    (interface,) = struct.unpack_from(section.order + word, source.held, begin + 8)
    (captured,) = struct.unpack_from(section.order + "I", source.held, begin + 20)
    if captured > length - 32 or captured > CAPTURED_BYTES_MAX:
        raise CaptureError(
            f"damaged at byte {source.at + begin:,}: a packet of {captured:,} bytes in a block of {length:,}"
        )
    if interface >= len(section.interfaces):
        source.counts["packets_of_unknown_interfaces"] += 1
        return
    found.begins.append(begin)
    found.interfaces.append(interface)


def _note_interface(source: Input, section: Section, begin: int, length: int) -> None:
    if length < 20:
        raise CaptureError(f"damaged at byte {source.at + begin:,}: an interface's block of {length} bytes")
    if len(section.interfaces) >= INTERFACES_MAX:
        raise CaptureError(f"damaged at byte {source.at + begin:,}: more than {INTERFACES_MAX:,} interfaces")
    (link,) = struct.unpack_from(section.order + "H", source.held, begin + 8)
    options = _options(source.held[begin + 16 : begin + length - 4], section.order)
    resolution, offset = options.get(RESOLUTION_OPTION, b""), options.get(OFFSET_OPTION, b"")
    ticks = _ticks_per_s(resolution[0]) if resolution else 1_000_000
    offset_s = struct.unpack(section.order + "q", offset)[0] if len(offset) == 8 else 0
    if not ticks or abs(offset_s) > TIME_NS_MAX // 1_000_000_000:
        raise CaptureError(f"damaged at byte {source.at + begin:,}: an interface whose clock cannot be")
    section.interfaces.append(Interface(link, ticks, offset_s))


def _options(held: bytes, order: str) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    at = 0
    while at + 4 <= len(held):
        code, length = struct.unpack_from(order + "HH", held, at)
        if code == 0:
            break
        found.setdefault(code, held[at + 4 : at + 4 + length])
        at += 4 + (length + 3) // 4 * 4
    return found


def _ticks_per_s(resolution: int) -> int:
    """0 for a clock that is finer than its 64 bits can count."""
    exponent = resolution & 0x7F
    if resolution & 0x80:
        return 1 << exponent if exponent < 64 else 0
    return 10**exponent if exponent < 20 else 0


def _batch(source: Input, section: Section, found: Found) -> Batch:
    held, begin = np.frombuffer(source.held, np.uint8), np.array(found.begins, np.int64)
    interface = np.array(found.interfaces, np.int64)
    high, low, captured, original = (fields(held, begin + 12 + 4 * i, section.order + "u4") for i in range(4))
    links = np.array([one.link for one in section.interfaces], np.int64)
    ns = np.zeros(len(begin), np.int64)
    for which in np.unique(interface).tolist():
        mine = interface == which
        ns[mine] = _to_ns(high[mine], low[mine], section.interfaces[which])
    return batch_of(held, begin + 28, ns, captured, original, links[interface], source.counts)


def _to_ns(high: Ints, low: Ints, interface: Interface) -> Ints:
    """-1 for times that cannot be."""
    ticks = (high.astype(np.uint64) << np.uint64(32)) | low.astype(np.uint64)
    per_s = np.uint64(interface.ticks_per_s)
    seconds = (ticks // per_s).astype(np.float64) + interface.offset_s
    whole = np.where(np.abs(seconds) < TIME_NS_MAX / 1e9, seconds, -1.0).astype(np.int64)
    rest, n_per_s = ticks % per_s, interface.ticks_per_s
    if n_per_s <= 1_000_000_000 and 1_000_000_000 % n_per_s == 0:
        part = (rest * np.uint64(1_000_000_000 // n_per_s)).astype(np.int64)
    else:
        part = np.floor(rest.astype(np.float64) / n_per_s * 1e9).astype(np.int64)
    return np.where(whole >= 0, whole * 1_000_000_000 + part, -1)
