"""The raw epochs that were fetched of a group's ranks (dumps of kind `epochs`): which request, of whom, and what is in it.

A request holds up to a megabyte of each rank, so of a group a few ranks are read: the one that is asked for, its neighbours in
the communicator, whose bytes follow its own, and others evenly.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from console.network.read import Place
from ingest.door.dumps import DumpPart, parts_of
from ingest.models import Attempt, DumpRequest, Node
from nccl_instrument.dumps import EPOCHS, BadDump
from nccl_instrument.epochs import BadEpochs, Epochs, read_epochs

RANKS_MAX: Final = 8
UNANSWERED: Final = "its node has not answered"
NOT_IN_IT: Final = "it sent nothing in this group in the iterations that were kept"


@dataclass(frozen=True, slots=True)
class Kept:
    """A rank's epochs. offset_ns: its node's clock minus the server's. place: in the communicator."""

    rank: int
    place: int
    node: str
    epochs: Epochs
    offset_ns: int


@dataclass(frozen=True, slots=True)
class Fetched:
    """request: None while none was answered. silent: (rank, why) of those that were looked for and have nothing."""

    request: DumpRequest | None
    ranks: tuple[Kept, ...]
    silent: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Iteration:
    """Of all ranks that have it: from the group's first byte in it to its last, on the server's clock. every: one in so many
    was measured at that time. is_whole: nothing of it was lost on any of them.
    """

    number: int
    begins_ns: int
    ends_ns: int
    is_whole: bool
    every: int
    n_ranks: int


def ranks_looked_for(members: Sequence[Place], rank: int, n_max: int = RANKS_MAX) -> list[int]:
    """The rank, those beside it in the communicator, then others evenly. members: by place."""
    ranks = [one.rank for one in members]
    if rank not in ranks:
        return ranks[:n_max]
    at = ranks.index(rank)
    around = [ranks[(at + step) % len(ranks)] for step in (0, 1, -1)]
    every = ranks[:: max(-(-len(ranks) // n_max), 1)]
    return list(dict.fromkeys([*around, *every, *(ranks if len(ranks) <= n_max else ())]))[:n_max]


def fetch(
    attempt: Attempt,
    requests: Iterable[DumpRequest],
    comm_id: int,
    members: Sequence[Place],
    ranks: Sequence[int],
) -> Fetched:
    """What the newest of these requests (newest first) that brought any epochs of these ranks says of the group."""
    asked = [one for one in requests if EPOCHS in one.kinds]
    for request in asked:
        parts = parts_of([request.pk], kinds=[EPOCHS], ranks=ranks, looks=[1])
        if any(part.length for part in parts):
            return _fetched(attempt, request, comm_id, members, ranks, parts)
    silent = _silent(asked[0], ranks) if asked else ()
    return Fetched(None, (), silent)


def _silent(request: DumpRequest, ranks: Sequence[int]) -> tuple[tuple[int, str], ...]:
    whys = {part.rank: part.silent for part in parts_of([request.pk], kinds=[EPOCHS], ranks=ranks, looks=[1])}
    return tuple((rank, whys.get(rank) or UNANSWERED) for rank in ranks)


def _fetched(
    attempt: Attempt,
    request: DumpRequest,
    comm_id: int,
    members: Sequence[Place],
    ranks: Sequence[int],
    parts: Sequence[DumpPart],
) -> Fetched:
    offsets = dict(Node.objects.filter(attempt=attempt).values_list("name", "clock_offset_ns"))
    places = {one.rank: one.place for one in members}
    found: dict[int, Kept] = {}
    silent = dict.fromkeys(ranks, UNANSWERED)
    for part in parts:
        epochs, why = _read(part, comm_id)
        if epochs is None:
            silent[part.rank] = why
        else:
            silent.pop(part.rank, None)
            offset_ns = int(offsets.get(part.node) or 0)
            found[part.rank] = Kept(part.rank, places[part.rank], part.node, epochs, offset_ns)
    kept = tuple(found[rank] for rank in sorted(found, key=places.__getitem__))
    return Fetched(request, kept, tuple((rank, why) for rank, why in silent.items() if rank not in found))


def _read(part: DumpPart, comm_id: int) -> tuple[Epochs | None, str]:
    """The epochs, or why there are none."""
    if not part.length:
        return None, part.silent or UNANSWERED
    try:
        epochs = read_epochs(part.raw)
    except (BadEpochs, BadDump) as error:
        return None, str(error)
    if not (epochs.flows["comm_id"] == np.uint64(comm_id)).any():
        return None, NOT_IN_IT
    return epochs, ""


def iterations_of(kept: Sequence[Kept], comm_id: int) -> list[Iteration]:
    """Those in which the group sent something, oldest first."""
    found: dict[int, Iteration] = {}
    for one in kept:
        for number, (begins, ends, row) in _spans(one, comm_id).items():
            known = found.get(number, Iteration(number, begins, ends, True, 1, 0))
            found[number] = Iteration(
                number, min(known.begins_ns, begins), max(known.ends_ns, ends), known.is_whole and bool(row["is_whole"]),
                max(known.every, int(row["every"])), known.n_ranks + 1,
            )  # fmt: skip
    return sorted(found.values(), key=lambda one: one.begins_ns)


def enqueued_in(kept: Kept, number: int) -> tuple[int, int]:
    """Between when and when the rank enqueued the ops of the iteration, on the server's clock; (0, 0) without it."""
    rows = kept.epochs.iterations[kept.epochs.iterations["number"] == number]
    shift_ns = kept.epochs.wall_ns - kept.epochs.mono_ns - kept.offset_ns
    return (int(rows["begins_ns"][-1]) + shift_ns, int(rows["ends_ns"][-1]) + shift_ns) if len(rows) else (0, 0)


def _spans(one: Kept, comm_id: int) -> dict[int, tuple[int, int, np.void]]:
    """Number → the group's first byte and last byte, and its row of iterations."""
    epochs, found = one.epochs, {}
    of = epochs.flows["iteration"][epochs.cells["flow"]]
    mine = epochs.flows["comm_id"][epochs.cells["flow"]] == np.uint64(comm_id)
    begins = epochs.starts_ns() - one.offset_ns
    for at in np.unique(of[mine]).tolist():
        row, here = epochs.iterations[at], begins[mine & (of == at)]
        found[int(row["number"])] = int(here.min()), int(here.max()) + int(row["epoch_ns"]), row
    return found
