"""Datagrams from one NIC to another at a given rate, to take a part of a link; run inside a node's namespace.

argv: own NIC and address, the other's address, bytes per second. Tied to the NIC: by the address alone all would leave by the
node's first one. What arrives is received and forgotten: a closed port would answer.
"""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable
from typing import Final

PORT: Final = 9
DATAGRAM: Final = bytes(8000)
PAUSE_SECONDS: Final = 0.005
BUFFER_BYTES: Final = 1 << 20


def main(nic: str, own: str, other: str, bytes_per_s: int) -> None:
    """Until it is killed."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.setblocking(False)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, BUFFER_BYTES)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, nic.encode())
        door.bind((own, PORT))
        left, now_s = 0.0, time.monotonic()
        while True:
            before_s, now_s = now_s, time.monotonic()
            left = min(left + (now_s - before_s) * bytes_per_s, float(BUFFER_BYTES))
            while left > 0 and _does(lambda: door.sendto(DATAGRAM, (other, PORT))):
                left -= len(DATAGRAM)
            while _does(lambda: door.recv(len(DATAGRAM))):
                pass
            time.sleep(PAUSE_SECONDS)


def _does(call: Callable[[], object]) -> bool:
    """Whether it could be done at once."""
    try:
        call()
    except OSError:  # the queue is full, or nothing has come
        return False
    return True


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
