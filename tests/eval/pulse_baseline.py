"""What the same window says to who knows when ops start and end, and nothing below them (Pulse §2.3: Aegis, Holmes, Greyhound).

It is the comparison of the suite `pulse`, written as the paper describes those systems: fail-stop is told by members that have
not started what their group has, else by the group that hangs; fail-slow by the first op that somebody starts later than
before, else by the group whose ops take longer. Of groups of sends and receives the rank that is slowest, volume over
duration, is named. No counter of a flow and no byte on the wire is read.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from ingest.window import Window
from nccl_instrument.tables import ALGOS, FUNC_RECV, GPU_READY, SEND
from rca.findings import Component, FaultKind, Symptom, SymptomKind
from rca.keys import is_p2p
from rca.slow.iterations import Iterations, iterations_of

Answer = dict[str, Any]
Floats = npt.NDArray[np.float64]
Places = npt.NDArray[np.int64]
Rows = npt.NDArray[np.void]
LATE_NS: Final = 1_000_000.0  # a start that moved by more than clocks and jitter do
LONGER: Final = 1.1  # times as long as before
SLOWER: Final = 0.9  # of the median rate of a group
TREE: Final = ALGOS.index("TREE")
LAST: Final = 10  # collectives that a rate is averaged over


def explain_by_ops(window: Window, symptom: Symptom) -> Answer:
    """An answer in the shape of a diagnosis; without findings where ops say nothing."""
    if symptom.kind is SymptomKind.STRAGGLER:
        return _slow(window, symptom.at_ns)
    return _stopped(window)


# ---- fail-stop ----


def _stopped(window: Window) -> Answer:
    """A collective that all have started and nobody ends; sends and receives with both ends started; else who never starts."""
    live, started = _newest(window, "live_op"), _started(window)
    hung, missing = list[tuple[int, int]](), list[tuple[int, tuple[int, ...]]]()
    for comm_id in np.unique(live["comm_id"]).tolist():
        rows = live[(live["comm_id"] == comm_id) & (live["func"] != FUNC_RECV)]
        members = set(window.members["rank"][window.members["comm_id"] == comm_id].tolist())
        mine = {rank for comm, rank in started if comm == comm_id}
        if len(rows) and mine and members - mine:
            missing.append((int(rows["enqueued_ns"].min()), tuple(sorted(members - mine))))
        elif len(rows) and mine:
            hung.append((int(rows["enqueued_ns"].min()), comm_id))
    if hung and (not missing or min(hung)[0] <= min(missing)[0]):
        return _hung(window, live[live["comm_id"] == min(hung)[1]])
    if missing:
        return _answer(Component.PROCESS, FaultKind.COMPUTATION_FAIL_STOP, min(missing)[1])
    return _nobody()


def _newest(window: Window, table: str) -> Rows:
    """What each rank's node told last."""
    rows = window.rows(table)
    rows = rows[rows["rank"] >= 0]
    last = np.zeros(int(rows["rank"].max(initial=0)) + 1, np.int64)
    np.maximum.at(last, rows["rank"], rows["tick_ns"])
    return rows[rows["tick_ns"] == last[rows["rank"]]]


def _started(window: Window) -> set[tuple[int, int]]:
    """(communicator, rank) whose kernel runs the op under way, as an event before it would tell: it has filled a slot."""
    flow = _newest(window, "flow")
    flow = flow[(flow["direction"] == SEND) & (flow["counters"][:, GPU_READY] > 0)]
    return set(zip(flow["comm_id"].tolist(), flow["rank"].tolist(), strict=True))


def _hung(window: Window, group: Rows) -> Answer:
    if not is_p2p(group).any():
        members = window.members["rank"][window.members["comm_id"] == group["comm_id"][0]]
        return _answer(Component.NETWORK, FaultKind.COMMUNICATION_FAIL_STOP, (), tuple(members.tolist()))
    sides = np.concatenate([group["rank"], _peers(window, group)])
    ranks, n = np.unique(sides[sides >= 0], return_counts=True)
    return _answer(Component.NETWORK, FaultKind.COMMUNICATION_FAIL_STOP, tuple(ranks[n == n.max()].tolist()))


def _peers(window: Window, rows: Rows) -> npt.NDArray[np.int64]:
    """(n,) global rank of the other end of each send or receive."""
    members = window.members[window.members["comm_id"] == rows["comm_id"][0]]
    by_place = dict(zip(members["comm_rank"].tolist(), members["rank"].tolist(), strict=True))
    return np.array([by_place.get(int(peer), -1) for peer in rows["peer"]], np.int64)


# ---- fail-slow ----


def _slow(window: Window, since_ns: int) -> Answer:
    iterations = iterations_of(window)
    before, after = (
        iterations.began < since_ns - iterations.start_ns,
        iterations.began >= since_ns - iterations.start_ns,
    )
    those = [np.flatnonzero(part.all(axis=0)) for part in (before, after)]
    if not iterations.n or min(map(len, those)) < 2:
        return _nobody()
    judged = (_judged(iterations, at, *those) for at in _calls(iterations))
    found = [one for one in judged if one is not None]
    if not found:
        return _nobody()
    _, rank, at = min(found, key=lambda one: one[0])
    if rank >= 0:
        return _answer(Component.GPU, FaultKind.COMPUTATION_FAIL_SLOW, (rank,))
    members = tuple(window.members["rank"][window.members["comm_id"] == iterations.comm_id[at[0]]].tolist())
    if not is_p2p(iterations.ops[iterations.row[at].max(axis=1)]).any():
        return _answer(Component.NETWORK, FaultKind.COMMUNICATION_FAIL_SLOW, (), members)
    mine = np.flatnonzero(iterations.comm_id == iterations.comm_id[at[0]])
    return _slowest(iterations, mine, those[1][-LAST:], members)


def _calls(iterations: Iterations) -> list[Places]:
    """The places of each call of a group: the same op of the iteration at every member."""
    _, of = np.unique(np.stack([iterations.comm_id.astype(np.int64), iterations.order]), axis=1, return_inverse=True)
    order = np.argsort(of.ravel(), kind="stable")
    return [at for at in np.split(order, np.cumsum(np.bincount(of.ravel()))[:-1]) if len(at) > 1]


def _judged(iterations: Iterations, at: Places, before: Places, after: Places) -> tuple[float, int, Places] | None:
    """(when in the iteration, who starts late against the group or -1 where the op only takes longer, its places)."""
    if (iterations.ops["algo"][iterations.row[at].max(axis=1)] == TREE).any():
        return None  # when its kernel starts is not known: in a tree the first chunk waits for the children's
    began = iterations.began.min(axis=0)[None, :]
    usual, now = (_median((iterations.ready[at] - began)[:, those]) for those in (before, after))
    lasted, lasts = (_median((iterations.end[at] - iterations.ready[at])[:, those]) for those in (before, after))
    known = np.isfinite(usual) & np.isfinite(now) & np.isfinite(lasted) & np.isfinite(lasts)
    if not known.any():
        return None
    own, when = (now - usual) - np.median((now - usual)[known]), float(usual[known].min())
    own[~known] = -np.inf
    if own.max() > LATE_NS:
        return when, int(iterations.rank[at[int(own.argmax())]]), at
    is_longer = np.median(lasts[known]) > max(LONGER * np.median(lasted[known]), np.median(lasted[known]) + LATE_NS / 4)
    return (when, -1, at) if is_longer else None


def _slowest(
    iterations: Iterations, mine: npt.NDArray[np.int64], those: npt.NDArray[np.int64], members: tuple[int, ...]
) -> Answer:
    """Observed rates: bytes of a rank's sends and receives over the time they took."""
    n_bytes, lasted = (
        iterations.column("bytes")[np.ix_(mine, those)],
        (iterations.end - iterations.ready)[np.ix_(mine, those)],
    )
    ranks = np.unique(iterations.rank[mine])
    rates = np.array([
        np.nansum(n_bytes[iterations.rank[mine] == rank]) / max(float(np.nansum(lasted[iterations.rank[mine] == rank])), 1.0)
        for rank in ranks
    ])  # fmt: skip
    slow = ranks[rates < SLOWER * np.median(rates)]
    if not len(slow):
        return _answer(Component.NETWORK, FaultKind.COMMUNICATION_FAIL_SLOW, (), members)
    return _answer(Component.NETWORK, FaultKind.COMMUNICATION_FAIL_SLOW, tuple(slow.tolist()))


def _median(values: Floats) -> Floats:
    """(n,) over iterations; NaN where nothing is known."""
    found = np.full(len(values), np.nan)
    known = np.isfinite(values).any(axis=1)
    found[known] = np.nanmedian(values[known], axis=1)
    return found


# ---- answers ----


def _answer(component: Component, kind: FaultKind, culprits: tuple[int, ...], group: tuple[int, ...] = ()) -> Answer:
    ends = [{"ranks": [rank]} for rank in group]
    found = {"culprits": culprits, "tied": ends, "subject": {"kind": "communicator", "ranks": list(group)},
             "component": component.value, "kind": kind.value}  # fmt: skip
    whom = f"ranks {list(culprits)}" if culprits else f"the group of ranks {list(group)}"
    return {"verdict": f"ops alone: {kind.value} of {whom}", "findings": [found]}


def _nobody() -> Answer:
    return {"verdict": "ops alone: nothing", "findings": []}
