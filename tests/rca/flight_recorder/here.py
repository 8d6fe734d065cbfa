"""A dump read in this process, without the limits of the reading one."""

from __future__ import annotations

from rca.flight_recorder.columns import decode_words, encode_columns
from rca.flight_recorder.reading import read_columns
from rca.flight_recorder.recording import Recording, recording_of


def read_dump(raw: bytes, rank: int) -> Recording:
    """The recording of `rank`, having gone through what is sent between the processes. Raises BadDump."""
    words, numbers = encode_columns(read_columns(raw, rank))
    return recording_of(decode_words(words), numbers)
