"""The fewest ends that all slow connections share: of NICs, those that are slow towards everybody they talk to.

    1 ──▶ 2 ══▶ 3 ══▶ 4 ──▶ 5      3 is slow both ways; 2 and 4 only towards 3: one end explains all
    1 ══▶ 2 ══▶ 3 ──▶ 4            2 explains all;  2 ══▶ 3 ══▶ 4 ══▶ 5 needs both 3 and 4

Where another end would explain as much, which of the two it is cannot be told. Nor can it where all connections of some ends
are slow and no one end explains them: of a ring, every second end, the others, or all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from rca.keys import Ints, Mask, distinct
from rca.slow.edges import Edges
from rca.slow.streams import Floats

GROWN_MIN = 0.25  # of its usual time: less is not slow
SLOW_MIN = 0.3  # of how much the connection grew that costs most: the others of a slow end are about as slow
COSTS_MIN = 0.5  # of what that one costs: as slow, though what it carried was on the wire for longer before
COVERED = 0.9  # of what the slow connections cost
OWN_MIN = 0.6  # of its own connections
ALL_MIN = 0.9  # of them, of an end that is asked for little besides what others explain
SENT_MIN = 3  # connections to different ends, all slow: two of them may be slow themselves
LEFT_MIN = 0.5  # of what its connections cost: less, and those that others explain do not speak for it
BESIDE_MIN = 0.3  # of what the connections of the first end cost
ELSEWHERE_MIN = 0.5  # of the costliest connection: less, elsewhere, may be how others fell in line with it
EVERYBODY = 0.85  # of all connections
EVERYBODY_MIN = 4  # ends
ALIKE_MIN = 0.5  # of the factor by which the costliest grew
FELT_MIN = 0.1  # of what that one costs: less may be a latency
ELSEWHERE_SHARE = 0.5  # of as many connections as can stand beside each other there: one way of a pair is enough
NEEDED_MIN = 0.25  # of all ends, to explain what is slow: so many parts do not break at once


@dataclass(frozen=True, slots=True)
class Ends:
    """sender, receiver, usual_ns, now_ns, lasted_ns: (C,) of the connections between ends, -1 where the receiver is not
    known. is_slow: (C,). chosen: the fewest ends that explain what is slow; rivals: of each, the ends that would do as well.
    unexplained: the slow connections that no end is slow enough for. undecided: groups of ends nearly all of whose
    connections are slow, which several choices would explain. is_everybody: nearly all of the job's are. is_half: about
    half of the ends would explain that.
    """

    sender: Ints
    receiver: Ints
    usual_ns: Floats
    now_ns: Floats
    lasted_ns: Floats
    is_slow: Mask
    chosen: tuple[int, ...]
    rivals: tuple[tuple[int, ...], ...]
    unexplained: Ints
    undecided: tuple[tuple[int, ...], ...]
    is_everybody: bool
    is_half: bool

    def touched(self, end: int) -> Mask:
        """(C,) the connections of this end."""
        found: Mask = (self.sender == end) | (self.receiver == end)
        return found


@dataclass(frozen=True, slots=True)
class _Shares:
    """The ends (N,), ascending; and of each connection (C,) which of them it goes from and to, -1 where that is not known.

    own: (N,) share of an end's connections that are slow; of those it sends, where these go to several and so are told
    apart, and it may be slow in them alone (sends_alone). slow: (C,).
    """

    ends: Ints
    of_sender: Ints
    of_receiver: Ints
    own: Floats
    sends_alone: Mask
    slow: Mask

    def beside(self, explained: Mask) -> Floats:
        """(N,) as `own`, without the slow ones of these connections (C,): those that are fast with a slow end speak the more."""
        share = self.summed(self.slow & ~explained) / np.maximum(self.summed(~(explained & self.slow)), 1.0)
        found: Floats = np.where(self.sends_alone, self.own, share)
        return found

    def of(self, end: int) -> float:
        return float(self.own[np.searchsorted(self.ends, end)])

    def summed(self, values: Floats | Mask) -> Floats:
        """(N,) of each end the sum of its connections' values."""
        known = self.of_receiver >= 0
        return _by_end(values, self.of_sender, len(self.ends)) + _by_end(
            values[known], self.of_receiver[known], len(self.ends)
        )


def _by_end(values: Floats | Mask, of: Ints, n: int) -> Floats:
    return np.bincount(of, weights=values, minlength=n).astype(np.float64)


def _shares(sender: Ints, receiver: Ints, slow: Mask, senders: frozenset[int]) -> _Shares:
    """senders: the ends that are also judged by what they send."""
    ends = distinct(np.concatenate([sender, receiver[receiver != -1]])).astype(np.int64)
    of_sender, n = np.searchsorted(ends, sender).astype(np.int64), len(ends)
    of_receiver = np.where(receiver != -1, np.searchsorted(ends, receiver), -1).astype(np.int64)
    found = _Shares(ends, of_sender, of_receiver, np.zeros(n), np.zeros(n, bool), slow)
    share = found.summed(slow) / np.maximum(found.summed(np.ones(len(slow))), 1.0)
    known = receiver >= 0
    n_sent, n_slow = (_by_end(one[known], of_sender[known], n) for one in (np.ones(len(slow)), slow))
    alone = np.isin(ends, list(senders)) & (n_sent >= SENT_MIN) & (n_slow == n_sent)
    return replace(found, own=np.where(alone, 1.0, share), sends_alone=alone)


def ends_of(edges: Edges, end_of: Ints, grown_min: float = GROWN_MIN, senders: frozenset[int] = frozenset()) -> Ends:
    """What explains the slow ones of `edges`. end_of: (R,) the end of each rank: its NIC, or itself. grown_min: of their usual
    time, from which connections are slow. senders: the ends that may be slow in what they send alone.
    """
    sender = end_of[edges.sender]
    receiver = np.where(edges.receiver >= 0, end_of[np.maximum(edges.receiver, 0)], -1)
    _, first, of = np.unique(np.stack([sender, receiver]), axis=1, return_index=True, return_inverse=True)
    of = of.ravel()
    usual, now, lasted = (
        np.bincount(of, weights=one, minlength=len(first)).astype(np.float64)
        for one in (edges.usual_ns, edges.now_ns, edges.lasted_ns)
    )
    sender, receiver = sender[first], receiver[first]
    carries = (usual > 0) & (sender != receiver)
    sender, receiver, usual, now, lasted = (one[carries] for one in (sender, receiver, usual, now, lasted))
    slow = _slow(usual, now, grown_min)
    cost = np.where(slow, now - usual, 0.0)
    share_of = _shares(sender, receiver, slow, senders)
    chosen, left = _fewest(share_of, cost)
    n_ends = len(np.unique(sender[receiver >= 0]))
    if len(chosen) > 1 and n_ends >= EVERYBODY_MIN and slow[receiver >= 0].mean() >= EVERYBODY:
        is_half, nothing = 2 * len(chosen) <= n_ends + 1, np.zeros(0, np.int64)
        return Ends(sender, receiver, usual, now, lasted, slow, (), (), nothing, (), True, is_half)
    if _is_everywhere(sender, receiver, slow, cost) or _is_elsewhere_too(
        sender, receiver, slow, now / usual - 1.0, cost, chosen
    ):
        return Ends(sender, receiver, usual, now, lasted, slow, (), (), np.zeros(0, np.int64), (), True, False)
    undecided = _undecided(sender, receiver, slow, chosen)
    chosen = [one for one in chosen if not any(one in group for group in undecided)]
    rivals = tuple(_rivals(sender, receiver, share_of, chosen, one) for one in chosen)
    left = np.where((receiver < 0) & bool(chosen or undecided), 0.0, left)  # it may well go to one of them
    left = np.where(
        left < ELSEWHERE_MIN * cost.max(initial=0.0), 0.0, left
    )  # however many: they cost it at the same time
    unexplained = np.flatnonzero(left > 0) if left.sum() > (1 - COVERED) * cost.sum() else np.zeros(0, np.int64)
    return Ends(sender, receiver, usual, now, lasted, slow, tuple(chosen), rivals, unexplained, undecided, False, False)


def _is_everywhere(sender: Ints, receiver: Ints, slow: Mask, cost: Floats) -> bool:
    """Whether slow connections touch nearly all ends, and a quarter of them would have to be slow to explain what costs most.

    Not all of a job's connections show it: what waits for its receiver is on the wire as long as ever.
    """
    known = receiver >= 0
    ends, touched = _touching(sender, receiver, known), _touching(sender, receiver, slow & known)
    if len(touched) < EVERYBODY * len(ends):
        return False
    costly = known & slow & (cost >= ELSEWHERE_MIN * cost.max(initial=0.0))
    return _n_apart(sender, receiver, costly, cost) >= max(EVERYBODY_MIN, NEEDED_MIN * len(ends))


def _is_elsewhere_too(sender: Ints, receiver: Ints, slow: Mask, grown: Floats, cost: Floats, chosen: list[int]) -> bool:
    """Whether of the connections that no chosen end touches half of those that can stand beside each other are slow by nearly
    the same factor.

    Where all links are slow a tree waits at its root, whose connections cost most by far, and its root would be chosen. What
    only waits for a slow end is not longer on the wire itself.
    """
    apart = (receiver >= 0) & ~np.isin(sender, chosen) & ~np.isin(receiver, chosen)
    if not chosen or not apart.any():
        return False
    alike = apart & slow & (grown >= ALIKE_MIN * grown[cost.argmax()]) & (cost >= FELT_MIN * cost.max())
    least = max(EVERYBODY_MIN, ELSEWHERE_SHARE * _n_apart(sender, receiver, apart, cost))
    return _n_apart(sender, receiver, alike, cost) >= least


def _n_apart(sender: Ints, receiver: Ints, those: Mask, cost: Floats) -> int:
    """How many of these connections, the costliest first, share no end with one before: each needs one of its own to explain it.
    However the ends are numbered it is the same."""
    apart = set[int]()
    for at in np.flatnonzero(those)[np.argsort(-cost[those], kind="stable")].tolist():
        one, other = int(sender[at]), int(receiver[at])
        if one not in apart and other not in apart:
            apart |= {one, other}
    return len(apart) // 2


def _undecided(sender: Ints, receiver: Ints, slow: Mask, chosen: list[int]) -> tuple[tuple[int, ...], ...]:
    """Ends that slow connections join, where nearly all they have are slow and more than one is needed to explain them."""
    found, ends = [], _touching(sender, receiver, slow & (receiver >= 0))
    while ends:
        group: set[int] = set()
        more = {ends[0]}
        while more:
            group |= more
            joined = slow & (receiver >= 0) & (np.isin(sender, list(more)) | np.isin(receiver, list(more)))
            more = set(_touching(sender, receiver, joined)) - group
        ends = [one for one in ends if one not in group]
        mine = (receiver >= 0) & (np.isin(sender, list(group)) | np.isin(receiver, list(group)))
        is_needed = len(group.intersection(chosen)) > 1
        if len(group) >= EVERYBODY_MIN and is_needed and slow[mine].mean() >= EVERYBODY:
            found.append(tuple(sorted(group)))
    return tuple(found)


def _slow(usual: Floats, now: Floats, grown_min: float) -> Mask:
    """(C,) which are about as much slower as the one that costs most."""
    if not len(usual):
        return np.zeros(0, bool)
    grown = now / usual - 1.0
    most = grown[(now - usual).argmax()]
    is_like = (grown >= SLOW_MIN * most) | (now - usual >= COSTS_MIN * (now - usual).max())
    found: Mask = (grown >= grown_min) & is_like
    return found


def _fewest(share_of: _Shares, cost: Floats) -> tuple[list[int], Floats]:
    """Ends that are slow towards nearly all they talk to, the one that touches most first, and what they leave (C,).

    Until nothing slow is left that such an end touches: the connection of two slow NICs may cost far more than their others.
    For little that is left an end must be slow towards nearly all itself: what waits for a slow NIC slows a few others down.
    So it must be beside what the ones before it explain, if that is most of what it costs.
    """
    chosen, left, first, own = list[int](), cost.copy(), 0.0, share_of.own
    explained, whole = np.zeros(len(cost), bool), share_of.summed(cost)
    while True:
        beside = share_of.beside(explained)
        touched = share_of.summed(left)
        is_much = touched > (1 - COVERED) * cost.sum()
        least = np.where(is_much, OWN_MIN, ALL_MIN)
        is_own = (own >= least) & ((beside >= least) | (touched >= LEFT_MIN * whole))
        able = np.flatnonzero((touched > 0) & (whole >= BESIDE_MIN * first) & is_own)
        if not len(able):
            return chosen, left
        most = able[touched[able] >= COVERED * touched[able].max()]
        best = most[np.lexsort((-touched[most], -own[most]))[0]]
        first = first or float(whole[best])
        chosen.append(int(share_of.ends[best]))
        explained |= (share_of.of_sender == best) | (share_of.of_receiver == best)
        left[explained] = 0.0


def _rivals(sender: Ints, receiver: Ints, share_of: _Shares, chosen: list[int], one: int) -> tuple[int, ...]:
    """Ends not chosen that are as slow, and touch all that only `one` of the chosen explains."""
    rest = [end for end in chosen if end != one]
    mine = share_of.slow & ((sender == one) | (receiver == one)) & ~np.isin(sender, rest) & ~np.isin(receiver, rest)
    return tuple(
        end for end in _touching(sender, receiver, mine)
        if end not in chosen
        and share_of.of(end) >= COVERED * share_of.of(one)
        and ((sender == end) | (receiver == end))[mine].all()
    )  # fmt: skip


def _touching(sender: Ints, receiver: Ints, those: Mask) -> list[int]:
    """The ends of these connections."""
    found = np.unique(np.concatenate([sender[those], receiver[those]]))
    return [int(end) for end in found if end != -1]
