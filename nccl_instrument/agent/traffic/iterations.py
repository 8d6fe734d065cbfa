"""Which ops make up an iteration, and which iterations are measured: the same ones on all ranks, without asking each other.

The ops of a training step come again and again in the same order. Of the largest communicator a process is in (the smallest id
among equals) every rank of it sees the same calls, numbered alike; the shortest pattern in which they repeat is an iteration, and
its number is the op's number divided by the pattern's length. What the process enqueued between the first op of one
iteration and that of the next belongs to it, whatever communicator it is on.

Every 2^k-th iteration is measured, k chosen on each node by what its iterations cost: those that all nodes measure are
then the ones of the largest k, instead of none. Where there are no collectives, sends and receives are counted as they come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from nccl_instrument.agent.plain import pick, stack
from nccl_instrument.agent.processes.segment_layout import OP
from nccl_instrument.tables import OP_P2P
from nccl_instrument.wire import Rows

KEPT_CALLS: Final = 8192
PERIOD_MOST: Final = KEPT_CALLS // 4
PERIOD_UNKNOWN: Final = 16  # calls taken together where nothing repeats
SETTLED: Final = 512
PROBES: Final = 16
TRIED_MOST: Final = 64
AGAIN_AFTER: Final = 8
"""Where nothing repeats a period is looked for again after so manieth part of the calls that are known."""
OPS_KEPT: Final = 65_536
SETTLE_NS: Final = 2_000_000_000
"""An op of which no flow is seen is of no interest so long after its iteration: it stays inside the node."""

Ints = npt.NDArray[np.int64]


def shortest_period(calls: Sequence[int] | Ints) -> int:
    """The least p such that the newer half of `calls`, and twice p of them, repeat after p; else such that the newest SETTLED of
    them do, since what they were before may have been something else; PERIOD_UNKNOWN without one.
    """
    kinds = np.asarray(calls)
    periods = np.arange(1, min(PERIOD_MOST, len(kinds) // 3) + 1)
    for back in range(1, min(PROBES, len(kinds) // 3) + 1):  # most are none by the newest calls alone
        periods = periods[kinds[len(kinds) - back - periods] == kinds[len(kinds) - back]]
    for least in (len(kinds) // 2, min(len(kinds) // 2, SETTLED)):
        for p in periods[:TRIED_MOST].tolist():
            n = max(least, 2 * p)
            if np.array_equal(kinds[len(kinds) - n : len(kinds) - p], kinds[len(kinds) - n + p :]):
                return int(p)
    return PERIOD_UNKNOWN


@dataclass(frozen=True, slots=True)
class Iteration:
    """Ops enqueued in [begins_ns, ends_ns). ops: (n,) OP rows that are over. is_whole: nothing of it was lost."""

    number: int
    begins_ns: int
    ends_ns: int
    ops: Rows
    is_whole: bool


@dataclass
class Calls:
    """What one communicator's calls were, by number, the newest KEPT_CALLS."""

    period: int = PERIOD_UNKNOWN
    newest: int = 0
    _numbers: Ints = field(default_factory=lambda: np.full(KEPT_CALLS, -1, np.int64))  # which call each place holds
    _kinds: Ints = field(default_factory=lambda: np.zeros(KEPT_CALLS, np.int64))
    _enqueued_ns: Ints = field(default_factory=lambda: np.zeros(KEPT_CALLS, np.int64))
    _checked: int = 0  # how many calls there were when the period was last looked for
    _n_seen: int = 0

    def add(self, numbers: Ints, kinds: Ints, enqueued_ns: Ints) -> None:
        """Calls in any order; some may have been told before."""
        newest = max(self.newest, int(numbers.max(initial=0)))
        is_kept = (numbers > newest - KEPT_CALLS) & (numbers >= 0)
        numbers, at = numbers[is_kept], numbers[is_kept] % KEPT_CALLS
        self._n_seen += int((self._numbers[at] != numbers).sum())
        self._numbers[at], self._kinds[at], self._enqueued_ns[at] = numbers, kinds[is_kept], enqueued_ns[is_kept]
        self.newest = newest

    def look(self) -> None:
        """Find the period anew when it does not hold any more, or when twice as much is known as at the last look. Where calls
        follow no pattern that is asked for all the time, so some new ones must have come."""
        is_grown = self._n_seen >= 2 * self._checked
        is_due = self._n_seen >= self._checked + max(min(self._checked, KEPT_CALLS) // AGAIN_AFTER, 1)
        if is_grown or (is_due and not self._holds()):
            self.period, self._checked = shortest_period(self._without_hole()), max(self._n_seen, 4)

    def begin(self, iteration: int) -> int:
        """When the first op of that iteration was enqueued; 0 while it was not, or is not known any more."""
        number = iteration * self.period + 1
        at = number % KEPT_CALLS
        return int(self._enqueued_ns[at]) if self._numbers[at] == number else 0

    def iteration_of(self, number: int) -> int:
        return (number - 1) // self.period

    def _holds(self) -> bool:
        """Whether the newest call is as the one a period before it; True where that is not known, False without a period."""
        if self.period == PERIOD_UNKNOWN:
            return False
        before, last = self.newest - self.period, self.newest % KEPT_CALLS
        is_known = before > 0 and self._numbers[before % KEPT_CALLS] == before and self._numbers[last] == self.newest
        return not is_known or bool(self._kinds[last] == self._kinds[before % KEPT_CALLS])

    def _without_hole(self) -> Ints:
        """(n,) kinds of the newest calls that follow each other, oldest first."""
        numbers = np.arange(self.newest - KEPT_CALLS + 1, self.newest + 1)
        at = numbers % KEPT_CALLS
        holes = np.flatnonzero(self._numbers[at] != numbers)
        found: Ints = self._kinds[at[int(holes[-1]) + 1 if len(holes) else 0 :]]
        return found


class Iterations:
    """Of one process. `add` what is known of its ops, then take the iterations that are over."""

    def __init__(self) -> None:
        self.calls = Calls()
        self.governing: tuple[int, int, bool] | None = None  # comm_id, comm_rank, by sends and receives
        self.next: int | None = None
        self.n_dropped = 0
        self._ops = np.zeros(0, OP)
        self._lost_ns = 0

    def add(self, ops: Rows, live: Rows, sizes: dict[int, int]) -> None:
        """ops: those that ended; live: those under way; sizes: comm_id → its ranks."""
        self._ops = stack([self._ops, ops]) if len(ops) else self._ops
        if len(self._ops) > OPS_KEPT:
            self.n_dropped += len(self._ops) - OPS_KEPT
            self._ops = self._ops[-OPS_KEPT:]
        known = stack([ops, live])
        if len(known):
            self._govern(known, sizes)
            self._count(known)

    def lose(self, now_ns: int) -> None:
        """Something was lost: no iteration that was under way until now is whole."""
        self._lost_ns = now_ns

    def over(self, live: Rows, now_ns: int) -> list[Iteration]:
        """The iterations that are over, in order: the next one has begun, and no op of theirs is under way."""
        found = []
        while self.next is not None:
            begins_ns, ends_ns = self.calls.begin(self.next), self.calls.begin(self.next + 1)
            if not ends_ns:
                if self.calls.iteration_of(self.calls.newest) > self.next + 1:
                    self.next += 1  # its first op was never told of
                    continue
                break
            if begins_ns and self._is_under_way(live, ends_ns, now_ns):
                break
            if begins_ns:
                found.append(self._taken(self.next, begins_ns, ends_ns))
            self.next += 1
        return found

    def open_since_ns(self) -> int:
        """Since when the iteration under way is; 0 when that is not known."""
        return self.calls.begin(self.next) if self.next is not None else 0

    @property
    def newest(self) -> int:
        """The iteration in which the newest call is that was told of; -1 when nothing is known."""
        return self.calls.iteration_of(self.calls.newest) if self.next is not None else -1

    def _taken(self, number: int, begins_ns: int, ends_ns: int) -> Iteration:
        at = self._ops["enqueued_ns"]
        mine, self._ops = pick(self._ops, (at >= begins_ns) & (at < ends_ns)), pick(self._ops, at >= ends_ns)
        return Iteration(number, begins_ns, ends_ns, mine, begins_ns > self._lost_ns)

    def _is_under_way(self, live: Rows, ends_ns: int, now_ns: int) -> bool:
        mine = live[live["enqueued_ns"] < ends_ns]
        return bool(len(mine)) and bool((mine["n_flows_begun"] > 0).any() or now_ns - ends_ns < SETTLE_NS)

    def _govern(self, known: Rows, sizes: dict[int, int]) -> None:
        """The communicator that counts iterations; another one than before only when it is larger."""
        has_collectives = self.governing is not None and not self.governing[2]
        is_p2p = (known["flags"] & OP_P2P) != 0
        candidates = pick(known, ~is_p2p) if has_collectives or not is_p2p.all() else known
        if not len(candidates):
            return
        pairs = set(zip(candidates["comm_id"].tolist(), candidates["comm_rank"].tolist(), strict=True))
        by_p2p = bool(is_p2p.all()) and not has_collectives
        best = min(pairs, key=lambda pair: (-sizes.get(pair[0], 0), *pair))
        now = self.governing
        if now is None or (now[2] and not by_p2p) or (
            now[2] == by_p2p and (-sizes.get(best[0], 0), *best) < (-sizes.get(now[0], 0), *now[:2])
        ):  # fmt: skip
            self.governing, self.calls, self.next = (*best, by_p2p), Calls(), None

    def _count(self, known: Rows) -> None:
        assert self.governing is not None
        comm_id, comm_rank, by_p2p = self.governing
        is_p2p = (known["flags"] & OP_P2P) != 0
        mine = pick(known, (known["comm_id"] == comm_id) & (known["comm_rank"] == comm_rank) & (is_p2p == by_p2p))
        if not len(mine):
            return
        numbers = (mine["ordinal"] if by_p2p else mine["op"]).astype(np.int64)
        kinds = (
            mine["func"].astype(np.int64) << 48
            | mine["dtype"].astype(np.int64) << 40
            | mine["bytes"].astype(np.int64) % 2**40
        )
        if (
            by_p2p
        ):  # the same to another peer is another call: one who only sends to several counts as they do who receive
            kinds ^= mine["peer"].astype(np.int64) << 52
        period = self.calls.period
        self.calls.add(numbers, kinds, mine["enqueued_ns"])
        self.calls.look()
        if self.next is None or self.calls.period != period:
            self.next = self.calls.iteration_of(self.calls.newest)
