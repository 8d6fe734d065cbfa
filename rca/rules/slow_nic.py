"""A NIC, or the links behind it, that carries data slowly: every send through it stays on the wire longer.

    rank 0 ──▶ rank 4 ══slow══▶ rank 6        rank 4's sends are slow to everybody, rank 6's only to rank 4

What is on the wire waits for nobody but the network, so the time from handing a chunk to the NIC until it is acknowledged
is not inherited. A part is blamed when nearly all its sends show it. Ranks that share a NIC are blamed together. Bytes
the NIC carried for others, or a second NIC as slow, tell a network that is full from a NIC. docs/rules/slow_nic.md
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from rca.counters import DONE_NAME, TRANSMITTED_NAME
from rca.cover import Covered
from rca.findings import Component, FaultKind, Finding, Grade, Subject, Symptom
from rca.inside import Wait
from rca.keys import Ints
from rca.settings import Settings
from rca.slow_words import finding_of, for_everybody
from rca.slowdown import Slowdown
from rca.traffic import foreign_share
from rca.words import named

RULE = "slow_nic"
VERSION = 2
NEEDS = frozenset({TRANSMITTED_NAME, DONE_NAME})

FOREIGN_MIN = 0.2
TOLD = "`ip -s link`, `ethtool -S`, `rdma statistic show`, `ibstat`"


def explain(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per NIC whose sends are slow; () when none is."""
    del symptom, settings
    found = slowdown.waits[Wait.NETWORK]
    if found.is_everybody:
        return (for_everybody(RULE, VERSION, slowdown, Component.NETWORK, found.excess_ns, "carries data more slowly"),)
    blamed = np.flatnonzero(found.is_blamed)
    nics = _by_nic(slowdown, blamed)
    if len(nics) == 2 and _only_talk_to_each_other(slowdown, *nics):
        return (_link(slowdown, found, *nics),)
    if len(nics) > 1:
        return (_finding(slowdown, found, blamed, is_network=True),)
    return tuple(_finding(slowdown, found, users, _is_taken_by_others(slowdown, users)) for users in nics)


def _by_nic(slowdown: Slowdown, blamed: Ints) -> list[Ints]:
    """The blamed ranks, those of one NIC together."""
    nic = slowdown.ranks.nic[slowdown.at[blamed]]
    label = np.where(nic >= 0, nic, -1 - blamed)
    return [blamed[label == one] for one in np.unique(label)]


def _only_talk_to_each_other(slowdown: Slowdown, one: Ints, other: Ints) -> bool:
    """Whether every communicator that takes the two ranks across the network has no other members there."""
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
