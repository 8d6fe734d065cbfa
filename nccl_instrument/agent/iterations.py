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
from nccl_instrument.agent.segment_layout import OP
from nccl_instrument.tables import OP_P2P
from nccl_instrument.wire import Rows

KEPT_CALLS: Final = 1024
PERIOD_MOST: Final = KEPT_CALLS // 4
PERIOD_UNKNOWN: Final = 16  # calls taken together where nothing repeats
OPS_KEPT: Final = 65_536
SETTLE_NS: Final = 2_000_000_000
"""An op of which no flow is seen is of no interest so long after its iteration: it stays inside the node."""

Ints = npt.NDArray[np.int64]


def shortest_period(calls: Sequence[int]) -> int:
    """The least p such that the newer half of `calls`, and twice p of them, repeat after p; PERIOD_UNKNOWN without one."""
    kinds = np.asarray(calls)
    for p in range(1, min(PERIOD_MOST, len(kinds) // 3) + 1):
        n = max(len(kinds) // 2, 2 * p)
        if np.array_equal(kinds[len(kinds) - n : len(kinds) - p], kinds[len(kinds) - n + p :]):
            return p
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
    """What one communicator's calls were, by number, the newest KEPT_CALLS without a hole between them."""

    kinds: dict[int, int] = field(default_factory=dict)
    enqueued_ns: dict[int, int] = field(default_factory=dict)
    period: int = PERIOD_UNKNOWN
    _checked: int = 0  # how many calls there were when the period was last looked for
    _n_seen: int = 0

    def add(self, numbers: Ints, kinds: Ints, enqueued_ns: Ints) -> None:
        """Calls in any order; some may have been told before."""
        for number, kind, at_ns in zip(numbers.tolist(), kinds.tolist(), enqueued_ns.tolist(), strict=True):
            self._n_seen += number not in self.kinds
            self.kinds[number], self.enqueued_ns[number] = kind, at_ns
        if len(self.kinds) > KEPT_CALLS:
            for number in sorted(self.kinds)[: len(self.kinds) - KEPT_CALLS]:
                del self.kinds[number], self.enqueued_ns[number]

    def look(self) -> None:
        """Find the period anew when it does not hold any more, or when twice as much is known as at the last look."""
        numbers = sorted(self.kinds)
        first = next((at for at in range(len(numbers) - 1, 0, -1) if numbers[at] - numbers[at - 1] != 1), 0)
        calls = [self.kinds[number] for number in numbers[first:]]
        if self._n_seen >= 2 * self._checked or (len(calls) > self.period and not _holds(calls, self.period)):
            self.period, self._checked = shortest_period(calls), max(self._n_seen, 4)

    def begin(self, iteration: int) -> int:
        """When the first op of that iteration was enqueued; 0 while it was not, or is not known any more."""
        return self.enqueued_ns.get(iteration * self.period + 1, 0)

    def iteration_of(self, number: int) -> int:
        return (number - 1) // self.period

    @property
    def newest(self) -> int:
        return max(self.kinds, default=0)


def _holds(calls: Sequence[int], period: int) -> bool:
    return calls[-1] == calls[-1 - period]


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
        if by_p2p:  # the same to another peer is another call: one who only sends to several counts as they do who receive
            kinds ^= mine["peer"].astype(np.int64) << 52
        period = self.calls.period
        self.calls.add(numbers, kinds, mine["enqueued_ns"])
        self.calls.look()
        if self.next is None or self.calls.period != period:
            self.next = self.calls.iteration_of(self.calls.newest)
