"""Cuts the steps of a job into windows of one group of ranks and one schema (StageFrontier §3, §6, Table 11).

A window holds 120 steps after 20 of warm-up, at most 60 s, and is closed early when the schema, the members or the
accumulation of its group change: mismatched rows are never merged. A step that a rank broke off (an exception, a clock
that went back) is left out on all ranks, counted. Nothing is cut that may still be arriving; steps that came too late or
never are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from nccl_instrument.tables import GATHER_FAILED, NESTED_REFUSED, OUT_OF_ORDER, WAIT_UNSURE
from rca.frontier.accounting import Seconds, by_stage
from rca.frontier.steps import Stages, Steps
from rca.keys import Ints, Mask
from rca.settings import Settings

SETTLED_NS: Final = 5_000_000_000
"""A step that ended so long before the newest data is not waited for any longer."""
UNSURE_SHARE: Final = 0.05
LASTING: Final = 5
"""Steps on either side of a changed accumulation that closes a window; more steps of which nobody told do, too."""
ROWS_MAX: Final = 4_000_000
"""Rows of a window at most: of 100,000 ranks it holds 40 steps."""


@dataclass(frozen=True, slots=True)
class Cursor:
    """Up to where an attempt has been cut. step: the last one that is done with, -1 before the first; ended_ns: when it
    ended, 0 before the first window; first: the first step since the numbers began, -1 before it; since_ns: when they began
    anew, 0 for never. missed: steps before or between windows that no rank had told when the windows were cut."""

    step: int = -1
    ended_ns: int = 0
    first: int = -1
    since_ns: int = 0
    missed: int = 0


@dataclass(frozen=True, slots=True)
class Cut:
    """One window of one group: durations (T, R, S) s, ended_ns (T, R) each by its node's clock, steps (T,), ranks (R,), flags
    (T, R). closed: why it ends where it does. trouble: what was wrong with it, in sentences. start_ns, end_ns: by the median
    rank's clock. n_left_out: steps that not every rank completed. repeats: micro-steps of a step, at most."""

    stages: Stages
    ranks: tuple[int, ...]
    steps: Ints
    durations: Seconds
    ended_ns: Ints
    overlap_s: Seconds
    flags: Ints
    closed: str
    trouble: tuple[str, ...]
    start_ns: int
    end_ns: int
    n_left_out: int = 0
    repeats: int = 1


@dataclass(frozen=True, slots=True)
class Batch:
    """Windows of one group that are complete, the last step they use, and where it ended."""

    cuts: tuple[Cut, ...]
    step: int
    ended_ns: int


def after(steps: Steps, cursor: Cursor, settings: Settings) -> tuple[Steps, Cursor]:
    """Steps that have not been cut, warm-up left out. Numbers that begin anew, as after a checkpoint was loaded, are new steps,
    and the first of them warm-up; what was no window yet before them is left out."""
    if not len(steps.step):
        return steps, cursor
    steps = steps.where(steps.aligned_ns >= cursor.since_ns)
    is_late = steps.aligned_ns > cursor.ended_ns + SETTLED_NS
    is_anew = (steps.step <= cursor.step) & is_late & (cursor.ended_ns > 0)  # 0: these are the warm-up, read again
    if is_anew.any():
        since_ns = int(steps.aligned_ns[is_anew].min())
        steps = steps.where(steps.aligned_ns >= since_ns)
        first = int(steps.step.min())
        cursor = Cursor(first + settings.stage_warm_up - 1, 0, first, since_ns, cursor.missed)
    if cursor.first < 0 and len(steps.step):
        cursor = Cursor(int(steps.step.min()) + settings.stage_warm_up - 1, 0, int(steps.step.min()))
    return steps.where(steps.step > cursor.step), cursor


def beyond(cursor: Cursor, one: Cut) -> Cursor:
    """The cursor once a window is done with."""
    told = len(one.steps) + one.n_left_out
    missed = int(one.steps[-1]) - cursor.step - told if cursor.step < one.steps[0] else 0
    return replace(cursor, step=int(one.steps[-1]), ended_ns=one.end_ns, missed=cursor.missed + max(missed, 0))


def cut(
    steps: Steps, schemas: dict[int, Stages], ranks: Sequence[int], now_ns: int, settings: Settings, *, is_last: bool
) -> Batch:
    """The complete windows of the group `ranks`. now_ns: newest data; is_last: nothing will come, so that what is there is
    cut however short it is."""
    own = steps.where(np.isin(steps.rank, np.asarray(ranks, np.int64)))
    cuts, done, ended_ns = [], -1, 0
    for low, high, closed in _segments(own, now_ns, settings, is_last=is_last):
        inside = own.where((own.step >= low) & (own.step < high))
        made = _made(inside, schemas, closed)
        if made is not None:
            cuts.append(made)
        done, ended_ns = high - 1, int(inside.aligned_ns.max())
    return Batch(tuple(cuts), done, ended_ns)


def _segments(own: Steps, now_ns: int, settings: Settings, *, is_last: bool) -> list[tuple[int, int, str]]:
    """(first step, first step after, why it ends there) of every window that is complete."""
    if not len(own.step):
        return []
    ranks, numbers = np.unique(own.rank), np.unique(own.step)
    at, last_of = np.searchsorted(numbers, own.step), np.full(len(ranks), -1)
    rank_at = np.searchsorted(ranks, own.rank)
    np.maximum.at(last_of, rank_at, at)
    first_of = np.full(len(ranks), len(numbers))
    np.minimum.at(first_of, rank_at, at)
    ended, began = np.zeros(len(numbers), np.int64), np.full(len(numbers), np.iinfo(np.int64).max)
    np.maximum.at(ended, at, own.aligned_ns)
    np.minimum.at(began, at, own.aligned_ns - (own.durations.sum(axis=1) * 1e9).astype(np.int64))
    is_ready = np.ones(len(numbers), bool) if is_last else _ready(ended, last_of, now_ns)
    changes = {**_holes(numbers), **_changes(own, at, first_of, last_of)}
    longest = max(2, min(settings.stage_steps, ROWS_MAX // max(len(ranks), 1)))
    found, start = [], 0
    for i in range(1, len(numbers) + 1):
        closed = _closed(i, start, numbers, ended, began, changes, longest, settings, is_last=is_last)
        if not is_ready[i - 1] or (i == len(numbers) and not closed):
            break
        if closed:
            found.append((int(numbers[start]), int(numbers[i - 1]) + 1, closed))
            start = i
    return found


def _ready(ended: Ints, last_of: Ints, now_ns: int) -> Mask:
    """(T,) steps that every rank has told, or gone beyond, or that are long past; and none after one that is not."""
    is_told = np.arange(len(ended)) <= last_of.min()
    found: Mask = np.logical_and.accumulate(is_told | (ended <= now_ns - SETTLED_NS))
    return found


def _holes(numbers: Ints) -> dict[int, str]:
    """Step (by position) before which so many are missing that what lies before it and after it is not one window."""
    return dict.fromkeys((np.flatnonzero(np.diff(numbers) > LASTING) + 1).tolist(), "steps are missing")


def _changes(own: Steps, at: Ints, first_of: Ints, last_of: Ints) -> dict[int, str]:
    """Step (by position) before which a window is closed → why."""
    found = {}
    for position in np.unique(first_of[first_of > first_of.min()]).tolist():
        found[position] = "a rank joined"
    for position in np.unique(last_of[last_of < last_of.max()] + 1).tolist():
        if _left(own, last_of, position):
            found[position] = "a rank left"
    by_rank = np.lexsort((at, own.rank))
    rank, order = own.rank[by_rank], own.order[by_rank]
    is_same = rank[1:] == rank[:-1]
    found |= dict.fromkeys(at[by_rank][1:][is_same & (order[1:] != order[:-1])].tolist(), "the stages changed")
    return found | dict.fromkeys(_factor_changes(at[by_rank], rank, own.repeats[by_rank]), "the accumulation changed")


def _factor_changes(at: Ints, rank: Ints, repeats: Ints) -> list[int]:
    """Steps (by position) from which a rank's micro-steps are others than before, both for some steps: the last steps of an
    epoch may have fewer, and a window for each would say nothing."""
    first = np.concatenate([[True], (rank[1:] != rank[:-1]) | (repeats[1:] != repeats[:-1])]) if len(rank) else repeats
    starts = np.flatnonzero(first)
    lengths = np.diff(np.append(starts, len(rank)))
    is_kept = (rank[starts[1:]] == rank[starts[:-1]]) & (lengths[1:] >= LASTING) & (lengths[:-1] >= LASTING)
    return [int(one) for one in np.unique(at[starts[1:][is_kept]])]


def _left(own: Steps, last_of: Ints, position: int) -> bool:
    """Whether others went on long after a rank's last step: else its newest rows are still to come."""
    others = own.aligned_ns.max()
    ranks = np.unique(own.rank)[last_of + 1 == position]
    return bool(own.aligned_ns[np.isin(own.rank, ranks)].max() <= others - SETTLED_NS)


def _closed(
    i: int, start: int, numbers: Ints, ended: Ints, began: Ints, changes: dict[int, str], longest: int,
    settings: Settings, *, is_last: bool,
) -> str:  # fmt: skip
    """Why a window that begins at `start` ends before step i; '' when it goes on."""
    if i in changes:
        return changes[i]
    if i - start >= longest:
        return f"{longest} steps"
    if ended[i - 1] - began[start] >= settings.stage_window_ns:
        return f"{settings.stage_window_ns / 1e9:g} s"
    if i < len(numbers) and ended[i] - began[start] > settings.stage_window_ns:
        return f"{settings.stage_window_ns / 1e9:g} s"
    return "the data ends" if is_last and i == len(numbers) else ""


def _made(inside: Steps, schemas: dict[int, Stages], closed: str) -> Cut | None:
    """The window of these steps, of the schema that most of its ranks have; None when not even one step is whole."""
    orders, counts = np.unique(inside.order, return_counts=True)
    order = int(orders[counts.argmax()])
    stages, trouble = schemas.get(order), list[str]()
    if len(orders) > 1:
        n_other = len(np.unique(inside.rank[inside.order != order]))
        trouble.append(f"{n_other} {'rank records' if n_other == 1 else 'ranks record'} other stages than the rest.")
        inside = inside.where(inside.order == order)
    if stages is None:
        return None
    ranks, numbers = np.unique(inside.rank), np.unique(inside.step)
    place = np.searchsorted(numbers, inside.step), np.searchsorted(ranks, inside.rank)
    is_there = np.zeros((len(numbers), len(ranks)), bool)
    is_there[place] = True
    is_whole = np.asarray(is_there.all(axis=1))
    if not is_whole.any():
        return None
    n_stages, n_left_out = len(stages.names), int((~is_whole).sum())
    durations = np.zeros((*is_there.shape, n_stages))
    durations[place] = inside.durations[:, :n_stages]
    ended, flags, overlap = (
        np.zeros(is_there.shape, np.int64),
        np.zeros(is_there.shape, np.int64),
        np.zeros(is_there.shape),
    )
    ended[place], flags[place], overlap[place] = inside.ended_ns, inside.flags, inside.overlap_s
    trouble += _trouble(flags[is_whole], inside, n_left_out=n_left_out, n_steps=len(is_whole))
    kept = is_whole[place[0]]
    spent_ns = (inside.durations[:, :n_stages].sum(axis=1) * 1e9).astype(np.int64)
    return Cut(
        stages, tuple(ranks.tolist()), numbers[is_whole], by_stage(durations[is_whole]), ended[is_whole],
        overlap[is_whole], flags[is_whole], closed, tuple(trouble), int((inside.aligned_ns - spent_ns)[kept].min()),
        int(inside.aligned_ns[kept].max()), n_left_out, int(inside.repeats[kept].max()),
    )  # fmt: skip


def _trouble(flags: Ints, inside: Steps, *, n_left_out: int, n_steps: int) -> list[str]:
    """What the rows say of themselves (Table 11), each in a sentence."""
    said = (
        (WAIT_UNSURE, "which step waited for its data is not known, as batches are fetched ahead"),
        (NESTED_REFUSED, "a stage was opened inside another and left out"),
        (OUT_OF_ORDER, "stages came in another order than declared"),
    )
    ranks = np.unique(inside.rank)
    found = [one for bit, sentence in said for one in _flagged(flags & bit > 0, ranks, sentence)]
    if (flags & GATHER_FAILED > 0).any():
        n = int((flags & GATHER_FAILED > 0).any(axis=0).sum())
        found.append(f"The gather of this window failed or came late for {n} of {flags.shape[1]} ranks.")
    if n_left_out > UNSURE_SHARE * n_steps:
        found.append(f"{n_left_out} of {n_steps} steps are left out: not every rank completed them.")
    if inside.n_bad:
        found.append(f"{inside.n_bad} rows were left out: what they say cannot be a duration.")
    return found


def _flagged(is_flagged: Mask, ranks: Ints, sentence: str) -> list[str]:
    """Of all ranks together, else of the worst one, on which what leads may rest. is_flagged: (T, R)."""
    shares = is_flagged.mean(axis=0)
    worst = int(shares.argmax())
    if shares[worst] <= UNSURE_SHARE:
        return []
    if shares.mean() > UNSURE_SHARE:
        return [f"In {shares.mean():.0%} of the steps {sentence}."]
    return [f"On rank {ranks[worst]}, in {shares[worst]:.0%} of the steps {sentence}."]
