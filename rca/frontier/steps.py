"""Stage rows of many ranks as one matrix per schema and step: what the cutter (cutting.py) works on.

A rank's step may lie in several rows (schemas of more than eight stages) and may have been sent twice; a rank may have
changed its schema. Ranks are compared by the hash over their stages in order, never by names that happen to be equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from ingest.window import Window
from nccl_instrument.stage_schema import STAGES_MAX
from nccl_instrument.tables import STAGES_A_ROW
from rca.frontier.accounting import Seconds
from rca.keys import Ints, Keys, Mask, Rows, latest, mix

ORDERED: Final = 0
STEP_NS_MAX: Final = 86_400_000_000_000
ALIGNED_STEPS: Final = 32
"""Steps by which clocks are compared."""


@dataclass(frozen=True, slots=True)
class Stages:
    """An ordered schema. micro_steps: of a step; is_indexed: whether the stages tell them apart. sides: channel → name."""

    names: tuple[str, ...]
    micro_steps: int = 1
    is_indexed: bool = False
    sides: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Steps:
    """(n,) one step of one rank each: rank, step, order hash, end (unix ns, by the rank's node's clock), flags, overlap (s).
    durations: (n, W) seconds, zeros beyond the schema's own stages. aligned_ns: the end by the median rank's clock, for what
    is compared across ranks. repeats: how many micro-steps it had. n_bad: rows left out because they cannot be durations."""

    rank: Ints
    step: Ints
    order: Keys
    ended_ns: Ints
    flags: Ints
    overlap_s: Seconds
    durations: Seconds
    aligned_ns: Ints
    repeats: Ints
    n_bad: int

    def where(self, mask: Mask) -> Steps:
        """Those rows only."""
        return Steps(
            self.rank[mask], self.step[mask], self.order[mask], self.ended_ns[mask], self.flags[mask],
            self.overlap_s[mask], self.durations[mask], self.aligned_ns[mask], self.repeats[mask], self.n_bad,
        )  # fmt: skip


def schemas_of(window: Window) -> dict[int, Stages]:
    """Order hash → its stages; those whose rows are not complete are unknown and left out."""
    rows, found = window.rows("schema"), dict[int, Stages]()
    for order in np.unique(rows["order_hash"]).tolist():
        of = rows[rows["order_hash"] == order]
        ordered = of[of["kind"] == ORDERED]
        _, first = np.unique(ordered["position"], return_index=True)
        ordered = ordered[first]
        if len(ordered) and len(ordered) == int(ordered["n_stages"][0]):
            names = tuple(printable(name) for name in ordered["name"].tolist())
            sides = {int(row["position"]): printable(row["name"]) for row in of[of["kind"] != ORDERED]}
            found[order] = Stages(names, int(ordered["micro_steps"][0]), bool((ordered["micro"] >= 0).any()), sides)
    return found


def printable(name: bytes) -> str:
    """A name as it was sent, without what no recorder would send."""
    return "".join(one if one.isprintable() else "?" for one in name.decode("ascii", "replace"))


def order_of(window: Window) -> dict[int, int]:
    """Schema id → order hash."""
    rows = window.rows("schema")
    return dict(zip(rows["schema"].tolist(), rows["order_hash"].tolist(), strict=True))


def steps_of(window: Window) -> Steps:
    """Every step of every rank of the window, once, the newest of those sent twice."""
    rows = window.rows("stage")
    rank = np.where(rows["rank"] >= 0, rows["rank"], rows["global_rank"]).astype(np.int64)
    rows, rank = rows[rank >= 0], rank[rank >= 0]
    is_bad = _is_bad(rows)
    n_bad, rows, rank = int(is_bad.sum()), rows[~is_bad], rank[~is_bad]
    newest = np.sort(latest(mix(rank, rows["step"], rows["part"]), rows["ended_ns"].astype(np.int64)))
    return _joined(rows[newest], rank[newest], _orders(window, rows[newest]), n_bad)


def _is_bad(rows: Rows) -> Mask:
    """Rows that no recorder can have made: a duration below zero or of more than a day, more stages than a schema has."""
    spent = rows["durations_ns"].reshape(len(rows), STAGES_A_ROW)
    found: Mask = ((spent < 0) | (spent > STEP_NS_MAX)).any(axis=1) | (rows["overlap_ns"] > STEP_NS_MAX)
    found |= (rows["part"] >= -(-STAGES_MAX // STAGES_A_ROW)) | (rows["step"] < 0)
    return found


def _orders(window: Window, rows: Rows) -> Keys:
    """(n,) order hash of each row; 0 while its schema has not been told."""
    known, found = order_of(window), np.zeros(len(rows), np.uint64)
    for schema in np.unique(rows["schema"]).tolist():
        found[rows["schema"] == schema] = known.get(schema, 0)
    return found


def _joined(rows: Rows, rank: Ints, order: Keys, n_bad: int) -> Steps:
    """Rows of one step put beside each other."""
    _, first, at = np.unique(mix(rank, rows["step"]), return_index=True, return_inverse=True)
    n_parts = int(rows["part"].max(initial=0)) + 1
    durations = np.zeros((len(first), n_parts, STAGES_A_ROW))
    durations[at, rows["part"]] = rows["durations_ns"].reshape(len(rows), STAGES_A_ROW) / 1e9
    flags = np.zeros(len(first), np.int64)
    np.bitwise_or.at(flags, at, rows["flags"].astype(np.int64))
    step, ended = rows["step"][first].astype(np.int64), rows["ended_ns"][first].astype(np.int64)
    return Steps(
        rank[first], step, order[first], ended, flags, rows["overlap_ns"][first] / 1e9,
        durations.reshape(len(first), n_parts * STAGES_A_ROW), ended - _clock_leads(rank[first], step, ended),
        np.maximum(rows["repeats"][first].astype(np.int64), 1), n_bad,
    )  # fmt: skip


def _clock_leads(rank: Ints, step: Ints, ended_ns: Ints) -> Ints:
    """(n,) how far the clock of each row's rank is ahead of the median rank's.

    Ranks of a group end their steps within about a step of each other; what stays between them over the steps is their
    clocks' difference. Only step numbers are compared (StageFrontier §3: no synchronised clocks).
    """
    numbers = np.unique(step)
    some = np.isin(step, numbers[np.linspace(0, len(numbers) - 1, min(len(numbers), ALIGNED_STEPS)).astype(int)])
    lead = ended_ns[some] - _medians(step[some], ended_ns[some])
    ranks, at = np.unique(rank[some], return_index=True)
    of_rank = _medians(rank[some], lead)[at]
    place = np.minimum(np.searchsorted(ranks, rank), len(ranks) - 1)
    found: Ints = np.where(ranks[place] == rank, of_rank[place], 0) if len(ranks) else np.zeros(len(rank), np.int64)
    return found


def _medians(of: Ints, values: Ints) -> Ints:
    """(n,) the lower median of the values that share a key, at each of them."""
    order = np.lexsort((values, of))
    _, first, count = np.unique(of[order], return_index=True, return_counts=True)
    middle = values[order][first + (count - 1) // 2]
    found = np.empty(len(of), np.int64)
    found[order] = np.repeat(middle, count)
    return found
