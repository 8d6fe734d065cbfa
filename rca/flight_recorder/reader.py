"""The process that reads dumps for sandbox.py: within limits of memory and processor time, and without numpy.

Dumps come on standard input and answers go to standard output, as frames: two byte strings, each with its length before it.
"""

from __future__ import annotations

import gc
import math
import resource
import struct
import sys
from typing import IO, Final

from rca.flight_recorder.columns import encode_columns, refusal
from rca.flight_recorder.reading import BadDump, rank_in_name, read_columns

MEMORY_BYTES: Final = 3 * 2**30
_HEAD: Final = struct.Struct("<II")


def write_frame(pipe: IO[bytes], first: bytes, second: bytes) -> None:
    pipe.write(_HEAD.pack(len(first), len(second)))
    pipe.write(first)
    pipe.write(second)
    pipe.flush()


def read_frame(pipe: IO[bytes]) -> tuple[bytes, bytes] | None:
    """None at the end, also in the middle of a frame."""
    head = pipe.read(_HEAD.size)
    if len(head) < _HEAD.size:
        return None
    first, second = _HEAD.unpack(head)
    parts = pipe.read(first), pipe.read(second)
    return parts if (len(parts[0]), len(parts[1])) == (first, second) else None


def main(cpu_seconds: int) -> None:
    """Read dumps from standard input, answer each on standard output."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.disable()  # a dump is millions of small objects and no cycle
    with open(sys.stdin.fileno(), "rb", buffering=2**20) as asked:
        while (framed := read_frame(asked)) is not None:
            name = framed[0].decode()
            _renew_time(cpu_seconds)
            try:
                answer = read_columns(framed[1], rank_in_name(name))
            except BadDump as error:
                answer = refusal(name, str(error))
            except MemoryError:
                answer = refusal(name, "it asks for more memory than reading a dump may take")
            except Exception as error:  # hostile bytes raise anything, and the next dump is not to blame
                answer = refusal(name, f"it cannot be read ({type(error).__name__})")
            write_frame(sys.stdout.buffer, *encode_columns(answer))


def _renew_time(cpu_seconds: int) -> None:
    """Processor time for one more dump, as far as whoever started this may give it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    wanted = math.ceil(used.ru_utime + used.ru_stime) + cpu_seconds
    most = resource.getrlimit(resource.RLIMIT_CPU)[1]
    resource.setrlimit(resource.RLIMIT_CPU, (wanted if most == resource.RLIM_INFINITY else min(wanted, most), most))


if __name__ == "__main__":
    main(int(sys.argv[1]))
