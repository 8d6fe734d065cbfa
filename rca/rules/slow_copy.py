"""A GPU that moves data slowly: chunks lie ready at its rank, in all its ops, and it does not take them.

    rank 1 ──▶ [arrived ······ waits for rank 2's GPU ······ taken] ──▶ rank 3: on time, then late

A slow copy engine or a downgraded PCIe link shows inside the op, after the rank's kernel has begun, and nowhere else: its
peers wait for its data or its credit, never for their own GPUs. Abstains when only some of a rank's ops show it. When
most ranks do, the job does, and nobody is blamed. docs/rules/slow_copy.md
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nccl_instrument.tables import FUNC_RECV, FUNC_SEND
from rca.counters import GPU_READY_NAME
from rca.findings import Component, FaultKind, Finding, Grade, Subject, Symptom
from rca.keys import Ints, Mask
from rca.settings import Settings
from rca.slow.copies import own_copy_ns
from rca.slow.cover import Covered, covered
from rca.slow.edges import edges_of, slot_bytes_of
from rca.slow.ends import GROWN_MIN
from rca.slow.iterations import Iterations
from rca.slow.slow_words import finding_of, for_everybody
from rca.slow.slowdown import Slowdown, uses_sockets
from rca.slow.standstill import stands_still
from rca.slow.streams import Floats
from rca.words import named

RULE = "slow_copy"
VERSION = 12
NEEDS = frozenset({GPU_READY_NAME})

SMALL_MAX = 0.1  # of the bytes of a rank's slowest op: what copies of fewer take longer is lost in the noise
TINY_MAX = 0.01  # of them
WITNESS_MIN = 0.5  # of its own sends and receives: a send of one chunk shows nothing
AROUND_MIN = 0.5  # of the connections of a NIC, slow: what lies around it may be its doing
WORST_MIN = 0.9  # of a rank's most
LAST_MIN_NS = 100_000.0
LAST_NOISE = 4.0  # usual deviations
TOLD = "`nvidia-smi -q -d PERFORMANCE,CLOCK`, `nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv`"


def explain(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per rank whose GPU delays its own chunks; () when none does."""
    del symptom, settings
    own = own_copy_ns(slowdown)
    own = np.where(stands_still(slowdown, own), 0.0, own)  # behind a rank that the network does not show
    own = _given_to_last(slowdown, _given_to_witness(slowdown, own))
    found = covered(slowdown.iterations, slowdown.nodes, own, _would_show(slowdown, own), slowdown.lost_ns)
    if found.is_everybody:
        return (for_everybody(RULE, VERSION, slowdown, Component.GPU, found.excess_ns, "copies more slowly"),)
    blamed = np.flatnonzero(found.is_blamed)
    if _are_around_one_nic(slowdown, blamed):
        return ()
    return tuple(_finding(slowdown, found, at) for at in _through_one(slowdown, own, blamed))


def _are_around_one_nic(slowdown: Slowdown, blamed: Ints) -> bool:
    """Whether these ranks, of several nodes, all talk to one slow NIC that none of them uses. Over sockets what cannot leave for
    it, or comes from it, lies at the ranks around it; GPUs of several nodes do not break at once."""
    if not uses_sockets(slowdown.window) or len(np.unique(slowdown.nodes[blamed])) < 2:
        return False
    nic, edges = slowdown.ranks.nic[slowdown.at], edges_of(slowdown)
    known = (edges.receiver >= 0) & (nic[edges.sender] >= 0) & (nic[np.maximum(edges.receiver, 0)] >= 0)
    sender, receiver = edges.sender[known], edges.receiver[known]
    partners = [
        set(nic[receiver[sender == one]].tolist()) | set(nic[sender[receiver == one]].tolist()) for one in blamed
    ]
    shared, grown = set.intersection(*partners) - set(nic[blamed].tolist()), edges.grown()[known] >= GROWN_MIN
    return any(grown[(nic[sender] == one) | (nic[receiver] == one)].mean() >= AROUND_MIN for one in shared)


def _finding(slowdown: Slowdown, found: Covered, at: Ints) -> Finding:
    """About the rank at this position, or about whoever it is of several."""
    one = finding_of(
        RULE, VERSION, slowdown, tuple(at.tolist()), Component.COPY, FaultKind.COMPUTATION_FAIL_SLOW,
        float(found.excess_ns[at].max()), f"in {found.n[at[0]]} of {found.of[at[0]]} ops of an iteration",
        "The GPU of {who} takes and hands over chunks late", "chunks waited for the GPU's copies, more than usual", TOLD,
        (int(found.n[at[0]]), int(found.of[at[0]])),
    )  # fmt: skip
    if len(at) == 1:
        return one
    node = one.subject.node
    return replace(
        one, culprits=(), grade=Grade.MODERATE, score=round(0.8 * one.score, 4),
        tied=tuple(Subject("gpu", named((rank,)), (rank,), node) for rank in one.culprits),
        sentence=f"One of {named(one.culprits)} takes and hands over chunks late; a ring passes through both and neither has ops "
        f"of its own that would tell: {one.sentence.split(': ', 1)[1]}",
    )  # fmt: skip


def _through_one(slowdown: Slowdown, own_ns: Floats, blamed: Ints) -> list[Ints]:
    """The blamed ranks, those together that show it in the same op and in none of their own."""
    room, rank_at = slowdown.inside.room, slowdown.iterations.rank_at
    is_slow = (own_ns > 0) & np.isin(rank_at, blamed)
    n_slow = np.bincount(room[is_slow], minlength=int(room.max(initial=-1)) + 1)[room]
    has_own = np.isin(blamed, rank_at[is_slow & (n_slow == 1)])
    key = np.array([room[is_slow & (rank_at == at)].min() for at in blamed], np.int64)
    key = np.where(has_own, -1 - blamed, key)
    return [blamed[key == one] for one in np.unique(key)]


def _given_to_witness(slowdown: Slowdown, own_ns: Floats) -> Floats:
    """(P,) own_ns, with what shows in an op that passes through several ranks of a node given to the only one of them that shows
    it in its own sends and receives, too. In a ring chunks lie where it enters the node, whoever there is slow."""
    room, rank_at = slowdown.inside.room, slowdown.iterations.rank_at
    is_alone, n_ranks = np.bincount(room)[room] == 1, len(slowdown.iterations.ranks)
    of = np.bincount(rank_at[is_alone], minlength=n_ranks)
    shown = np.bincount(rank_at[is_alone], weights=own_ns[is_alone] > 0, minlength=n_ranks)
    is_witness = ((of > 0) & (shown >= WITNESS_MIN * of))[rank_at]
    n_witnesses = np.bincount(room, weights=is_witness & ~is_alone)[room]
    found: Floats = np.where(is_witness, slowdown.inside.of_room(own_ns), 0.0)
    return np.where(~is_alone & (n_witnesses == 1), found, own_ns)


def _given_to_last(slowdown: Slowdown, own_ns: Floats) -> Floats:
    """(P,) own_ns, with what shows in an op that passes through several ranks of a node given to the one of them that is
    through with it last (Mycroft §7.1, #3): what is behind a slow one goes on with what it passes on, and what is before it
    has only to fill the slots between them."""
    room, iterations = slowdown.inside.room, slowdown.iterations
    shared = np.bincount(room)[room] > 1 if len(room) else np.zeros(0, bool)
    asked = np.unique(room[shared & (own_ns > 0)])
    where = {int(one): np.flatnonzero(room == one) for one in asked}
    groups: dict[tuple[int, ...], list[Ints]] = {}
    for places in where.values():
        groups.setdefault(tuple(iterations.rank_at[places].tolist()), []).append(places)
    found = own_ns.copy()
    for rooms in groups.values():
        last = _through_last(iterations, rooms, slowdown.usual, slowdown.slow)
        for places in rooms if last >= 0 else ():
            found[places] = 0.0
            found[places[last]] = own_ns[places].max()
    return found


def _through_last(iterations: Iterations, rooms: list[Ints], usual: Mask, slow: Mask) -> int:
    """Which of some ranks ends these ops (their places, in one order) later than all others by clearly more than it used to;
    -1 where none does, or not the same one every time."""
    firsts = []
    for places in rooms:
        later = iterations.end[places] - iterations.end[places].mean(axis=0)
        before, now = (_middle(later[:, those]) for those in (usual, slow))
        noise = _middle(np.abs(later[:, usual] - before[:, None])).max()
        grown = now - before
        order = np.argsort(grown)
        is_clear = grown[order[-1]] - grown[order[-2]] >= max(LAST_MIN_NS, LAST_NOISE * noise)
        firsts.append(int(order[-1]) if is_clear else -1)
    return firsts[0] if firsts and len(set(firsts)) == 1 else -1


def _middle(values: Floats) -> Floats:
    """(n,) medians of (n, I) over what is known of all; 0 where nothing is."""
    known = values[:, np.isfinite(values).all(axis=0)]
    return np.median(known, axis=1) if known.shape[1] else np.zeros(len(values))


def _would_show(slowdown: Slowdown, own_ns: Floats) -> Mask:
    """(P,) the ops in which slow copies would show: not those that move far fewer bytes than the rank's slowest.

    An op that mates on the node take part in may show a mate's excess, so where one does all but the tiniest count.
    """
    iterations, room = slowdown.iterations, slowdown.inside.room
    moved, channels = (np.nanmax(iterations.column(name), axis=1, initial=0.0) for name in ("bytes", "channels"))
    # How long a send or receive waits for its first chunk is not counted: its kernel may have begun late.
    is_pair = (iterations.func == FUNC_SEND) | (iterations.func == FUNC_RECV)
    moved = np.where(is_pair, np.maximum(moved - channels * slot_bytes_of(slowdown), 0.0), moved)
    rank_at = iterations.rank_at
    worst, most = np.zeros(len(iterations.ranks)), np.zeros(len(iterations.ranks))
    np.maximum.at(worst, rank_at, own_ns)
    is_worst = (own_ns > 0) & (own_ns >= WORST_MIN * worst[rank_at])
    np.maximum.at(most, rank_at[is_worst], moved[is_worst])
    is_shared = (np.bincount(room)[room] > 1) & (own_ns > 0)
    has_mates = slowdown.sum(is_shared.astype(np.float64))[rank_at] > 0
    found: Mask = (moved >= np.where(has_mates, TINY_MAX, SMALL_MAX) * most[rank_at]) | (own_ns > 0)
    return found
