"""A packet capture (pcap or pcapng) as batches of packets' heads, a chunk of the file at a time.

Nothing in the file is trusted: lengths have limits, a record that cannot be is an error with its place, and a file that
ends inside a record gives all before it and counts the rest. Memory is a chunk and the heads of its packets, however
large the file.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Final

import numpy as np
import numpy.typing as npt

CHUNK_BYTES: Final = 4 * 2**20
HEAD_BYTES: Final = 128  # 20 of Linux cooked v2, 12 of three VLAN tags, 60 of IPv4, 8 of UDP, 16 of RoCE: 116
CAPTURED_BYTES_MAX: Final = 262_144  # no tool captures longer packets
BLOCK_BYTES_MAX: Final = 2 * 2**20
TIME_NS_MAX: Final = 2**62

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


class CaptureError(ValueError):
    """The file is no capture that can be read; the message is one sentence and says where."""


@dataclass(frozen=True, slots=True)
class Batch:
    """n packets. heads: (n, HEAD_BYTES), zero beyond what was captured. captured, original: bytes of each; link: its type."""

    ns: Ints
    captured: Ints
    original: Ints
    link: Ints
    heads: Bytes


@dataclass(slots=True)
class Input:
    """A stream with what waits to be parsed: `held` begins at byte `at` of the file, its first `used` bytes are done with.
    counts: what was refused, by reason. section_at: of pcapng, where the section began that is being read.
    """

    stream: BinaryIO
    counts: Counter[str] = field(default_factory=Counter)
    held: bytes = b""
    at: int = 0
    used: int = 0
    section_at: int = -1
    is_over: bool = False

    def fill(self) -> None:
        """Hold another chunk, or learn that there is none."""
        more = self.stream.read(CHUNK_BYTES)
        self.is_over = not more
        self.held = self.held[self.used :] + more
        self.at, self.used = self.at + self.used, 0

    def need(self, n_bytes: int) -> bool:
        """Hold at least so many bytes; False when the file has not got them."""
        while len(self.held) - self.used < n_bytes and not self.is_over:
            self.fill()
        return len(self.held) - self.used >= n_bytes

    def end(self) -> None:
        """The file is over: what is left is a record it does not contain whole."""
        self.counts["packets_cut_off"] += self.used < len(self.held)


def fields(held: Bytes, at: Ints, dtype: str) -> Ints:
    """The number of this type at each of these places."""
    size = np.dtype(dtype).itemsize
    raw = np.ascontiguousarray(held[at[:, None] + np.arange(size)])
    found: Ints = raw.view(dtype).ravel().astype(np.int64)
    return found


def heads_of(held: Bytes, at: Ints, captured: Ints) -> Bytes:
    """(n, HEAD_BYTES): each packet's first bytes, zero beyond what was captured."""
    padded = np.concatenate([held, np.zeros(HEAD_BYTES, np.uint8)])
    found: Bytes = np.lib.stride_tricks.sliding_window_view(padded, HEAD_BYTES)[at]
    found[np.arange(HEAD_BYTES) >= captured[:, None]] = 0
    return found


def batch_of(
    held: Bytes, at: Ints, ns: Ints, captured: Ints, original: Ints, link: Ints, counts: Counter[str]
) -> Batch:
    """The packets whose data begin at these places, without those whose time cannot be."""
    kept = (ns >= 0) & (ns < TIME_NS_MAX)
    counts["packets_without_time"] += int(np.count_nonzero(~kept))
    at, captured = at[kept], captured[kept]
    return Batch(ns[kept], captured, original[kept], link[kept], heads_of(held, at, captured))


def nothing_in(magic: bytes) -> CaptureError:
    """What is wrong with a file that begins like this."""
    if not magic:
        return CaptureError("the file is empty")
    if magic[:2] == b"\x1f\x8b" or magic == b"\x28\xb5\x2f\xfd":
        return CaptureError("the file is compressed: unpack it, or pipe it in and name - as the file")
    return CaptureError("the file is neither pcap nor pcapng")


def pcap_batches(source: Input, order: str, ns_per_tick: int) -> Iterator[Batch]:
    """The packets of a classic capture file."""
    if not source.need(24):
        raise CaptureError("the file ends inside its header")
    link = struct.unpack_from(order + "I", source.held, 20)[0] & 0xFFFF
    source.used = 24
    while True:
        if found := _whole_pcap_records(source, order):
            held, begin = np.frombuffer(source.held, np.uint8), np.array(found, np.int64)
            seconds, ticks, captured, original = (fields(held, begin + 4 * i, order + "u4") for i in range(4))
            ns = seconds * 1_000_000_000 + ticks * ns_per_tick
            links = np.full(len(found), link, np.int64)
            yield batch_of(held, begin + 16, ns, captured, original, links, source.counts)
        source.fill()
        if source.is_over:
            source.end()
            return


def _whole_pcap_records(source: Input, order: str) -> list[int]:
    """Where in what is held each record begins that is there whole; they are used then."""
    length_at = struct.Struct(order + "I").unpack_from
    found: list[int] = []
    held, begin, end = source.held, source.used, len(source.held)
    while begin + 16 <= end:
        (captured,) = length_at(held, begin + 8)
        if captured > CAPTURED_BYTES_MAX:
            raise CaptureError(f"damaged at byte {source.at + begin:,}: a packet of {captured:,} bytes")
        if begin + 16 + captured > end:
            break
        found.append(begin)
        begin += 16 + captured
    source.used = begin
    return found
