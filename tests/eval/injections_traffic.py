"""Datagrams from one address to another at a given rate, to take a part of a link; run inside a node's namespace.

argv: own address, the other's, bytes per second. What arrives is received and forgotten: a closed port would answer.
"""

from __future__ import annotations

import socket
import sys
import time
from typing import Final

PORT: Final = 9
DATAGRAM: Final = bytes(8000)
PAUSE_SECONDS: Final = 0.01


def main(own: str, other: str, bytes_per_s: int) -> None:
    """Until it is killed."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.setblocking(False)
        door.bind((own, PORT))
        began_s, n_sent = time.monotonic(), 0
        while True:
            due = (time.monotonic() - began_s) * bytes_per_s
            while n_sent < due:
                n_sent += _exchange(door, other)
            time.sleep(PAUSE_SECONDS)


def _exchange(door: socket.socket, other: str) -> int:
    """Sends one and receives one, where that can be done at once; what it counted for."""
    for does in (lambda: door.sendto(DATAGRAM, (other, PORT)), lambda: door.recv(len(DATAGRAM))):
        try:
            does()
        except OSError:  # the queue is full, or nothing has come
            continue
    return len(DATAGRAM)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
