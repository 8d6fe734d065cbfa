"""Members of a group that entered different things as their n-th op: another function, other sizes, another type.

The majority is taken to be right; without one, those who never did so before deviate, else all sides are tied. Sizes are
compared only where every member has to say the same: a scatter's root has other sizes than the rest, and uneven
all-to-alls are nobody's mistake.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from rca.flight_recorder.columns import NOWHERE
from rca.flight_recorder.habit import is_unusual
from rca.flight_recorder.progress import Stop
from rca.flight_recorder.recording import Recording

ALIKE: Final = (
    "all_reduce", "allreduce", "broadcast", "all_gather", "allgather", "_all_gather_base", "_allgather_base",
    "reduce_scatter", "_reduce_scatter_base", "reduce_scatter_tensor_coalesced", "all_gather_into_tensor_coalesced",
    "allreduce_coalesced", "barrier", "all_reduce_barrier",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Disagreement:
    """What the members say of one op. said: rank → what it entered. deviating: () when no side has a majority."""

    stop: Stop
    said: dict[int, str]
    deviating: tuple[int, ...]

    @property
    def sides(self) -> list[str]:
        return [side for side, _ in Counter(self.said.values()).most_common()]


def disagreement_in(recording: Recording, stop: Stop) -> Disagreement | None:
    """How those who wait in `stop` differ in what they entered; None when they agree."""
    if stop.is_p2p:
        return None
    if len(stop.waiting) < 2:
        return _alone(recording, stop)
    names = {rank: _name(recording, row) for rank, row in zip(stop.waiting, stop.rows, strict=True)}
    said = names
    if len(set(names.values())) == 1 and next(iter(names.values())) in ALIKE:
        said = {
            rank: f"{names[rank]} {_shape(recording, row)}" for rank, row in zip(stop.waiting, stop.rows, strict=True)
        }
    counts = Counter(said.values()).most_common()
    if len(counts) == 1:
        return None
    has_majority = 2 * counts[0][1] > len(said)
    deviating = tuple(rank for rank, one in said.items() if one != counts[0][0]) if has_majority else ()
    if not has_majority:  # whoever broke its own habit, if the others did not
        unusual = {rank for rank, row in zip(stop.waiting, stop.rows, strict=True) if is_unusual(recording, row)}
        is_one_side = unusual and {said[rank] for rank in unusual}.isdisjoint(
            {said[r] for r in said if r not in unusual}
        )
        deviating = tuple(sorted(unusual)) if is_one_side and len(unusual) < len(said) else ()
    return Disagreement(stop, said, deviating)


def _alone(recording: Recording, stop: Stop) -> Disagreement | None:
    """Of an op in which only one program ended and the others left nothing: whether another op or size was due there."""
    rank, row = stop.waiting[0], stop.rows[0]
    if rank not in recording.ended or not is_unusual(recording, row):
        return None
    return Disagreement(stop, {rank: f"{_name(recording, row)} {_shape(recording, row)}"}, (rank,))


def _name(recording: Recording, row: int) -> str:
    """The function, without the backend before it."""
    return recording.names[int(recording.entries["name"][row])].rpartition(":")[2]


def _shape(recording: Recording, row: int) -> str:
    at = int(recording.entries["shape"][row])
    return recording.shapes[at] if at != NOWHERE else ""
