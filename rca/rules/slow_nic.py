"""A NIC, or the links behind it, that carries data slowly: whatever goes to or from it stays on the wire longer.

    rank 0 ──▶ rank 4 ══slow══▶ rank 6        rank 4 is slow both ways with everybody, rank 6 only with rank 4

What is on the wire waits for nobody but the network, so the time from handing a chunk to the NIC until it is acknowledged
is not inherited. The fewest NICs that all slow connections touch are blamed, with all ranks that use them; where two would
explain as much, they are tied. Bytes a NIC carried for others, or several NICs as slow, tell a network that is full from a
NIC. docs/rules/slow_nic.md
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nccl_instrument.tables import FUNC_RECV
from rca.counters import DONE_NAME, TRANSMITTED_NAME
from rca.cover import SHARE_MIN
from rca.edges import edges_of
from rca.ends import COVERED, Ends, ends_of
from rca.findings import Component, FaultKind, Finding, Grade, Subject, Symptom
from rca.inside import Wait
from rca.keys import Ints
from rca.settings import Settings
from rca.slow_words import finding_of, for_everybody
from rca.slowdown import Slowdown, uses_sockets
from rca.traffic import foreign_share
from rca.words import named

RULE = "slow_nic"
VERSION = 4
NEEDS = frozenset({TRANSMITTED_NAME, DONE_NAME})

FOREIGN_MIN = 0.2
LONGER_MIN = 1.4  # times as long on the wire as usual
BUSY_MIN = 0.6  # of the time of its ops, on the wire: most of it, with late acknowledgements besides
TIED_MAX = 8
EACH_OTHER = "What {who} send each other stays on the wire too long"
TOLD = "`ip -s link`, `ethtool -S`, `rdma statistic show`, `ibstat`"


def explain(slowdown: Slowdown, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding for the NICs that explain what is slow; () when nothing on the wire is."""
    del symptom, settings
    end_of = _ends(slowdown)
    ends = ends_of(edges_of(slowdown), end_of)
    if not _is_the_wire(slowdown, ends):
        return ()
    if ends.is_everybody:
        every = tuple(np.unique(ends.sender).tolist())
        taken = _taken(slowdown, ends, end_of, every)
        return (_nics(slowdown, ends, end_of, taken),) if taken else (_everybody(slowdown, ends),)
    if len(ends.unexplained):
        return _unexplained(slowdown, ends, end_of)
    sure = [one for one, rivals in zip(ends.chosen, ends.rivals, strict=True) if not rivals]
    tied = [(one, *rivals) for one, rivals in zip(ends.chosen, ends.rivals, strict=True) if rivals]
    told = {group: _taken(slowdown, ends, end_of, group) for group in ends.undecided}
    sure += [one for taken in told.values() for one in taken]
    found = [_nics(slowdown, ends, end_of, tuple(sure))] if sure else []
    found += [_cannot_be_told(slowdown, ends, end_of, one) for one in tied]
    return (*found, *(_one_of_several(slowdown, ends, end_of, group) for group, taken in told.items() if not taken))


def _everybody(slowdown: Slowdown, ends: Ends) -> Finding:
    wait = Wait.CREDIT if uses_sockets(slowdown.window) else Wait.NETWORK
    sends = slowdown.iterations.func != FUNC_RECV
    excess = slowdown.sum(np.where(sends, slowdown.inside.excess(wait), 0.0))
    found = for_everybody(RULE, VERSION, slowdown, Component.NETWORK, excess, "carries data more slowly")
    if not ends.is_half:
        return found
    more = " All connections are slow: about every second NIC being slow would look the same, and which cannot be told."
    return replace(found, sentence=found.sentence.replace("no one of them is to blame", "nobody is blamed") + more)


def _taken(slowdown: Slowdown, ends: Ends, end_of: Ints, group: tuple[int, ...]) -> tuple[int, ...]:
    """Of ends of which all is slow those whose counters show other people's bytes, if these explain it: () otherwise."""
    taken = tuple(one for one in group if _is_taken_by_others(slowdown, _users(end_of, (one,))))
    if not taken or len(taken) == len(group):
        return ()
    cost = np.where(ends.is_slow & (ends.receiver >= 0), ends.now_ns - ends.usual_ns, 0.0)
    all_of, of_taken = (np.any([ends.touched(one) for one in those], axis=0) for those in (group, taken))
    return taken if cost[of_taken].sum() >= COVERED * cost[all_of].sum() else ()


def _ends(slowdown: Slowdown) -> Ints:
    """(R,) equal for ranks that use the same NIC; a rank whose NIC is not known is an end of its own."""
    nic = slowdown.ranks.nic[slowdown.at]
    found: Ints = np.unique(np.where(nic >= 0, nic, -1 - np.arange(len(nic))), return_inverse=True)[1].astype(np.int64)
    return found


def _is_the_wire(slowdown: Slowdown, ends: Ends) -> bool:
    """Whether the slow connections are what their ops wait for, for much longer than usual, and cost a part of what is lost.

    A chunk that travels alone takes a latency more than one of many, so victims of other things are on the wire a
    little longer too; but they are not most of the time, nor much longer than they were.
    """
    usual, now, lasted = (one[ends.is_slow] for one in (ends.usual_ns, ends.now_ns, ends.lasted_ns))
    if not len(now) or (now - usual).max() < SHARE_MIN * slowdown.lost_ns:
        return False
    worst = now - usual >= 0.5 * (now - usual).max()
    return bool(now[worst].sum() >= max(LONGER_MIN * usual[worst].sum(), BUSY_MIN * lasted[worst].sum()))


def _users(end_of: Ints, ends: tuple[int, ...]) -> Ints:
    """Positions of the ranks that use these NICs."""
    return np.flatnonzero(np.isin(end_of, ends))


def _nics(slowdown: Slowdown, ends: Ends, end_of: Ints, sure: tuple[int, ...]) -> Finding:
    users = _users(end_of, sure)
    is_network = len(sure) > 1 or _is_taken_by_others(slowdown, users)
    sent = "sends and is sent" if len(users) == 1 else "send and are sent"
    said = f"What {{who}} {sent} stays on the wire too long"
    if is_network:
        said = "The network of {who} is taken by other traffic: what they send and are sent stays on the wire too long"
    return _finding(slowdown, ends, end_of, sure, Component.NETWORK if is_network else Component.NIC, said)


def _is_taken_by_others(slowdown: Slowdown, users: Ints) -> bool:
    share = foreign_share(slowdown, users)
    return share is not None and share >= FOREIGN_MIN


def _cannot_be_told(slowdown: Slowdown, ends: Ends, end_of: Ints, tied: tuple[int, ...]) -> Finding:
    """Either end would explain it, unless the NICs' own counters say that others use them."""
    taken = tuple(one for one in tied if _is_taken_by_others(slowdown, _users(end_of, (one,))))
    if taken:
        return _nics(slowdown, ends, end_of, taken)
    both = _finding(slowdown, ends, end_of, tied, Component.NIC, EACH_OTHER)
    return _as_link(slowdown, end_of, tied, both, "they send to nobody else, so which end it is cannot be told")


def _one_of_several(slowdown: Slowdown, ends: Ends, end_of: Ints, group: tuple[int, ...]) -> Finding:
    """Ends of which all is slow and whose counters are silent: some of them, or the network between them."""
    group = tuple(sorted(group, key=lambda one: int(_users(end_of, (one,))[0])))
    both = _finding(slowdown, ends, end_of, group, Component.NETWORK, EACH_OTHER)
    why = "all of it is, so every second of them or the network between them would look the same"
    return _as_link(slowdown, end_of, group[:TIED_MAX], both, why)


def _unexplained(slowdown: Slowdown, ends: Ends, end_of: Ints) -> tuple[Finding, ...]:
    """Slow connections without an end that is slow towards everybody: named, and nobody blamed."""
    cost = np.where(ends.is_slow, ends.now_ns - ends.usual_ns, 0.0)
    worst = sorted(
        {int(end) for at in ends.unexplained for end in (ends.sender[at], ends.receiver[at]) if end >= 0},
        key=lambda end: -float(cost[ends.touched(end)].sum()),
    )[:TIED_MAX]
    if len(worst) < 2:
        return ()
    both = _finding(slowdown, ends, end_of, tuple(worst), Component.NETWORK, EACH_OTHER)
    why = "none of them is slow towards everybody, so it is a way between them, and which end of it cannot be told"
    return (_as_link(slowdown, end_of, tuple(worst), both, why),)


def _finding(
    slowdown: Slowdown, ends: Ends, end_of: Ints, blamed: tuple[int, ...], component: Component, said: str
) -> Finding:
    users = _users(end_of, blamed)
    mine = np.any([ends.touched(end) for end in blamed], axis=0)
    slow = mine & ends.is_slow
    excess = min(float((ends.now_ns - ends.usual_ns)[slow].max()), slowdown.lost_ns)
    shown = int(slow.sum()), int(mine.sum())
    return finding_of(
        RULE, VERSION, slowdown, tuple(users.tolist()), component, FaultKind.COMMUNICATION_FAIL_SLOW, excess,
        f"on {shown[0]} of {shown[1]} connections", said, "chunks stayed on the wire, more than usual", TOLD, shown,
    )  # fmt: skip


def _as_link(slowdown: Slowdown, end_of: Ints, tied: tuple[int, ...], both: Finding, why: str) -> Finding:
    """`both` with nobody blamed and its ends tied."""
    ranks = slowdown.iterations.ranks
    names = [tuple(int(rank) for rank in ranks[_users(end_of, (one,))]) for one in tied]
    subjects = tuple(Subject("nic", named(one), one) for one in names)
    name = "link " + " to ".join(one.name for one in subjects)
    return replace(
        both, subject=Subject("link", name, both.subject.ranks), culprits=(), tied=subjects, grade=Grade.WEAK,
        sentence=f"The {name} is slow; {why}: {both.sentence.split(': ', 1)[1]}",
    )  # fmt: skip
