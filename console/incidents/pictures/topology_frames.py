"""What changes in the topology grid, as binary frames of the live socket: a delta, or all of it where that is shorter.

A frame belongs to the places (nodes, coordinates, devices of the ranks) that its epoch stands for; with other places the
epoch is another and the page fetches the grid anew. Texts are numbered in the order in which they first came.

    offset  bytes  what, little-endian
    0       1      kind: 1 delta, 2 all, 3 age: nothing has changed, and whoever draws is late
    1       1      version, 1
    2       2      0
    4       4      epoch
    8       4      offset: the frame brings a grid of the offset before here; one of all brings any grid here
    12      4      number of the incident
    16      4      n: ranks that changed, or all; of an age the ms since the grid was drawn, and nothing follows
    20      4      m: bytes at the end
    24      4 n    the ranks; only in a delta
    …       4 n    place of their notes in the texts
    …       n      their states
    …       m      JSON: texts that are new, or all
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

VERSION: Final = 1
DELTA, ALL, AGE = 1, 2, 3
HEAD: Final = struct.Struct("<BBHIIIII")
ALL_ABOVE: Final = 0.2
"""Of the ranks: when more have changed, all are sent."""


@dataclass(frozen=True, slots=True)
class States:
    """The changing part of a grid. state: (n,) places in grid.STATES; note: (n,) places in texts."""

    epoch: int
    offset: int
    state: npt.NDArray[np.uint8]
    note: npt.NDArray[np.uint32]
    texts: tuple[str, ...]


def frame_between(number: int, before: States, after: States) -> bytes | None:
    """What brings a page from `before` to `after`; None when nothing changed. Both are of one epoch, `after.texts` goes on."""
    changed = np.flatnonzero((before.state != after.state) | (before.note != after.note))
    if not len(changed):
        return None
    if len(changed) > ALL_ABOVE * len(after.state):
        return frame_of_all(number, after)
    return _frame(DELTA, number, replace(after, texts=after.texts[len(before.texts) :]), changed)


def frame_of_all(number: int, states: States) -> bytes:
    return _frame(ALL, number, states, None)


def frame_of_age(number: int, epoch: int, offset: int, age_ms: int) -> bytes:
    """That the grid which stands at `offset` was drawn so long ago."""
    return HEAD.pack(AGE, VERSION, 0, epoch, offset, number, min(age_ms, 2**32 - 1), 0)


def _frame(kind: int, number: int, states: States, changed: npt.NDArray[np.int64] | None) -> bytes:
    texts = json.dumps(states.texts, separators=(",", ":"), ensure_ascii=False).encode()
    chosen = slice(None) if changed is None else changed
    state, note = states.state[chosen], states.note[chosen]
    head = HEAD.pack(kind, VERSION, 0, states.epoch, states.offset, number, len(state), len(texts))
    ranks = b"" if changed is None else changed.astype("<u4").tobytes()
    return b"".join([head, ranks, note.astype("<u4").tobytes(), state.astype("u1").tobytes(), texts])


def apply_frame(before: States, frame: bytes) -> States:
    """The states after `frame`, as the page makes them. ValueError when it does not go on from `before`."""
    if len(frame) < HEAD.size:
        raise ValueError("not a frame of the grid")
    kind, version, _, epoch, offset, _, n, m = HEAD.unpack_from(frame)
    per_rank = {DELTA: 9, ALL: 5}.get(kind, 0)
    if version != VERSION or not per_rank or len(frame) != HEAD.size + per_rank * n + m:
        raise ValueError("not a frame of the grid")
    if epoch != before.epoch or (kind == DELTA and offset != before.offset + 1):
        raise ValueError("frames were missed")
    at = HEAD.size + (4 * n if kind == DELTA else 0)
    note, state = np.frombuffer(frame, "<u4", n, at), np.frombuffer(frame, "u1", n, at + 4 * n)
    texts = tuple(json.loads(frame[len(frame) - m :]))
    if kind == ALL:
        return States(epoch, offset, state, note, texts)
    ranks = np.frombuffer(frame, "<u4", n, HEAD.size)
    if n and int(ranks.max()) >= len(before.state):
        raise ValueError("not a frame of the grid")
    states, notes = before.state.copy(), before.note.copy()
    states[ranks], notes[ranks] = state, note
    return States(epoch, offset, states, notes, before.texts + texts)
