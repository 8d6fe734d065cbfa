"""Table 4 over time and across ranks: what each rank does from step to step, and in which condition it stands still.

    rank 3  ▬▬▬▬▬▬ moves ▬▬▬▬▬▬┃███ not delivered, its own side ███     one row per rank, one cell per step; cells that
    rank 5  ▬▬▬▬▬▬ moves ▬▬▬▬▬▬▬▬┃▒▒ GPU not ready, the other side ▒    are alike and follow each other are one span
                               fault

rca/hang/table4.py tells the condition where things came to rest; here the same conditions and verdicts are read at every step
of the window, so that a person sees who stood still first and who followed. A picture to look at: no rule uses it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import DIRECTIONS, PROCESS_GONE, RECEIVE, SEND
from rca.findings import NodeClock, State
from rca.hang.pairs import ABSENT, SEEN, Pairs
from rca.hang.table4 import LOCAL, REMOTE, UNDECIDED, holds, verdicts
from rca.hang.transport import with_transport
from rca.keys import Ints, Rows, is_p2p, latest, mix, op_keys
from rca.ranks import STOPPED as STOPPED_LETTER
from rca.ranks import ZOMBIE
from rca.settings import DEFAULT, SECOND_NS, Settings

TABLES: Final = ("flow", "live_op", "progress", "process")
STEP_NS: Final = SECOND_NS // 2
STEPS_MAX: Final = 240
STILL_NS: Final = SECOND_NS // 2  # as the page's lanes mark a flow that stands
HEARD_NS: Final = 3 * SECOND_NS // 2  # processes are told of once a second
RANKS_MAX: Final = 128

MOVES, BETWEEN, NOT_VISIBLE, STOPPED, GONE, UNHEARD = (
    "moves", "between_ops", "not_visible", "stopped", "gone", "unheard",
)  # fmt: skip
"""What a rank does that is none of Table 4's conditions: an op of its moves; it is in none; it is in one that shows no
network flow; its process is stopped, or gone; nothing is heard of it."""
OWN_END: Final = frozenset(
    {(RECEIVE, State.NOT_TRANSMITTED), (RECEIVE, State.NOT_DELIVERED), (SEND, State.GPU_NOT_READY)}
)
"""Conditions whose verdict Table 4 draws from this end alone."""
_STATES: Final = tuple(State)
_CODES: Final = (*(state.value for state in _STATES), MOVES, BETWEEN, NOT_VISIBLE, STOPPED, GONE, UNHEARD)
_CODE: Final = {name: code for code, name in enumerate(_CODES)}
_VERDICTS: Final = ("", LOCAL, REMOTE, UNDECIDED)


@dataclass(frozen=True, slots=True)
class Span:
    """One rank does the same from from_ns to to_ns. doing: a State of Table 4 or one of the words above.

    For a condition: verdict ("local", "remote" or "undecided", as both ends' counters support it), and the flow that shows it
    as it stood last: peer_rank -1 unknown; counters as in Condition. Else empty.
    """

    rank: int
    from_ns: int
    to_ns: int
    doing: str
    verdict: str = ""
    comm_id: str = ""
    comm_name: str = ""
    op: int = 0
    peer_rank: int = -1
    channel: int = -1
    direction: str = ""
    counters: tuple[int, ...] = ()
    total_chunks: int = 0


@dataclass(frozen=True, slots=True)
class Standing:
    """Spans of these ranks over [from_ns, to_ns), by rank in the order asked for and by time. omitted: ranks left out."""

    from_ns: int
    to_ns: int
    step_ns: int
    ranks: tuple[int, ...]
    spans: tuple[Span, ...]
    omitted: int


@dataclass(frozen=True, slots=True)
class _Cells:
    """(R, S) what each rank does in each step, the verdict, and the flow row that tells it (-1: none)."""

    doing: Ints
    verdict: Ints
    row: Ints


def standing(
    window: Window, ranks: Sequence[int], clocks: Sequence[NodeClock] = (), settings: Settings = DEFAULT
) -> Standing:
    """What `ranks` did over the window. clocks: offsets of nodes, put right where they are larger than their error."""
    wanted = tuple(dict.fromkeys(ranks))
    shown = wanted[:RANKS_MAX]
    span_ns = max(window.end_ns - window.start_ns, 1)
    step_ns = max(STEP_NS, span_ns // STEPS_MAX)
    axis = _Axis(window, np.array(shown, np.int64), step_ns, max(1, span_ns // step_ns), _ahead(window, clocks))
    flow = axis.placed(window.rows("flow"))
    cells, named = _cells(axis, flow, settings), _Named(window)
    found = [span for at in range(len(shown)) for span in _spans(axis, cells, flow, named, at)]
    return Standing(window.start_ns, window.end_ns, step_ns, shown, tuple(found), len(wanted) - len(shown))


@dataclass(frozen=True, slots=True)
class _Axis:
    """Where a row lies in the picture."""

    window: Window
    ranks: Ints
    step_ns: int
    n_steps: int
    ahead_ns: Ints  # (N + 1,) by how much each node's clock is ahead; the last: no node

    def step_of(self, rows: Rows) -> Ints:
        """(n,) step of each row on the one clock; outside the picture where it is below 0 or not below n_steps."""
        at = (rows["tick_ns"] - self.ahead_ns[rows["node"]] - self.window.start_ns) // self.step_ns
        found: Ints = np.where(at == self.n_steps, at - 1, at)  # what was seen at the very end
        return found

    def cells_of(self, rows: Rows) -> tuple[Ints, Ints]:
        """Row and step of the picture each trace row lies in; row -1: of a rank that is not shown."""
        return self.place_of(rows["rank"].astype(np.int64)), self.step_of(rows)

    def time_of(self, step: int) -> int:
        """When a step begins; of the one after the last: when the window ends."""
        return self.window.end_ns if step == self.n_steps else self.window.start_ns + step * self.step_ns

    def placed(self, rows: Rows) -> Rows:
        """The rows inside the picture's time, of any rank: the other end of a flow may be of one that is not shown."""
        step = self.step_of(rows)
        return rows[(step >= 0) & (step < self.n_steps) & (rows["rank"] >= 0)]

    def place_of(self, rank: Ints) -> Ints:
        """(n,) row of the picture, -1 for ranks that are not shown."""
        order = np.argsort(self.ranks, kind="stable")
        at = np.minimum(np.searchsorted(self.ranks[order], rank), max(len(order) - 1, 0))
        if not len(order):
            return np.full(len(rank), -1, np.int64)
        return np.where(self.ranks[order][at] == rank, order[at], -1)


def _ahead(window: Window, clocks: Sequence[NodeClock]) -> Ints:
    known: Mapping[str, int] = {one.node: one.offset_ns for one in clocks if abs(one.offset_ns) > one.error_ns}
    return np.array([*(known.get(str(name), 0) for name in window.nodes["name"]), 0], np.int64)


def _cells(axis: _Axis, flow: Rows, settings: Settings) -> _Cells:
    shape = len(axis.ranks), axis.n_steps
    doing = np.full(shape, _CODE[UNHEARD], np.int64)
    verdict, row = np.zeros(shape, np.int64), np.full(shape, -1, np.int64)
    process = _processes(axis)
    doing[process > 0] = _CODE[BETWEEN]
    for table, word in (("progress", BETWEEN), ("live_op", NOT_VISIBLE)):
        at, step = axis.cells_of(axis.placed(axis.window.rows(table)))
        doing[at[at >= 0], step[at >= 0]] = _CODE[word]
    telling, code, side = _telling(axis, flow, settings)
    at, step = axis.cells_of(flow[telling])
    doing[at, step], verdict[at, step], row[at, step] = code, side, telling
    for letter, word in ((_STOPPED, STOPPED), (_GONE, GONE)):
        doing[process == letter], verdict[process == letter], row[process == letter] = _CODE[word], 0, -1
    return _Cells(doing, verdict, row)


_ALIVE, _STOPPED, _GONE = 1, 2, 3


def _processes(axis: _Axis) -> Ints:
    """(R, S) what is known of each rank's process, 0 nothing: every news of it holds for HEARD_NS, unless newer news come."""
    found = np.zeros((len(axis.ranks), axis.n_steps), np.int64)
    rows = axis.placed(axis.window.rows("process"))
    rows = rows[np.argsort(rows["tick_ns"], kind="stable")]
    is_gone = (rows["alive"] == 0) | (rows["state"] == PROCESS_GONE) | (rows["state"] == ZOMBIE)
    known = np.select([is_gone, rows["state"] == STOPPED_LETTER], [_GONE, _STOPPED], _ALIVE)
    at, step = axis.cells_of(rows)
    for later in reversed(range(-(-HEARD_NS // axis.step_ns))):
        inside = (at >= 0) & (step + later < axis.n_steps)
        found[at[inside], step[inside] + later] = known[inside]
    return found


def _telling(axis: _Axis, flow: Rows, settings: Settings) -> tuple[Ints, Ints, Ints]:
    """Of each shown rank in each step the flow row that tells most, what the rank does, and the verdict; rows of `flow`.

    A flow that began and rests tells more than one that moves, and that more than one that has not begun: an op queued
    behind another is no trouble. Of those that rest, data on its way tells more than none to send, and what a rank waits to
    receive more than what it therefore cannot send; then what both ends decide.
    """
    newest, code, side = _conditions(axis, flow, settings)
    rows = flow[newest]
    at, step = axis.cells_of(rows)
    is_still = (rows["stuck_ns"] >= STILL_NS) & (code != _CODE[MOVES])
    rests = is_still & (code != _CODE[State.NOT_STARTED])
    starves = code == _CODE[State.GPU_NOT_READY]
    tells = np.select([rests & ~starves, rests & (rows["direction"] != SEND), rests, ~is_still], [0, 1, 2, 3], 4)
    undecided = side == _VERDICTS.index(UNDECIDED)
    order = np.lexsort((rows["op"], -rows["stuck_ns"], undecided, tells, step, at))
    cell = np.stack([at, step])[:, order]
    first = order[np.append(True, (cell[:, 1:] != cell[:, :-1]).any(axis=0))[: len(order)]]
    first = first[at[first] >= 0]
    moves = ~is_still[first]
    return newest[first], np.where(moves, _CODE[MOVES], code[first]), np.where(moves, 0, side[first])


def _conditions(axis: _Axis, flow: Rows, settings: Settings) -> tuple[Ints, Ints, Ints]:
    """The newest row of every flow of every op in every step, its condition and the verdict; rows of `flow`."""
    is_send = flow["direction"] == SEND
    mine, peer = flow["comm_rank"].astype(np.int64), flow["peer"].astype(np.int64)
    sender, receiver = np.where(is_send, mine, peer), np.where(is_send, peer, mine)
    key = mix(op_keys(flow), flow["channel"], sender, receiver, axis.step_of(flow))
    newest = latest(mix(key, is_send.astype(np.int64)), flow["tick_ns"])
    rows = flow[newest]
    _, first, pair_of = np.unique(key[newest], return_index=True, return_inverse=True)
    pairs = with_transport(_paired(rows, first, pair_of, sender[newest], receiver[newest]), settings)
    code, side = np.full(len(rows), _CODE[MOVES], np.int64), np.zeros(len(rows), np.int64)
    is_open = rows["counters"][:, 3] < rows["total_chunks"]
    for state, mask in reversed(holds(rows["counters"].astype(np.int64)).items()):
        code[mask & is_open] = _CODE[state]
    sees_both = ((pairs.sender_end == SEEN) & (pairs.receiver_end == SEEN))[pair_of]
    for (direction, state), said in verdicts(pairs).items():
        # Nobody is said to be at fault whose side was not read.
        may = sees_both | ((direction, state) in OWN_END)
        told = np.select([said[pair_of] == LOCAL, said[pair_of] == REMOTE], [1, 2], 3)
        chosen = (code == _CODE[state]) & (rows["direction"] == direction)
        side[chosen] = np.where(may, told, _VERDICTS.index(UNDECIDED))[chosen]
    return newest, code, side


def _paired(rows: Rows, first: Ints, pair_of: Ints, sender: Ints, receiver: Ints) -> Pairs:
    """Both ends side by side, as rca/hang/pairs.py has them; sender and receiver are ranks of the communicator here."""
    n, counters = len(first), rows["counters"].astype(np.int64)
    ends, counted = [], []
    for is_mine in (rows["direction"] == SEND, rows["direction"] != SEND):
        end, of_end = np.full(n, ABSENT, np.int64), np.zeros((n, 4), np.int64)
        end[pair_of[is_mine]], of_end[pair_of[is_mine]] = SEEN, counters[is_mine]
        ends.append(end)
        counted.append(of_end)
    total, still = np.zeros(n, np.int64), np.full(n, np.iinfo(np.int64).max)
    np.maximum.at(total, pair_of, rows["total_chunks"].astype(np.int64))
    np.minimum.at(still, pair_of, rows["stuck_ns"])
    one = rows[first]
    _, comm = np.unique(one["comm_id"], return_inverse=True)
    return Pairs(
        comm=comm.astype(np.int64), op=one["op"].astype(np.int64), key=op_keys(one), p2p=is_p2p(one),
        channel=one["channel"].astype(np.int64), transport=one["transport"].astype(np.int64),
        sender=sender[first], receiver=receiver[first], sent=counted[0], taken=counted[1], total=total,
        sender_end=ends[0], receiver_end=ends[1], still_ns=still,
    )  # fmt: skip


def _spans(axis: _Axis, cells: _Cells, flow: Rows, named: _Named, at: int) -> Iterator[Span]:
    """The spans of one rank: neighbours that do the same, with the flow as it stood last."""
    doing, verdict = cells.doing[at], cells.verdict[at]
    changes = np.flatnonzero((np.diff(doing) != 0) | (np.diff(verdict) != 0)) + 1
    runs = list(pairwise([0, *changes.tolist(), axis.n_steps]))
    begins = [_since(axis, cells, flow, at, first) for first, _ in runs]
    for n, (first, end) in enumerate(runs):
        until_ns = begins[n + 1] if n + 1 < len(runs) else axis.window.end_ns
        if until_ns <= begins[n]:  # what it seemed to move in was the first part of standing still
            continue
        span = Span(int(axis.ranks[at]), begins[n], until_ns, _CODES[doing[first]])
        row = int(cells.row[at, end - 1])
        is_condition = doing[first] < len(_STATES)
        yield _with_flow(span, _VERDICTS[verdict[first]], flow[row], named) if is_condition else span


def _since(axis: _Axis, cells: _Cells, flow: Rows, at: int, first: int) -> int:
    """When the span that begins with this step began: what stands still says since when, more finely than steps do."""
    begins = axis.time_of(first)
    if first == 0 or cells.doing[at, first] >= len(_STATES) or cells.doing[at, first - 1] != _CODE[MOVES]:
        return begins
    row = flow[cells.row[at, first]]
    moved_ns = int(row["tick_ns"] - axis.ahead_ns[row["node"]] - row["stuck_ns"])
    return min(
        max(moved_ns, axis.time_of(first - 1) - STILL_NS, axis.time_of(_run_start(cells, at, first - 1))), begins
    )


def _run_start(cells: _Cells, at: int, step: int) -> int:
    """The first step of the span that this step belongs to."""
    differs = np.flatnonzero(cells.doing[at, :step] != cells.doing[at, step])
    return int(differs[-1]) + 1 if len(differs) else 0


def _with_flow(span: Span, verdict: str, row: np.void, named: _Named) -> Span:
    comm_id = int(row["comm_id"])
    return replace(
        span, verdict=verdict, comm_id=f"{comm_id:016x}", comm_name=named.comm.get(comm_id, ""), op=int(row["op"]),
        peer_rank=named.rank.get((comm_id, int(row["peer"])), -1), channel=int(row["channel"]),
        direction=DIRECTIONS[int(row["direction"])], counters=tuple(int(one) for one in row["counters"]),
        total_chunks=int(row["total_chunks"]),
    )  # fmt: skip


class _Named:
    """Names of communicators, and the global rank of each of their members."""

    def __init__(self, window: Window) -> None:
        ids = window.members["comm_id"].tolist()
        self.comm = dict(zip(ids, window.members["name"].tolist(), strict=True))
        places = zip(ids, window.members["comm_rank"].tolist(), strict=True)
        self.rank = dict(zip(places, window.members["rank"].tolist(), strict=True))
