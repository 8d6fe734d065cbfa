"""What is normal for a job: how far apart its ops usually complete, kept from look to look.

A histogram with four buckets to the octave is small, mergeable, good to ±10 %, and plain JSON, so that it survives
restarts with the job. Old counts are halved now and then: a job that changes its pace gets a new normal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import OP_NO_NETWORK
from rca.keys import Ints
from rca.triggers.kinds import Kind, kinds_from_json, kinds_to_json
from rca.triggers.pace import Pace, pace_from_json, pace_to_json

ALL = "all"
_PER_OCTAVE = 4
_COUNT_MAX = 20_000


@dataclass(frozen=True, slots=True)
class Normal:
    """seen_ns: completions up to here are counted. intervals: of every op of a rank ("all"): bucket → count.

    pace: of its iterations. kinds: throughput and interval of each kind of op. looked_ns: end of the newest window.
    pauses_ns: how long the job did nothing at all before it went on, newest last. declaration: number of the newest wanted
    change of pace that was taken in (anew.py).
    """

    seen_ns: int = 0
    intervals: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    pace: Pace = Pace()  # noqa: RUF009
    kinds: Mapping[str, Kind] = field(default_factory=dict)
    looked_ns: int = 0
    pauses_ns: tuple[int, ...] = ()
    declaration: int = 0

    def count(self, kind: str = ALL) -> int:
        """Intervals counted."""
        return sum(self.intervals.get(kind, {}).values())

    def quantile_ns(self, q: float, kind: str = ALL) -> int | None:
        """Upper edge of the bucket that holds quantile `q`; None while nothing is counted."""
        buckets = self.intervals.get(kind, {})
        left = q * sum(buckets.values())
        for bucket in sorted(buckets):
            left -= buckets[bucket]
            if left <= 0:
                return round(2 ** ((bucket + 1) / _PER_OCTAVE))
        return None


def normal_to_json(normal: Normal) -> dict[str, Any]:
    """Plain JSON of `normal`."""
    return {
        "seen_ns": normal.seen_ns,
        "intervals": {kind: {str(b): n for b, n in buckets.items()} for kind, buckets in normal.intervals.items()},
        "pace": pace_to_json(normal.pace),
        "kinds": kinds_to_json(normal.kinds),
        "looked_ns": normal.looked_ns,
        "pauses_ns": list(normal.pauses_ns),
        "declaration": normal.declaration,
    }


def normal_from_json(raw: Mapping[str, Any]) -> Normal:
    """What `normal_to_json` wrote; an empty mapping is a job without a normal. ValueError on anything else."""
    try:
        intervals = {
            str(kind): {int(b): int(n) for b, n in buckets.items()}
            for kind, buckets in raw.get("intervals", {}).items()
        }
        return Normal(
            seen_ns=int(raw.get("seen_ns", 0)),
            intervals=intervals,
            pace=pace_from_json(raw.get("pace", {})),
            kinds=kinds_from_json(raw.get("kinds", {})),
            looked_ns=int(raw.get("looked_ns", 0)),
            pauses_ns=tuple(int(ns) for ns in raw.get("pauses_ns", ())),
            declaration=int(raw.get("declaration", 0)),
        )
    except (AttributeError, TypeError) as error:
        raise ValueError(f"not a normal: {error}") from error


def learn(normal: Normal, window: Window, ranks: Ints) -> Normal:
    """`normal` with the completions of `ranks` that are newer than it; ops inside a node have no completion."""
    done = window.rows("op")
    is_known = np.isin(done["rank"], ranks) & (done["done_ns"] > 0) & ((done["flags"] & OP_NO_NETWORK) == 0)
    rank, done_ns = done["rank"][is_known], done["done_ns"][is_known].astype(np.int64)
    if not len(done_ns) or int(done_ns.max()) <= normal.seen_ns:
        return normal
    intervals = {ALL: dict(normal.intervals.get(ALL, {}))}
    for one in np.unique(rank):
        _count(intervals, ALL, done_ns[rank == one], normal.seen_ns)
    aged = {kind: _aged(buckets) for kind, buckets in intervals.items() if buckets}
    return replace(normal, seen_ns=int(done_ns.max()), intervals={**normal.intervals, **aged})


def counted(normal: Normal, kind: str, durations_ns: Ints) -> Normal:
    """`normal` with these durations among those of `kind`."""
    if not len(durations_ns):
        return normal
    intervals = {kind: dict(normal.intervals.get(kind, {}))}
    _count_durations(intervals[kind], durations_ns)
    return replace(normal, intervals={**normal.intervals, kind: _aged(intervals[kind])})


def _count(intervals: dict[str, dict[int, int]], kind: str, done_ns: Ints, seen_ns: int) -> None:
    times = np.sort(done_ns)
    _count_durations(intervals.setdefault(kind, {}), np.diff(times)[times[1:] > seen_ns])


def _count_durations(counts: dict[int, int], durations_ns: Ints) -> None:
    buckets = np.floor(np.log2(np.maximum(durations_ns, 1)) * _PER_OCTAVE).astype(np.int64)
    for bucket, n in zip(*np.unique(buckets, return_counts=True), strict=True):
        counts[int(bucket)] = counts.get(int(bucket), 0) + int(n)


def _aged(buckets: dict[int, int]) -> dict[int, int]:
    if sum(buckets.values()) <= _COUNT_MAX:
        return buckets
    return {bucket: n // 2 for bucket, n in buckets.items() if n > 1}
