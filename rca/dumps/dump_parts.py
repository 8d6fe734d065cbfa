"""Parts of dumps as they arrived: the processes they make, and the ranks of which there is nothing to read, with the reason.

Whoever was asked and is not among the parts is silent, too: a rank that nobody heard of must not look like one that has
nothing to say. What is read has a limit, so that a look comes to its end.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from typing import Final

from nccl_instrument.dumps import Arrived, Silent
from rca.flight_recorder.analysis import UNREADABLE
from rca.flight_recorder.recording import Recording
from rca.stacks.process import Process
from rca.stacks.reading import BadStacks, read_stacks

RECORDINGS_BYTES_MAX: Final = 2**30
STACKS_BYTES_MAX: Final = 2**29
STACKS_SECONDS: Final = 10.0
"""By the clock; those of ten thousand ranks take about two."""
NOT_ANSWERED: Final = "its node has not answered"
NOT_SENT: Final = "its node answered without it"

Roster = Mapping[str, Mapping[int, str]]
"""Kind of dump → rank that was asked → its node."""


def unanswered(parts: Iterable[Arrived], roster: Roster) -> list[Silent]:
    """Those that were asked and are in none of the parts."""
    heard, nodes = set[tuple[str, int]](), set[tuple[str, str]]()
    for part in parts:
        heard.add((part.kind, part.rank))
        nodes.add((part.kind, part.node))
    return [
        Silent(rank, node, kind, NOT_SENT if (kind, node) in nodes else NOT_ANSWERED)
        for kind, those in roster.items()
        for rank, node in sorted(those.items())
        if (kind, rank) not in heard
    ]


def processes_of(parts: Iterable[Arrived]) -> list[tuple[int, Process]]:
    """(look, process) of parts that are stacks, in their order, as many as there is time to read."""
    left, end_at, found = STACKS_BYTES_MAX, time.monotonic() + STACKS_SECONDS, []
    for part in parts:
        left -= part.length
        why = f"not read: the stacks of this job have more than {STACKS_BYTES_MAX >> 20} MiB" if left < 0 else ""
        if not why and time.monotonic() > end_at:
            why = f"not read: the stacks of this job take longer than {STACKS_SECONDS:.0f} s"
        unread = Process(part.rank, part.pid, part.command, (), why)
        found.append((part.look, unread if why and not part.silent else process_of(part)))
    return found


def process_of(part: Arrived) -> Process:
    """The stacks of one part; silent, with the reason, where there are none that can be read."""
    if part.silent:
        return Process(part.rank, part.pid, part.command, (), part.silent)
    try:
        return read_stacks(part.raw, part.rank, part.pid, part.command)
    except BadStacks as error:
        return Process(part.rank, part.pid, part.command, (), f"py-spy's answer cannot be read: {error}")


def looks_of(processes: Iterable[tuple[int, Process]]) -> tuple[tuple[Process, ...], tuple[Process, ...]]:
    """Of (look, process): every process at its first look, and those looked at more than once at their last."""
    first: dict[tuple[int, int], Process] = {}
    last: dict[tuple[int, int], Process] = {}
    for _, one in sorted(processes, key=lambda pair: pair[0]):
        key = (one.rank, one.pid)
        if key in first:
            last[key] = one
        else:
            first[key] = one
    return tuple(first.values()), tuple(last.values())


def within(parts: Mapping[int, Arrived]) -> tuple[dict[int, Arrived], list[Silent]]:
    """(the recordings that are read, those for which there is no time): a look must come to its end."""
    left, read, silent = RECORDINGS_BYTES_MAX, dict[int, Arrived](), list[Silent]()
    for rank, part in sorted(parts.items()):
        left -= part.length
        if left >= 0:
            read[rank] = part
        else:
            why = f"not read: the recordings of this job have more than {RECORDINGS_BYTES_MAX >> 20} MiB"
            silent.append(Silent(rank, part.node, part.kind, why))
    return read, silent


def name_of(part: Arrived) -> str:
    """What a recording is called while it is read; ends with its rank."""
    return f"{part.node}_{part.rank}"


def refused_of(recording: Recording, parts: Mapping[int, Arrived]) -> list[Silent]:
    """Ranks that sent a recording which cannot be read: nothing else is known of them."""
    whys = {rank: recording.refused.get(name_of(part), "") for rank, part in parts.items()}
    return [
        Silent(rank, parts[rank].node, parts[rank].kind, f"{UNREADABLE}: {why}") for rank, why in whys.items() if why
    ]
