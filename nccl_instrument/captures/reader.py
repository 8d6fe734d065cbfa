"""Which of the formats a capture is in, by its first bytes."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from nccl_instrument.captures.files import Batch, Input, nothing_in, pcap_batches
from nccl_instrument.captures.pcapng import SECTION, pcapng_batches

MICROSECONDS, NANOSECONDS = 0xA1B2C3D4, 0xA1B23C4D
PCAP: Final = {
    struct.pack(order + "I", magic): (order, ns)
    for order in "<>"
    for magic, ns in ((MICROSECONDS, 1000), (NANOSECONDS, 1))
}


def batches(source: Input) -> Iterator[Batch]:
    """The packets of a capture, in the file's order. CaptureError when it is none, or damaged."""
    source.need(4)
    magic = source.held[:4]
    if magic == struct.pack("<I", SECTION):  # reads the same both ways
        yield from pcapng_batches(source)
    elif magic in PCAP:
        yield from pcap_batches(source, *PCAP[magic])
    else:
        raise nothing_in(magic)
