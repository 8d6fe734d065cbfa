"""What PyTorch's Flight Recorder kept of a job: one row per op and rank, the same whatever the dump looked like.

A dump is one rank's ring buffer of its newest ops. Numbers of process groups differ from rank to rank, so groups go by
their names; the words of a dump (names, call sites, sizes) are kept once and rows refer to them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from rca.flight_recorder.columns import NOWHERE, TYPES, Group, Words

ENTRY: Final = np.dtype(
    [
        ("rank", "<i4"),
        ("record_id", "<i8"),
        ("group", "<i4"),
        ("seq", "<i8"),
        ("is_p2p", "?"),
        ("state", "u1"),
        ("is_finished", "?"),
        ("created_ns", "<i8"),
        ("completed_ns", "<i8"),
        ("name", "<i4"),
        ("shape", "<i4"),
        ("place", "<i4"),
    ]
)
"""seq: the op's number in its group, counted apart for p2p. state: SCHEDULED, STARTED or COMPLETED. name, shape, place,
group: in the words; shape and place are NOWHERE for ops that were over long ago. is_finished: completed, or retired (all
that gloo says)."""

Entries = npt.NDArray[np.void]


@dataclass(frozen=True, slots=True)
class Recording:
    """Dumps of one or more ranks. entries: (n,) ENTRY, ordered by rank, then as recorded.

    ranks: who sent a dump, also an empty one. groups, names, shapes, places: what the rows' columns refer to. ended: rank →
    what ended its program; the op that raised, if one did, counts as one that has not finished.
    """

    entries: Entries
    ranks: tuple[int, ...]
    groups: tuple[Group, ...]
    names: tuple[str, ...]
    shapes: tuple[str, ...]
    places: tuple[str, ...]
    versions: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)
    ended: dict[int, str] = field(default_factory=dict)


def recording_of(words: Words, numbers: bytes) -> Recording:
    """One dump's, of what encode_columns wrote; empty of one that could not be read."""
    widths = {column: np.dtype(kind).itemsize for column, kind in TYPES.items()}
    entries = np.zeros(len(numbers) // sum(widths.values()), ENTRY)
    at = 0
    for column, kind in TYPES.items():
        entries[column] = np.frombuffer(numbers, kind, len(entries), at)
        at += len(entries) * widths[column]
    entries["rank"] = NOWHERE if words.rank is None else words.rank
    return Recording(
        entries, (words.rank,) if words.rank is not None else (), words.groups, words.names, words.shapes, words.places,
        words.versions, words.refused, {words.rank: words.ended} if words.rank is not None and words.ended else {},
    )  # fmt: skip


def merge(recordings: list[Recording]) -> Recording:
    """All ranks in one. Of two dumps of one rank the one that recorded longer counts."""
    newest: dict[int, Recording] = {}
    for one in recordings:
        for rank in one.ranks:
            if rank not in newest or _last_ns(one, rank) > _last_ns(newest[rank], rank):
                newest[rank] = one
    groups, names, shapes, places = _Words(), _Words(), _Words(), _Words()
    members: dict[str, Group] = {}
    entries = np.zeros(sum(_n_rows(newest[rank], rank) for rank in newest), ENTRY)
    start = 0
    for rank in sorted(newest):
        one = newest[rank]
        for group in one.groups:
            groups.number(group.name)
            known = members.get(group.name)
            if known is None or (group.ranks and not known.ranks) or (group.what and not known.what):
                members[group.name] = replace(
                    group,
                    ranks=group.ranks or (known.ranks if known else ()),
                    what=group.what or (known.what if known else ""),
                )
        part = entries[start : start + _n_rows(one, rank)]
        part[:] = one.entries if len(one.ranks) == 1 else one.entries[one.entries["rank"] == rank]
        start += len(part)
        part["group"] = groups.renumber([group.name for group in one.groups], part["group"])
        part["name"] = names.renumber(one.names, part["name"])
        part["shape"] = shapes.renumber(one.shapes, part["shape"])
        part["place"] = places.renumber(one.places, part["place"])
    return Recording(
        entries=entries, ranks=tuple(sorted(newest)),
        groups=tuple(members[name] for name in groups.words), names=tuple(names.words), shapes=tuple(shapes.words),
        places=tuple(places.words), versions=tuple(sorted({version for one in recordings for version in one.versions})),
        refused={name: why for one in recordings for name, why in one.refused.items()},
        ended={rank: newest[rank].ended[rank] for rank in sorted(newest) if rank in newest[rank].ended},
    )  # fmt: skip


def _n_rows(recording: Recording, rank: int) -> int:
    """How many are of this rank."""
    return len(recording.entries) if len(recording.ranks) == 1 else int((recording.entries["rank"] == rank).sum())


def _last_ns(recording: Recording, rank: int) -> int:
    return int(recording.entries["created_ns"][recording.entries["rank"] == rank].max(initial=-1))


class _Words:
    """Numbers for words, in the order they came."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    @property
    def words(self) -> list[str]:
        return list(self._numbers)

    def number(self, word: str) -> int:
        return self._numbers.setdefault(word, len(self._numbers))

    def renumber(self, words: list[str] | tuple[str, ...], numbers: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """(n,) numbers of another list of words as numbers of these; NOWHERE stays."""
        table = np.array([*(self.number(word) for word in words), NOWHERE], np.int32)
        return table[numbers]
