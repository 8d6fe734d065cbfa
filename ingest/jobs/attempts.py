"""Which attempt of a job a batch belongs to.

A job's name outlives its processes: launchers restart them, people start the same job again. An attempt is one set of
processes. In order: processes we know decide; else the launcher's restart count; else the world size; and when most
ranks of an attempt turn out to have been taken over by other processes, those become a new attempt. Two process sets
of one name that run at once (two steps of one launcher job) stay two attempts, of which the later to begin runs. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

Process = tuple[int, int]
"""(pid, process_started) on the node in question: a pid alone is reused."""


@dataclass(frozen=True, slots=True)
class Declared:
    """What a batch says of its processes. restart_count -1 and world_size 0 are unknown; pids may be known alone."""

    restart_count: int = -1
    world_size: int = 0
    processes: frozenset[Process] = frozenset()
    pids: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class KnownAttempt:
    """An attempt as stored. processes: those of the batch's node. over: ended, or silent for long.

    lives: heard lately, of processes that are not gone, whether it was ended or not.
    """

    id: int
    restart_count: int = -1
    world_size: int = 0
    processes: frozenset[Process] = frozenset()
    over: bool = False
    lives: bool = False


def choose_attempt(declared: Declared, newest_first: Sequence[KnownAttempt]) -> int | None:
    """The id of the attempt the batch belongs to, None when it starts a new one."""
    for attempt in newest_first:
        if declared.processes & attempt.processes:
            return attempt.id
    if not newest_first:
        return None
    if not declared.processes:
        return _by_pids(declared.pids, newest_first)
    newest = newest_first[0]
    beside = [a.id for a in newest_first[1:] if _is_step_beside(declared, a, newest)]
    if beside:
        return beside[0]
    if newest.over or _starts_over(declared, newest):
        return None
    earlier = [a.id for a in newest_first if 0 <= declared.restart_count == a.restart_count]
    return earlier[0] if earlier else newest.id


def is_taken_over(n_replaced: int, n_ranks: int) -> bool:
    """Whether so many of an attempt's ranks run in other processes that it has become another attempt."""
    return 2 * n_replaced > n_ranks


def _by_pids(pids: frozenset[int], newest_first: Sequence[KnownAttempt]) -> int | None:
    for attempt in newest_first:
        if pids & {pid for pid, _ in attempt.processes}:
            return attempt.id
    newest = newest_first[0]
    return None if newest.over and pids else newest.id


def _starts_over(declared: Declared, newest: KnownAttempt) -> bool:
    """New processes that say they are another start. A lower restart count is a late batch of an earlier attempt,
    unless this node's processes have moved on: then somebody started the job again from zero."""
    if declared.restart_count >= 0 and newest.restart_count >= 0:
        if declared.restart_count > newest.restart_count:
            return True
        if declared.restart_count < newest.restart_count:
            return _younger(declared, newest)
    return declared.world_size > 0 and newest.world_size > 0 and declared.world_size != newest.world_size


def _is_step_beside(declared: Declared, earlier: KnownAttempt, newest: KnownAttempt) -> bool:
    """Whether the batch is of an earlier attempt that lives on beside the newest: as large, where that one is not.

    Else each node of two steps that begin together would end the other step's attempt.
    """
    sizes = (declared.world_size, earlier.world_size, newest.world_size)
    is_same = earlier.restart_count == declared.restart_count and sizes[0] == sizes[1]
    return earlier.lives and is_same and 0 not in sizes and sizes[0] != sizes[2]


def _younger(declared: Declared, newest: KnownAttempt) -> bool:
    known = [started for _, started in newest.processes]
    return bool(known) and min(started for _, started in declared.processes) > max(known)
