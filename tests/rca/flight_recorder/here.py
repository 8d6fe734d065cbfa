"""A dump read in this process, within as much more memory as the reading process may have: an opcode of five bytes can ask for
64 GiB, and would have the kernel end the tests."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rca.flight_recorder.columns import decode_words, encode_columns
from rca.flight_recorder.reader import MEMORY_BYTES
from rca.flight_recorder.reading import BadDump, read_columns
from rca.flight_recorder.recording import Recording, recording_of


def read_dump(raw: bytes, rank: int) -> Recording:
    """The recording of `rank`, having gone through what is sent between the processes. Raises BadDump."""
    with _limited_memory():
        words, numbers = encode_columns(read_columns(raw, rank))
        return recording_of(decode_words(words), numbers)


@contextmanager
def _limited_memory() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + MEMORY_BYTES, before[1]))
    try:
        yield
    except MemoryError as error:
        raise BadDump("it asks for more memory than reading a dump may take") from error
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
