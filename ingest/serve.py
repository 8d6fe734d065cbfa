"""One ingest process on its port: `python -m ingest.serve --port 8001`.

Several processes may share the port (SO_REUSEPORT): the kernel then spreads new connections over them evenly, whatever
each is doing. Processes that accept from one common socket take connections in bursts instead, and agents keep theirs
for hours, so one process can end up with nearly all of them. Each process holds nothing the others need: what must be
decided once (is this batch new, which attempt is it) is decided by the database.
"""

from __future__ import annotations

import argparse
import gc
import socket
from typing import Final

import uvicorn

from ingest.door.gate import Gate, proxy_options

APPLICATION: Final = "ingest.asgi:application"
BACKLOG: Final = 2048
FINISH_SECONDS: Final = 3
GARBAGE_AFTER: Final = (50_000, 20, 20)
"""Objects made until rubbish is looked for. A batch makes hundreds, none of them in a circle: at Python's own 700, looking
took 6 % of the processor."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m ingest.serve", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="may be shared with other ingest processes")
    chosen = parser.parse_args()
    gc.set_threshold(*GARBAGE_AFTER)
    config = uvicorn.Config(
        APPLICATION, http=Gate, access_log=False, log_level="warning", backlog=BACKLOG, ws_max_size=65536,
        timeout_graceful_shutdown=FINISH_SECONDS, server_header=False, date_header=False, **proxy_options(),
    )  # fmt: skip
    uvicorn.Server(config).run([listen(chosen.host, chosen.port)])


def listen(host: str, port: int) -> socket.socket:
    """A socket on (host, port), beside any others that asked to share it. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listening.bind((host, port))
    return listening


if __name__ == "__main__":
    main()
