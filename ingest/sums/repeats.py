"""Which op records the roll-ups must leave out: an agent that lost its bookmarks sends again what it sent before.

Its new life reads the rings of the trainers once more, and its batches have a boot id and numbers of their own, so the
store rightly takes them for new. What it repeats had happened before the earlier life's last batch was cut, on the same
monotonic clock, so only such ops are looked up among the stored rows of earlier lives. Nothing is remembered that the
store does not know: it is as right after a restart of ingest and with several ingest processes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from psycopg import Connection

from ingest.door.arrival import completed_ns
from ingest.sums.rollup import OpBatch
from nccl_instrument.tables import OP_REOPENED, empty_rows
from nccl_instrument.wire import BadBatch, Rows, decode_batch

SLACK_NS: Final = 6_000_000_000
"""Placing a batch may set the same moment of the node so far apart in two lives of its agent: tolerated wall clocks."""
LOOK_BACK_NS: Final = 600_000_000_000
EARLIER_ROWS_MAX: Final = 20_000
BOOTS_REMEMBERED: Final = 100_000

Keys = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class _Before:
    """The earlier boots of a boot's agent. mono_ns: their newest cut by the node's clock; ended_ns: the same by ours."""

    boots: tuple[int, ...]
    mono_ns: int
    ended_ns: int


@dataclass(frozen=True, slots=True)
class _Suspect:
    """A batch with rows that an earlier boot may have sent. first_ns: when the first of those was over, unix ns."""

    batch: OpBatch
    before: _Before
    is_suspect: npt.NDArray[np.bool_]
    first_ns: int


class Repeats:
    """Leaves out repeated ops. Used by one thread; what it remembers of boots may be forgotten at any time."""

    def __init__(self) -> None:
        self._before: dict[int, _Before | None] = {}
        self.ops_repeated = 0
        self.ops_unchecked = 0

    def drop(self, connection: Connection[Any], batches: Sequence[OpBatch]) -> list[OpBatch]:
        """The batches without what earlier boots sent of them. Raises psycopg.Error."""
        self._ask_for({batch.boot_pk for batch in batches} - self._before.keys(), connection)
        suspects = [found for batch in batches if (found := self._suspect(batch)) is not None]
        if not suspects:
            return list(batches)
        attempts = defaultdict(list)
        for suspect in suspects:
            attempts[suspect.batch.attempt_id].append(suspect)
        cleaned = {id(s.batch): batch for same in attempts.values() for s, batch in self._check(connection, same)}
        return [cleaned.get(id(batch), batch) for batch in batches]

    def _ask_for(self, boots: set[int], connection: Connection[Any]) -> None:
        if not boots:
            return
        if len(self._before) > BOOTS_REMEMBERED:
            self._before.clear()
        self._before.update(dict.fromkeys(boots))
        for boot_pk, earlier, mono_ns, ended_ns in connection.execute(_BEFORE, [sorted(boots)]):
            self._before[boot_pk] = _Before(tuple(earlier), mono_ns, ended_ns)

    def _suspect(self, batch: OpBatch) -> _Suspect | None:
        before = self._before.get(batch.boot_pk)
        if before is None or not len(batch.ops):
            return None
        over_ns = completed_ns(batch.ops)
        # A machine that was started anew has another monotonic clock: there our own clock tells later from earlier.
        is_suspect = (over_ns <= before.mono_ns) & (over_ns + batch.shift_ns <= before.ended_ns + SLACK_NS)
        is_suspect &= (batch.ops["flags"] & OP_REOPENED) == 0
        if not is_suspect.any():
            return None
        return _Suspect(batch, before, is_suspect, int(over_ns[is_suspect].min()) + batch.shift_ns)

    def _check(self, connection: Connection[Any], suspects: Sequence[_Suspect]) -> Iterable[tuple[_Suspect, OpBatch]]:
        """The suspects of one attempt with their batches, repeated rows left out."""
        wanted_ns = min(suspect.first_ns for suspect in suspects) - SLACK_NS
        since_ns = max(wanted_ns, max(suspect.before.ended_ns for suspect in suspects) - LOOK_BACK_NS)
        sent, read_from_ns = _sent_since(connection, suspects, since_ns)
        for suspect in suspects:
            batch, is_suspect = suspect.batch, suspect.is_suspect
            earlier = [keys for boot_pk, keys in sent.get(batch.node_id, ()) if boot_pk < batch.boot_pk]
            is_repeated = is_suspect & np.isin(_op_keys(batch.ops), np.concatenate([_NO_KEYS, *earlier]))
            self.ops_repeated += int(is_repeated.sum())
            if read_from_ns > wanted_ns:
                is_old = completed_ns(batch.ops) + batch.shift_ns < read_from_ns + SLACK_NS
                self.ops_unchecked += int((is_suspect & is_old & ~is_repeated).sum())
            yield suspect, replace(batch, ops=batch.ops[~is_repeated])


def _sent_since(
    connection: Connection[Any], suspects: Sequence[_Suspect], since_ns: int
) -> tuple[dict[int, list[tuple[int, Keys]]], int]:
    """Node id → (boot, keys of the ops it sent) of stored batches; and from which end on all of those were read."""
    nodes = sorted({suspect.batch.node_id for suspect in suspects})
    boots = sorted({boot for suspect in suspects for boot in suspect.before.boots})
    attempt_id = suspects[0].batch.attempt_id
    sent: dict[int, list[tuple[int, Keys]]] = defaultdict(list)
    n_rows, end_ns = 0, since_ns
    rows = connection.execute(_SENT, [attempt_id, since_ns, nodes, boots, EARLIER_ROWS_MAX], binary=True)
    for node_id, boot_pk, end_ns, packed in rows:  # noqa: B007  (the last one's end is asked for)
        n_rows += 1
        sent[node_id].append((boot_pk, _op_keys(ops_in(packed))))
    return sent, since_ns if n_rows < EARLIER_ROWS_MAX else end_ns


def ops_in(packed: bytes | None) -> Rows:
    """The op rows of a stored group; none when it was stored in a format that is no longer read."""
    if packed is None:
        return empty_rows("op")
    try:
        return decode_batch(packed).rows("op")
    except BadBatch:
        return empty_rows("op")


_NO_KEYS: Final = np.zeros(0, np.uint64)


def _op_keys(ops: Rows) -> Keys:
    """(n,) one number for (comm_id, comm_rank, func, peer, op)."""
    place = ops["comm_rank"].astype(np.uint64) << np.uint64(32) | ops["peer"].astype(np.uint32)
    mixed = (place ^ ops["func"].astype(np.uint64) << np.uint64(56)) * np.uint64(0x9E3779B97F4A7C15)
    mixed ^= ops["comm_id"] * np.uint64(0xC2B2AE3D27D4EB4F)
    mixed = (mixed ^ mixed >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9) + ops["op"]
    mixed = (mixed ^ mixed >> np.uint64(32)) * np.uint64(0x94D049BB133111EB)
    return mixed ^ mixed >> np.uint64(29)


_BEFORE: Final = """
SELECT b.id, array_agg(e.id), max(e.newest_mono_ns), max(e.newest_mono_ns + coalesce(e.sync_ns, 0))
FROM ingest_boot b JOIN ingest_boot e ON e.job_id = b.job_id AND e.node_name = b.node_name AND e.id < b.id
WHERE b.id = ANY(%s) GROUP BY b.id
"""
_SENT: Final = """
SELECT node_id, boot_pk, end_ns, ops FROM ingest_trace_batch
WHERE attempt_id = %s AND end_ns >= %s AND node_id = ANY(%s) AND boot_pk = ANY(%s) AND ops IS NOT NULL
ORDER BY end_ns DESC LIMIT %s
"""
