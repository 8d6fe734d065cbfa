"""A NIC, or the links behind it, that carries data slowly: every send through it stays on the wire longer.

    rank 0 ──▶ rank 4 ══slow══▶ rank 6        rank 4's sends are slow to everybody, rank 6's only to rank 4

What is on the wire waits for nobody but the network, so the time from handing a chunk to the NIC until it is acknowledged
is not inherited. A part is blamed when nearly all its sends show it. Ranks that share a NIC are blamed together. Bytes
the NIC carried for others tell a network that is full from a NIC that is slow. docs/rules/slow_nic.md
"""

from __future__ import annotations

import numpy as np

from nccl_instrument.tables import FUNC_RECV
from rca.cover import Covered, covered
from rca.findings import Component, FaultKind, Finding, Symptom
from rca.inside import Wait
from rca.keys import Ints
from rca.settings import Settings
from rca.slow_words import finding_of, for_everybody
from rca.slowdown import Slowdown
from rca.traffic import foreign_share

RULE = "slow_nic"
VERSION = 1

FOREIGN_MIN = 0.2
TOLD = "`ip -s link`, `ethtool -S`, `rdma statistic show`, `ibstat`"


def explain(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per NIC whose sends are slow; () when none is."""
    del symptom, settings
    sends = slowdown.iterations.func != FUNC_RECV
    found = covered(slowdown.iterations, slowdown.inside.excess(Wait.NETWORK), sends, slowdown.lost_ns)
    if found.is_everybody:
        return (for_everybody(RULE, VERSION, slowdown, Component.NETWORK, found.excess_ns, "carries data more slowly"),)
    return tuple(_finding(slowdown, found, users) for users in _by_nic(slowdown, np.flatnonzero(found.is_blamed)))


def _by_nic(slowdown: Slowdown, blamed: Ints) -> list[Ints]:
    """The blamed ranks, those of one NIC together."""
    nic = slowdown.ranks.nic[slowdown.at[blamed]]
    label = np.where(nic >= 0, nic, -1 - blamed)
    return [blamed[label == one] for one in np.unique(label)]


def _finding(slowdown: Slowdown, found: Covered, users: Ints) -> Finding:
    share = foreign_share(slowdown, users)
    is_network = share is not None and share >= FOREIGN_MIN
    component = Component.NETWORK if is_network else Component.NIC
    what = "What {who} sends stays on the wire too long"
    if is_network:
        what = f"Other traffic takes {share:.0%} of what the NIC of {{who}} carries"
    return finding_of(
        RULE, VERSION, slowdown, tuple(users.tolist()), component, FaultKind.COMMUNICATION_FAIL_SLOW,
        float(found.excess_ns[users].max()), f"in {found.n[users].sum()} of {found.of[users].sum()} sends of an iteration",
        what, "chunks stayed on the wire, more than usual", TOLD,
    )  # fmt: skip
