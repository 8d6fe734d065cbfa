"""A NIC, or the links behind it, that carries data slowly: every send through it stays on the wire longer.

    rank 0 ──▶ rank 4 ══slow══▶ rank 6        rank 4's sends are slow to everybody, rank 6's only to rank 4

What is on the wire waits for nobody but the network, so the time from handing a chunk to the NIC until it is acknowledged
is not inherited. A part is blamed when nearly all its sends show it. Ranks that share a NIC are blamed together. Bytes
the NIC carried for others, or a second NIC as slow, tell a network that is full from a NIC. docs/rules/slow_nic.md
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nccl_instrument.tables import FUNC_RECV, FUNC_SEND
from rca.counters import DONE_NAME, TRANSMITTED_NAME
from rca.cover import Covered, covered
from rca.edges import edges_of, receivers_of, shared_ends
from rca.findings import Component, FaultKind, Finding, Grade, Subject, Symptom
from rca.inside import Wait
from rca.keys import Ints, Mask
from rca.settings import Settings
from rca.slow_words import finding_of, for_everybody
from rca.slowdown import Slowdown
from rca.streams import Floats
from rca.traffic import foreign_share
from rca.words import named

RULE = "slow_nic"
VERSION = 2
NEEDS = frozenset({TRANSMITTED_NAME, DONE_NAME})

FOREIGN_MIN = 0.2
LONGER_MIN = 1.4  # times as long on the wire as usual
OPEN_MIN = 0.5  # of its sends
BUSY_MIN = 0.6  # of the time of its ops that send, on the wire: most of it, with late acknowledgements besides
TOLD = "`ip -s link`, `ethtool -S`, `rdma statistic show`, `ibstat`"


def explain(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per NIC whose sends are slow; () when none is."""
    del symptom, settings
    sends = slowdown.iterations.func != FUNC_RECV
    found = covered(slowdown.iterations, wire_ns(slowdown), sends, slowdown.lost_ns)
    if found.is_everybody:
        return (for_everybody(RULE, VERSION, slowdown, Component.NETWORK, found.excess_ns, "carries data more slowly"),)
    nics = _touched(slowdown, _by_nic(slowdown, np.flatnonzero(found.is_blamed)))
    blamed = np.sort(np.concatenate([np.zeros(0, np.int64), *nics]))
    if len(nics) == 2 and _is_one_link(slowdown, *nics):
        return (_link(slowdown, found, *nics),)
    if len(nics) > 1:
        return (_finding(slowdown, found, blamed, is_network=True),)
    return tuple(_finding(slowdown, found, users, _is_taken_by_others(slowdown, users)) for users in nics)


def wire_ns(slowdown: Slowdown) -> Floats:
    """(P,) by how much longer data is on the wire, of ranks whose wire is what they wait for.

    A chunk that travels alone takes a latency more than one of many, so victims of other things are on the wire a
    little longer too; but they are not most of the time, nor much longer than they were.
    """
    inside = slowdown.inside
    sends = slowdown.iterations.func != FUNC_RECV
    now, before, lasted = (
        slowdown.sum(np.where(sends, values, 0.0))
        for values in (inside.slow[Wait.NETWORK], inside.usual[Wait.NETWORK], inside.lasted_slow)
    )
    is_wire = (now >= LONGER_MIN * before) & (now >= BUSY_MIN * lasted)
    return np.where(np.repeat(is_wire, np.diff(slowdown.iterations.first)), inside.excess(Wait.NETWORK), 0.0)


def _by_nic(slowdown: Slowdown, blamed: Ints) -> list[Ints]:
    """The blamed ranks, those of one NIC together."""
    nic = slowdown.ranks.nic[slowdown.at[blamed]]
    label = np.where(nic >= 0, nic, -1 - blamed)
    return [blamed[label == one] for one in np.unique(label)]


def _touched(slowdown: Slowdown, nics: list[Ints]) -> list[Ints]:
    """Of several NICs those that all slow connections touch: a neighbour sends slowly only into a slow one."""
    if not nics:
        return nics
    nic = slowdown.ranks.nic[slowdown.at]
    end = np.where(nic >= 0, nic, -1 - np.arange(len(nic)))
    ends = shared_ends(edges_of(slowdown, np.concatenate(nics)), end)
    if ends is None:
        return nics
    told, seen = np.concatenate(nics), slowdown.waits[Wait.NETWORK]
    is_open = (seen.n >= OPEN_MIN * seen.of) | ~_sends(slowdown)  # nothing that it sends elsewhere speaks for it
    tied = [np.flatnonzero(end == one) for one in ends if is_open[end == one].all() and one not in end[told]]
    kept = [users for users in nics if end[users[0]] in ends]
    return kept + tied if len(kept) == len(tied) == 1 else kept or nics


def _sends(slowdown: Slowdown) -> Mask:
    """(R,) who usually has data on the wire: where a ring passes through a node, some only receive."""
    found: Mask = slowdown.sum(slowdown.inside.usual[Wait.NETWORK]) > 0
    return found


def _is_one_link(slowdown: Slowdown, one: Ints, other: Ints) -> bool:
    """Whether the two send to each other only: by flows where rows tell of them, else by their communicators' members."""
    iterations, both = slowdown.iterations, np.concatenate([one, other])
    sends = (iterations.func == FUNC_SEND) & np.isin(iterations.rank, iterations.ranks[both])
    if not np.isin(receivers_of(slowdown, iterations.comm_id[sends], iterations.peer[sends]), both).all():
        return False  # seldom in progress when looked at, but the ops tell
    edges = edges_of(slowdown, np.concatenate([one, other]))
    if len(edges.sender):
        from_one = np.isin(edges.sender, one)
        return bool(np.isin(edges.receiver[from_one], other).all() and np.isin(edges.receiver[~from_one], one).all())
    ranks = set(slowdown.iterations.ranks[np.concatenate([one, other])].tolist())
    members = slowdown.window.members
    for at in (*one, *other):
        comms = np.unique(slowdown.iterations.comm_id[slowdown.iterations.places_of(int(at))])
        if not set(members["rank"][np.isin(members["comm_id"], comms)].tolist()) <= ranks:
            return False
    return True


def _is_taken_by_others(slowdown: Slowdown, users: Ints) -> bool:
    share = foreign_share(slowdown, users)
    return share is not None and share >= FOREIGN_MIN


def _finding(slowdown: Slowdown, found: Covered, users: Ints, is_network: bool) -> Finding:
    component = Component.NETWORK if is_network else Component.NIC
    said = "What {who} sends stays on the wire too long"
    if is_network:
        said = "The network of {who} is taken by other traffic: what they send stays on the wire too long"
    return finding_of(
        RULE, VERSION, slowdown, tuple(users.tolist()), component, FaultKind.COMMUNICATION_FAIL_SLOW,
        float(found.excess_ns[users].max()), f"in {found.n[users].sum()} of {found.of[users].sum()} sends of an iteration",
        said, "chunks stayed on the wire, more than usual", TOLD,
        (int(found.n[users].sum()), int(found.of[users].sum())),
    )  # fmt: skip


def _link(slowdown: Slowdown, found: Covered, one: Ints, other: Ints) -> Finding:
    """Both ends send only to each other: the link is slow, and which end of it cannot be told."""
    both = _finding(slowdown, found, np.concatenate([one, other]), is_network=False)
    ends = tuple(
        Subject("nic", named(ranks), ranks)
        for ranks in (tuple(slowdown.iterations.ranks[at].tolist()) for at in (one, other))
    )
    name = f"link {ends[0].name} to {ends[1].name}"
    return replace(
        both, subject=Subject("link", name, both.subject.ranks), culprits=(), tied=ends, grade=Grade.WEAK,
        sentence=f"The link between {ends[0].name} and {ends[1].name} is slow; they send to nobody else, so which end "
        f"it is cannot be told: {both.sentence.split(': ', 1)[1]}",
    )  # fmt: skip
