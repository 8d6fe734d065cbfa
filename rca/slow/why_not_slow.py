"""Why a rank, or a part of the culprit, was not blamed for a slowdown: its own share of the lost time, and whom it waits for.

Everything a rank can lose time by itself is measured against its own usual: its work between ops, its GPU's copies, its
NIC's sends. Who has little of all of them has inherited its delay (Mycroft §5.4). Of the culprit's own parts, those at
their usual speed are cleared by name: a NIC whose other channels are as fast as ever is not to blame (case study one).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from nccl_instrument.tables import FUNC_RECV
from rca.findings import Alternative, Component, Evidence, Finding, Subject
from rca.slow.cover import COVERED_MIN, SHARE_MIN, Covered, covered
from rca.slow.inside import Wait
from rca.slow.slowdown import Slowdown
from rca.slow.streams import Floats
from rca.words import capitalised, communicator_names, named

MS = 1_000_000
MOVED_MIN = 0.1  # of the usual: less is the same
# Waiting for a peer's credit is what victims do, so it is no part of what a rank loses by itself.
_WORDS = {
    Wait.COPY: "its GPU takes and hands over chunks",
    Wait.NETWORK: "what it sends stays on the wire",
}
_NOT_WHERE = {
    Wait.COPY: (Component.COPY, Component.GPU),
    Wait.NETWORK: (Component.NIC, Component.NETWORK),
}


@dataclass(frozen=True, slots=True)
class Shares:
    """What every rank of the iterations (R,) loses by itself. own_ns: its work between ops. parts: inside its ops.

    parents: rank → the rank nearer to a suspect and the communicator they share.
    """

    slowdown: Slowdown
    own_ns: Floats
    parts: dict[Wait, Covered]
    parents: dict[int, tuple[int, int]]


def shares_of(slowdown: Slowdown, suspects: Collection[int]) -> Shares:
    """Measured once for all ranks."""
    iterations, inside = slowdown.iterations, slowdown.inside
    where = {Wait.COPY: np.ones(len(iterations.rank), bool), Wait.NETWORK: iterations.func != FUNC_RECV}
    parts = {
        wait: covered(iterations, slowdown.nodes, inside.excess(wait), counts, slowdown.lost_ns)
        for wait, counts in where.items()
    }
    return Shares(slowdown, slowdown.delays.per_iteration_ns(slowdown.slow), parts, _parents(slowdown, suspects))


def cleared(shares: Shares, rank: int) -> Alternative:
    """Why this rank (global) is not what slows the job down."""
    slowdown = shares.slowdown
    subject = Subject("rank", f"rank {rank}", (rank,), _node(slowdown, rank))
    place = np.flatnonzero(slowdown.iterations.ranks == rank)
    if not len(place):
        return Alternative(subject, "No op of it over the network has its place in the iterations of this window.")
    at = int(place[0])
    lost = slowdown.lost_ns
    amounts = {"own work": float(shares.own_ns[at])}
    amounts |= {wait.value: float(part.excess_ns[at]) for wait, part in shares.parts.items()}
    most = max(amounts.values(), default=0.0)
    if most < SHARE_MIN * lost:
        why = (
            f"{_inherits(shares, rank)} By itself it loses at most {most / MS:.1f} of {lost / MS:.1f} ms an iteration."
        )
    else:
        why = _not_all(shares, at, rank, max(amounts, key=lambda name: amounts[name]))
    return Alternative(subject, why, tuple(_evidence(shares, at, rank)))


def slow_alternatives(shares: Shares, findings: Sequence[Finding]) -> list[Alternative]:
    """The parts of the culprit that are at their usual speed, and the rank that comes next."""
    if not findings:
        return []
    best = findings[0]
    found = _other_parts(shares, best) if best.culprits else []
    ranks = shares.slowdown.iterations.ranks
    total = shares.own_ns + np.sum([part.excess_ns for part in shares.parts.values()], axis=0)
    total = np.where(np.isin(ranks, sorted(best.suspects)), 0.0, total)
    if len(total) and total.max() > 0:
        found.append(cleared(shares, int(ranks[total.argmax()])))
    return found


def _inherits(shares: Shares, rank: int) -> str:
    if rank not in shares.parents:
        return "It only waits for the others."
    nearer, comm_id = shares.parents[rank]
    name = communicator_names(shares.slowdown.window, [comm_id])[str(comm_id)] or f"{comm_id:#x}"
    steps, at = 1, nearer
    while at in shares.parents:
        at, steps = shares.parents[at][0], steps + 1
    on = f", {steps} steps on the way to rank {at}" if steps > 1 else ""
    return f"Its delay is inherited: it waits for rank {nearer} in {name}{on}."


def _not_all(shares: Shares, at: int, rank: int, most: str) -> str:
    """Why a rank that loses time by itself is not blamed: not everywhere, less than others, or like all others."""
    if most == "own work":
        return f"Its own work takes {shares.own_ns[at] / MS:.1f} ms longer, but others of its kind or node lose as much or more."
    wait = Wait(most)
    part, said = shares.parts[wait], _WORDS[wait]
    amount = capitalised(f"{said} {part.excess_ns[at] / MS:.1f} ms longer")
    if part.n[at] < COVERED_MIN * part.of[at]:
        few = f"only in {part.n[at]} of {part.of[at]} ops of an iteration"
        return f"{amount}, but {few}: with a fault of its own most would show it."
    if part.is_everybody:
        return f"{amount}, as in {int((part.excess_ns > 0).sum()) - 1} other ranks: no one of them stands out."
    return f"{amount}, in {part.n[at]} of {part.of[at]} ops; {_inherits(shares, rank)} Others show more of it."


def _evidence(shares: Shares, at: int, rank: int) -> list[Evidence]:
    found = [Evidence("own work between ops, more than usual", _ms(shares.own_ns[at]), "ms per iteration", "op", rank)]
    slowdown = shares.slowdown
    places = slowdown.iterations.places_of(at)
    for wait, part in shares.parts.items():
        more = f"{_WORDS[wait]}, more than usual, in {part.n[at]} of {part.of[at]} ops"
        found.append(Evidence(more, _ms(part.excess_ns[at]), "ms per iteration", "op", rank))
    for when, values in (("usually", slowdown.inside.usual), ("now", slowdown.inside.slow)):
        on_wire = values[Wait.NETWORK][places]
        if np.isfinite(on_wire).any():
            what = f"a send's flow is on the wire, {when}"
            found.append(Evidence(what, _ms(float(np.nanmean(on_wire))), "ms per op", "op", rank))
    return found


def _other_parts(shares: Shares, best: Finding) -> list[Alternative]:
    """Parts of the culprits at their usual speed."""
    slowdown, lost = shares.slowdown, shares.slowdown.lost_ns
    at = np.flatnonzero(np.isin(slowdown.iterations.ranks, best.culprits))
    if not len(at):
        return []
    found, who = [], named(best.culprits)
    for wait, components in _NOT_WHERE.items():
        part = shares.parts.get(wait)
        if part is None or best.component in components or part.excess_ns[at].max() >= SHARE_MIN * lost:
            continue
        kind = components[0].value
        why = f"{_WORDS[wait]} as long as usual: {_ms(part.excess_ns[at].max())} of {_ms(lost)} ms lost an iteration"
        channels, facts = _channels(slowdown, at) if wait is Wait.NETWORK else ("", [])
        subject = Subject(kind if kind == "nic" else "rank", f"{kind} of {who}", best.culprits, best.subject.node)
        facts += [Evidence(f"{_WORDS[wait]}, more than usual", _ms(part.excess_ns[at].max()), "ms per iteration", "op")]
        found.append(Alternative(subject, f"{capitalised(why)}.{channels}", tuple(facts)))
    if best.component not in (Component.GPU, Component.NODE) and shares.own_ns[at].max() < SHARE_MIN * lost:
        why = f"Its own work between ops takes {_ms(shares.own_ns[at].max())} ms longer, of {_ms(lost)} ms lost an iteration."
        found.append(Alternative(Subject("gpu", f"compute of {who}", best.culprits, best.subject.node), why))
    return found


def _channels(slowdown: Slowdown, at: np.ndarray[tuple[int], np.dtype[np.int64]]) -> tuple[str, list[Evidence]]:
    """That the fastest flow of the culprits' ops is through as early as ever, though the slowest is not."""
    iterations = slowdown.iterations
    mine = np.concatenate([np.arange(*iterations.places_of(int(one)).indices(len(iterations.rank))) for one in at])
    fast = iterations.column("fastest_done_ns")[mine] - iterations.start_ns - iterations.ready[mine]
    last = iterations.end[mine] - iterations.ready[mine]
    several = (iterations.column("channels")[mine] > 1) & (iterations.column("fastest_done_ns")[mine] > 0)
    fast, last = np.where(several, fast, np.nan), np.where(several, last, np.nan)
    end_was, was = _median(last[:, slowdown.usual]), _median(fast[:, slowdown.usual])
    is_slow = slowdown.slow & (last > (1 + MOVED_MIN) * end_was)  # it may come and go
    end_now, now = _median(last[is_slow]), _median(fast[is_slow])
    if not now <= (1 + MOVED_MIN) * was:  # also where one of them is not known
        return "", []
    slowest = iterations.column("slowest_channel")[mine][is_slow]
    channel = int(np.bincount(slowest.astype(np.int64)).argmax())
    facts = [
        Evidence("fastest channel of its ops is through after, usually", _ms(was), "ms", "op"),
        Evidence("fastest channel of its ops is through after, now", _ms(now), "ms", "op"),
        Evidence(f"slowest channel (mostly {channel}), usually", _ms(end_was), "ms", "op"),
        Evidence(f"slowest channel (mostly {channel}), now", _ms(end_now), "ms", "op"),
    ]
    return f" The other channels are normal: only channel {channel} is slow, and all of them use the network.", facts


def _median(values: Floats) -> float:
    """Of what is known; NaN when nothing is."""
    known = values[np.isfinite(values)]
    return float(np.median(known)) if len(known) else float("nan")


def _parents(slowdown: Slowdown, suspects: Collection[int]) -> dict[int, tuple[int, int]]:
    """Breadth first over shared communicators, away from the suspects; each communicator is crossed once."""
    rows = slowdown.window.members[slowdown.window.members["rank"] >= 0]
    rank, comm = rows["rank"].tolist(), rows["comm_id"].tolist()
    of_rank: dict[int, list[int]] = {}
    of_comm: dict[int, list[int]] = {}
    for one, where in zip(rank, comm, strict=True):
        of_rank.setdefault(one, []).append(where)
        of_comm.setdefault(where, []).append(one)
    found: dict[int, tuple[int, int]] = {}
    seen, crossed, queue = set(suspects), set[int](), deque(sorted(suspects))
    while queue:
        one = queue.popleft()
        for where in sorted(of_rank.get(one, []), key=lambda where: len(of_comm[where])):
            if where in crossed:
                continue
            crossed.add(where)
            for other in of_comm[where]:
                if other not in seen:
                    seen.add(other)
                    found[other] = (one, where)
                    queue.append(other)
    return found


def _node(slowdown: Slowdown, rank: int) -> str:
    at = int(slowdown.ranks.position(np.array([rank], np.int64))[0])
    node = int(slowdown.ranks.node[at]) if at >= 0 else -1
    return str(slowdown.window.nodes["name"][node]) if node >= 0 else ""


def _ms(ns: float) -> float:
    return round(float(ns) / MS, 1)
