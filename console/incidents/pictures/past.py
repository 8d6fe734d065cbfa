"""The topology grid at an earlier moment: the state of every rank as the rows stored of that time tell it.

A pure function of a window that ends at the moment, of when each node was heard last before it, and of a diagnosis.
What is measured is of that time alone. Who is blamed is what is known today: from when the fault began on, and of a job
that stood still only those who stood still themselves, so that one sees who stopped first. Where nothing is stored, a
rank is unknown; it is never healthy by default.

    offset  bytes  what, little-endian
    0       4      "DGSP"
    4       1      version, 1
    5       1      flags; bit 0: nothing that may still come changes this
    6       2      0
    8       8      the moment, unix ns
    16      4      n, ranks
    20      4      m, bytes at the end
    24      4 n    ms since the rank was last seen before the moment; 2³² − 1 never
    …       2 n    place of its note in `notes`
    …       n      its state, a place in `states`
    …       m      JSON: states, notes, diagnosis (revision that blames, or null), said (what holds for all, or "")
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from console.incidents.pictures.grid import (
    CULPRIT,
    DEAD,
    NOT_VISIBLE,
    OK,
    SECOND,
    SILENT,
    SILENT_NS,
    STATES,
    SUSPECT,
    SUSPECTED,
    UNKNOWN,
    WAITING,
    WORLD_MAX,
    Ints,
    is_dead,
    only_inside_nodes,
)
from ingest.window import Rows, Window
from rca.findings import Diagnosis, SymptomKind

MAGIC: Final = b"DGSP"
VERSION: Final = 1
HEAD: Final = struct.Struct("<4sBBHQII")
SETTLED: Final = 1
NEVER: Final = 2**32 - 1
NOTES_MAX: Final = 2**16
LATE_NS: Final = 3 * SECOND
"""A node sends every second: of one from which nothing came for so long nobody knows how it is, after SILENT_NS it is silent."""
STANDS_NS: Final = SECOND
"""Progress is told once a second: a rank whose counts have not moved for longer stands still."""


@dataclass(frozen=True, slots=True)
class Fault:
    """Whom a diagnosis blames, and for which time. revision: its number, for the reader."""

    diagnosis: Diagnosis
    revision: int
    from_ns: int
    until_ns: int | None


@dataclass(frozen=True, slots=True)
class Past:
    """Columns by rank 0 … n − 1. state: (n,) places in STATES; seen_ms: (n,) ms before at_ns, NEVER; note: (n,) places in notes.

    said: what holds for all of them, "" when nothing does.
    """

    at_ns: int
    state: npt.NDArray[np.uint8]
    seen_ms: npt.NDArray[np.uint32]
    note: npt.NDArray[np.uint16]
    notes: tuple[str, ...]
    revision: int | None
    said: str = ""


def make_past(window: Window, heard_ns: Mapping[str, int], fault: Fault | None) -> Past:
    """The grid at the last nanosecond of `window`. heard_ns: node → its newest row before that, for a while back."""
    at_ns = window.end_ns - 1
    n_ranks = min(max(window.world_size, int(window.ranks["rank"].max(initial=-1)) + 1), WORLD_MAX)
    ranks = window.ranks[(window.ranks["rank"] >= 0) & (window.ranks["rank"] < n_ranks)]
    seen_ns = _seen_ns(window, ranks, n_ranks, heard_ns)
    marks = _Marks(n_ranks)
    is_stored = bool(heard_ns) and at_ns - max(heard_ns.values()) <= SILENT_NS
    _measure(marks, window, ranks, at_ns - seen_ns, is_stored)
    applies = fault is not None and fault.from_ns <= at_ns and (fault.until_ns is None or at_ns <= fault.until_ns)
    if fault is not None and applies and is_stored:
        _blame(marks, window, fault.diagnosis, at_ns)
    age_ms = np.clip((at_ns - seen_ns) // 1_000_000, 0, NEVER - 1)
    return Past(
        at_ns, marks.state, np.where(seen_ns > 0, age_ms, NEVER).astype(np.uint32), marks.note, tuple(marks.notes),
        fault.revision if fault is not None and applies else None,
        "" if is_stored else "Nothing is stored of this time.",
    )  # fmt: skip


def encode_past(past: Past, is_settled: bool) -> bytes:
    """The table of this module's docstring as bytes."""
    said = {"states": STATES, "notes": past.notes, "diagnosis": past.revision, "said": past.said}
    tail = json.dumps(said, separators=(",", ":"), ensure_ascii=False).encode()
    flags = SETTLED if is_settled else 0
    head = HEAD.pack(MAGIC, VERSION, flags, 0, past.at_ns, len(past.state), len(tail))
    columns = (past.seen_ms.astype("<u4"), past.note.astype("<u2"), past.state)
    return b"".join([head, *(column.tobytes() for column in columns), tail])


def decode_past(body: bytes) -> tuple[Past, bool]:
    """What `encode_past` wrote, and whether it is settled. ValueError when it is something else."""
    if len(body) < HEAD.size:
        raise ValueError("This is no grid of an earlier moment.")
    magic, version, flags, _, at_ns, n, m = HEAD.unpack_from(body)
    if magic != MAGIC or version != VERSION or len(body) != HEAD.size + 7 * n + m:
        raise ValueError("This is no grid of an earlier moment.")
    seen_ms = np.frombuffer(body, "<u4", n, HEAD.size)
    note = np.frombuffer(body, "<u2", n, HEAD.size + 4 * n)
    state = np.frombuffer(body, "u1", n, HEAD.size + 6 * n)
    said: dict[str, Any] = json.loads(body[HEAD.size + 7 * n :])
    return Past(at_ns, state, seen_ms, note, tuple(said["notes"]), said["diagnosis"], said["said"]), flags & 1 == 1


class _Marks:
    """The state and note of every rank while they are found out."""

    def __init__(self, n_ranks: int) -> None:
        self.state = np.full(n_ranks, UNKNOWN, np.uint8)
        self.note = np.zeros(n_ranks, np.uint16)
        self.notes: list[str] = [""]
        self._place = {"": 0}

    def mark(self, ranks: Iterable[int] | Ints, to: int, why: str) -> None:
        """Of notes beyond NOTES_MAX the words are left out, never the state."""
        at = np.asarray(ranks if isinstance(ranks, np.ndarray) else list(ranks), np.int64)
        at = at[(at >= 0) & (at < len(self.state))]
        if why not in self._place and len(self.notes) < NOTES_MAX:
            self._place[why] = len(self.notes)
            self.notes.append(why)
        self.state[at], self.note[at] = to, self._place.get(why, 0)


def _seen_ns(window: Window, ranks: Rows, n_ranks: int, heard_ns: Mapping[str, int]) -> Ints:
    """(n_ranks,) when the rank's process was last seen, else its node; 0 where neither is stored."""
    of_node = np.array([heard_ns.get(str(name), 0) for name in window.nodes["name"]] + [0], np.int64)
    known = np.where((ranks["node"] >= 0) & (ranks["node"] < len(window.nodes)), ranks["node"], len(window.nodes))
    seen = np.zeros(n_ranks, np.int64)
    seen[ranks["rank"]] = of_node[known]
    latest = np.zeros(n_ranks, np.int64)
    for table in ("process", "progress"):
        rows = _of_ranks(window.rows(table), n_ranks)
        np.maximum.at(latest, rows["rank"], rows["tick_ns"])
    return np.where(latest > 0, latest, seen)


def _measure(marks: _Marks, window: Window, ranks: Rows, age_ns: Ints, is_stored: bool) -> None:
    """What the rows of that time say by themselves."""
    n_ranks = len(marks.state)
    known = np.zeros(n_ranks, bool)
    known[ranks["rank"]] = True
    marks.mark(np.flatnonzero(~known), UNKNOWN, "never reported")
    if not is_stored:
        marks.mark(np.flatnonzero(known), UNKNOWN, "nothing is stored of this time")
        return
    marks.mark(np.flatnonzero(known), OK, "")
    marks.mark(np.flatnonzero(known & only_inside_nodes(window, n_ranks)), NOT_VISIBLE,
               "its ops stay inside the node, where progress cannot be seen")  # fmt: skip
    marks.mark(np.flatnonzero(is_dead(window, n_ranks)), DEAD, "the process is gone")
    marks.mark(np.flatnonzero(known & (age_ns > LATE_NS)), UNKNOWN, "nothing is stored of the seconds before")
    marks.mark(np.flatnonzero(known & (age_ns > SILENT_NS)), SILENT, "no data for more than 10 s, while others sent")
    marks.mark(_not_begun(window, ranks), UNKNOWN, "its node had not reported yet")


def _not_begun(window: Window, ranks: Rows) -> Ints:
    """Ranks of nodes whose first batch is of a later time."""
    node, n_nodes = ranks["node"], len(window.nodes)
    is_later = np.append(window.nodes["first_ns"] >= window.end_ns, False)  # the last: no node
    found: Ints = ranks["rank"][is_later[np.where((node >= 0) & (node < n_nodes), node, n_nodes)]].astype(np.int64)
    return found


def _blame(marks: _Marks, window: Window, diagnosis: Diagnosis, at_ns: int) -> None:
    """Only of ranks about which something is known at that moment."""
    n_ranks = len(marks.state)
    can_be = marks.state != UNKNOWN
    moved_ns = _moved_ns(window, n_ranks)
    stands = can_be & (at_ns - moved_ns > STANDS_NS)
    if diagnosis.symptom.kind != SymptomKind.FAILURE:
        stands = can_be  # a slow job goes on: nobody stands still
    else:
        is_open = stands & (marks.state == OK)
        marks.mark(np.flatnonzero(is_open), UNKNOWN, "stands still; for whom it waits is not known")
        marks.mark(np.flatnonzero(is_open & (moved_ns == 0)), UNKNOWN, "how far it was is not stored")
    for why, ranks in _waits(diagnosis).items():
        marks.mark(_those(stands, ranks), WAITING, why)
    if diagnosis.findings:
        marks.mark(_those(stands, sorted(diagnosis.suspects)), SUSPECT, SUSPECTED)
        marks.mark(_those(stands, diagnosis.culprits), CULPRIT, diagnosis.findings[0].sentence)


def _those(stands: npt.NDArray[np.bool_], ranks: Sequence[int]) -> Ints:
    """The ranks that are marked in `stands`."""
    given = np.array(ranks, np.int64)
    given = given[(given >= 0) & (given < len(stands))]
    return given[stands[given]]


def _waits(diagnosis: Diagnosis) -> dict[str, list[int]]:
    """Why they wait → victims; all of them first, then those of whom more is known."""
    waits = {"waits": list(diagnosis.victims)}
    told, victims = dict[int, str](), frozenset(diagnosis.victims)
    for edge in diagnosis.path:
        if edge.waiter in victims:
            told[edge.waiter] = f"waits for rank {edge.waits_for}: {edge.why}"
    for rank, why in told.items():
        waits.setdefault(why, []).append(rank)
    return waits


def _moved_ns(window: Window, n_ranks: int) -> Ints:
    """(n_ranks,) when an op of the rank began or ended last; 0 where its progress is not told."""
    rows = _of_ranks(window.rows("progress"), n_ranks)
    moved = np.zeros(n_ranks, np.int64)
    np.maximum.at(moved, rows["rank"], np.maximum(rows["last_enqueued_ns"], rows["last_done_ns"]))
    return moved


def _of_ranks(rows: Rows, n_ranks: int) -> Rows:
    """Those of known ranks; nearly always all, and then they are not copied: of 100,000 ranks it is a million rows."""
    known = (rows["rank"] >= 0) & (rows["rank"] < n_ranks)
    found: Rows = rows if known.all() else rows[known]
    return found
