"""Data is lost between ranks and no port is known to be down: which NIC, which proxy, or only which link?

    lost: 3→7, 7→3, 3→1        all touch rank 3: rank 3's side
    lost: 3→7, 7→3 only        the link 3–7; the two ends cannot be told apart
    lost: 3→7, 9→4, 4→12       all touch the rack of ranks 3 and 4, and nothing smaller: that rack

A NIC that is dead loses data both ways; a proxy that sleeps only leaves incoming data lying. One rank that every lossy
link touches is named; a single link with the same losses both ways is named as a link and blames no rank. Part of the
hang rule (docs/rules/hang.md).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nccl_instrument.tables import SEND, SOCKET
from rca.advice import for_link, for_proxy, for_rack
from rca.findings import Component, Evidence, FaultKind, Finding, Grade, State, Subject
from rca.hang.cut import first_of
from rca.hang.pairs import SEEN
from rca.hang.progress import Progress
from rca.hang.sinks import Sink
from rca.hang.table4 import REMOTE, conditions, holds, verdicts
from rca.keys import Ints, Mask
from rca.racks import shared, whole_racks
from rca.ranks import PORT_UP
from rca.settings import Settings
from rca.words import flow_evidence, named, nic_name, node_name, process_evidence, rank_subject, score, waiting

RULE = "hang"
VERSION = 5


def explain(state: Progress, lossy: list[Sink], settings: Settings) -> list[Finding]:
    """Findings that cover all lossy links: one when a rank, NIC or rack is common to all, else one per link."""
    if not lossy:
        return []
    ends = state.links[[sink.link for sink in lossy]]
    waiters = frozenset().union(*(sink.waiters for sink in lossy))
    common = _common_ranks(state, ends)
    if len(common) == 1:
        return [_one_side(state, (common[0],), waiters, settings)]
    users = _common_nic(state, ends)
    if users:
        return [_one_side(state, users, waiters, settings)]
    rack = _common_rack(state, ends)
    if rack:
        return [_one_rack(state, *rack, waiters, settings)]
    worst = first_of(state, lossy, settings.findings_max, "links")
    return [_one_pair(state, state.links[sink.link], sink.waiters, settings) for sink in worst]


def _common_ranks(state: Progress, ends: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> list[int]:
    return [int(at) for at in np.unique(ends) if (ends == at).any(axis=1).all()]


def _common_nic(state: Progress, ends: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> tuple[int, ...]:
    """Ranks that share the one NIC all links touch, () when there is no such NIC or two of them."""
    if len(ends) < 2:
        return ()
    nics = state.ranks.nic[ends]
    common = [int(nic) for nic in np.unique(nics) if nic >= 0 and (nics == nic).any(axis=1).all()]
    return tuple(int(at) for at in np.flatnonzero(state.ranks.nic == common[0])) if len(common) == 1 else ()


def _common_rack(state: Progress, ends: Ints) -> tuple[str, Ints] | None:
    """The one rack that all these links touch, and its nodes, where each of these loses data; None where one node would explain
    as much, or nodes of another rack, or that declare none, or less than the rack. ends: (L, 2) rank positions."""
    nodes, lossy = state.ranks.node[ends], np.unique(state.ranks.node[state.links])
    whole = whole_racks(state.window, lossy[lossy >= 0])
    if not whole or any((nodes == node).any(axis=1).all() for node in np.unique(nodes)):
        return None
    names = [state.window.racks.get(name, "") for name in state.window.nodes["name"].tolist()]
    rack = np.array([*names, ""])[nodes]
    common = [str(one) for one in np.unique(rack) if (rack == one).any(axis=1).all()]
    if len(common) != 1 or common[0] not in whole or _are_neighbours(state, whole[common[0]]):
        return None
    return common[0], whole[common[0]]


def _are_neighbours(state: Progress, nodes: Ints) -> bool:
    """Whether some of these nodes have flows out of their rack, none of which loses anything: they may just be those that the
    others of the rack send to."""
    pairs, stalls = state.pairs, state.stalls
    sender, receiver = (np.append(state.ranks.node, -1)[end] for end in (pairs.sender, pairs.receiver))
    is_out = (sender >= 0) & (receiver >= 0) & (np.isin(sender, nodes) != np.isin(receiver, nodes))
    inside = np.where(np.isin(sender, nodes), sender, receiver)
    return bool(len(np.setdiff1d(inside[is_out], inside[is_out & stalls.is_lost])))


def _lost(state: Progress, users: tuple[int, ...]) -> tuple[Mask, Mask]:
    """Flows that lose what comes in to these ranks, and what goes out from them."""
    stalls, pairs = state.stalls, state.pairs
    lost = stalls.is_lost & (pairs.sent[:, 2] > pairs.taken[:, 1])
    return lost & np.isin(pairs.receiver, users), lost & np.isin(pairs.sender, users)


def _one_side(state: Progress, users: tuple[int, ...], waiters: frozenset[int], settings: Settings) -> Finding:
    incoming, outgoing = _lost(state, users)
    ranks = state.ranks.names(np.array(users))
    is_proxy = len(users) == 1 and incoming.any() and not outgoing.any()
    port_is_up = bool((state.ranks.port[list(users)] == PORT_UP).all())
    grade = Grade.WEAK if port_is_up and not is_proxy else Grade.MODERATE
    other = Subject("nic" if is_proxy else "process", named(ranks), ranks, node_name(state, users[0]))
    what = (
        f"Nothing sent to {named(ranks)} is taken, while all it sent has arrived: its proxy does not run"
        if is_proxy
        else f"Nothing passes the NIC of {named(ranks)} in either direction"
    )
    victims = waiters - set(users)
    return Finding(
        rule=RULE, version=VERSION, subject=rank_subject(state, users, "process" if is_proxy else "nic"),
        component=Component.PROXY if is_proxy else Component.NIC,
        kind=FaultKind.COMPUTATION_FAIL_SLOW if is_proxy else FaultKind.COMMUNICATION_FAIL_STOP,
        culprits=ranks, score=score(grade, len(victims), state.n_ranks), grade=grade,
        sentence=f"{what}; {waiting(len(victims))}.", evidence=_evidence(state, users, incoming | outgoing, settings),
        conditions=conditions(state.pairs.where(incoming | outgoing), state.ranks, settings.conditions_max),
        tied=(other,), advice=for_proxy(state, users) if is_proxy else for_link(state, users),
    )  # fmt: skip


def _one_rack(state: Progress, rack: str, nodes: Ints, waiters: frozenset[int], settings: Settings) -> Finding:
    """What the nodes of a rack have in common lets nothing through: surer where each of them loses both ways."""
    at = np.flatnonzero(np.isin(state.ranks.node, nodes))
    incoming, outgoing = _lost(state, tuple(at.tolist()))
    ways = (state.pairs.receiver[incoming], state.pairs.sender[outgoing])
    both = all(np.isin(nodes, state.ranks.node[those]).all() for those in ways)
    grade = Grade.MODERATE if both else Grade.WEAK
    ranks, victims = state.ranks.names(at), waiters - set(at.tolist())
    losing = tuple(np.intersect1d(at, np.concatenate(ways)).tolist())
    names = state.window.nodes["name"][nodes].tolist()
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("rack", rack, ranks), component=Component.NETWORK,
        kind=FaultKind.COMMUNICATION_FAIL_STOP, culprits=ranks, score=score(grade, len(victims), state.n_ranks), grade=grade,
        sentence=f"All {len(nodes)} nodes of rack {rack} ({named(ranks)}) lose what they send or are sent, and every link that "
        f"loses data is one of theirs; {waiting(len(victims))}. {shared(len(nodes))}",
        evidence=_evidence(state, losing, incoming | outgoing, settings),
        conditions=conditions(state.pairs.where(incoming | outgoing), state.ranks, settings.conditions_max),
        advice=for_rack(rack, names, Component.NETWORK, FaultKind.COMMUNICATION_FAIL_STOP, ""),
    )  # fmt: skip


def _one_pair(
    state: Progress, ends: np.ndarray[tuple[int], np.dtype[np.int64]], waiters: frozenset[int], settings: Settings
) -> Finding:
    """With both ports up and losses one way only, it is the receiver that does not take what was sent (§5.3)."""
    a, b = (int(end) for end in ends)
    to_a, to_b = (_lost(state, (at,))[0].any() for at in (a, b))
    if to_a != to_b and (state.ranks.port[[a, b]] == PORT_UP).all():
        return _one_side(state, (a if to_a else b,), waiters, settings)
    link = _one_link(state, ends, waiters, settings)
    likely = _paper_pair(state, a, b)
    return link if likely < 0 else _towards(state, link, (a, b), likely)


def _paper_pair(state: Progress, a: int, b: int) -> int:
    """The end that §5.3's pair points to (sender ①=②>③, receiver ①=②=③), -1 when to none or to both."""
    pairs = state.pairs
    between = np.isin(pairs.sender, (a, b)) & np.isin(pairs.receiver, (a, b)) & (pairs.transport != SOCKET)
    between &= state.stalls.is_lost & holds(pairs.sent)[State.NOT_DELIVERED] & (pairs.receiver_end == SEEN)
    between &= verdicts(pairs)[SEND, State.NOT_DELIVERED] == REMOTE
    ends = np.unique(pairs.receiver[between])
    return int(ends[0]) if len(ends) == 1 else -1


def _towards(state: Progress, link: Finding, ends: tuple[int, int], likely: int) -> Finding:
    """`link` with its likelier end named; blamed only where both ports are known to be up, since a sender's dead NIC
    leaves the same counters."""
    other = ends[0] if likely == ends[1] else ends[1]
    rank, ports_up = int(state.ranks.rank[likely]), bool((state.ranks.port[list(ends)] == PORT_UP).all())
    receiver = named((rank,))
    return replace(
        link, subject=rank_subject(state, (likely,)), culprits=(rank,) if ports_up else (),
        tied=(_nic_subject(state, other),),
        sentence=f"Nothing passes the {link.subject.name}; all was sent and nothing arrived, which points to the "
        f"receiver, {receiver}; {link.sentence.rsplit('; ', 1)[-1]}",
    )  # fmt: skip


def _one_link(
    state: Progress, ends: np.ndarray[tuple[int], np.dtype[np.int64]], waiters: frozenset[int], settings: Settings
) -> Finding:
    a, b = (int(end) for end in ends)
    mask = state.stalls.is_lost & np.isin(state.pairs.sender, (a, b)) & np.isin(state.pairs.receiver, (a, b))
    first, second = state.ranks.names(np.array([a, b]))
    name = f"link {first}–{second}"
    tied = tuple(_nic_subject(state, at) for at in (a, b))
    return Finding(
        rule=RULE, version=VERSION, subject=Subject("link", name, (first, second)), component=Component.NIC,
        kind=FaultKind.COMMUNICATION_FAIL_STOP, culprits=(),
        score=score(Grade.WEAK, len(waiters - {a, b}), state.n_ranks), grade=Grade.WEAK,
        sentence=f"Nothing passes the {name}; the evidence cannot tell its two ends apart; "
        f"{waiting(len(waiters - {a, b}))}.",
        evidence=_evidence(state, (a, b), mask, settings),
        conditions=conditions(state.pairs.where(mask), state.ranks, settings.conditions_max), tied=tied,
        advice=for_link(state, (a, b)),
    )  # fmt: skip


def _nic_subject(state: Progress, at: int) -> Subject:
    rank, nic = int(state.ranks.rank[at]), int(state.ranks.nic[at])
    node = node_name(state, at)
    name = f"{nic_name(state, nic)} of {node}" if nic >= 0 else f"NIC of rank {rank}"
    return Subject("nic", name, (rank,), node)


def _evidence(state: Progress, users: tuple[int, ...], mask: Mask, settings: Settings) -> tuple[Evidence, ...]:
    found = [one for at in users for one in process_evidence(state, at)]
    return tuple((found + flow_evidence(state, mask, settings.evidence_max))[: settings.evidence_max])
