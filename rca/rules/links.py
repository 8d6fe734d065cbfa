"""Data is lost between ranks and no port is known to be down: which NIC, which proxy, or only which link?

    lost: 3→7, 7→3, 3→1        all touch rank 3: rank 3's side
    lost: 3→7, 7→3 only        the link 3–7; the two ends cannot be told apart

A NIC that is dead loses data both ways; a proxy that sleeps only leaves incoming data lying. One rank that every lossy
link touches is named; a single link with the same losses both ways is named as a link and blames no rank. Part of the
hang rule (docs/rules/hang.md).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nccl_instrument.tables import SEND, SOCKET
from rca.advice import for_link, for_proxy
from rca.findings import Component, Evidence, FaultKind, Finding, Grade, State, Subject
from rca.hang.pairs import SEEN
from rca.hang.progress import Progress
from rca.hang.sinks import Sink
from rca.hang.table4 import REMOTE, conditions, holds, verdicts
from rca.keys import Mask
from rca.ranks import PORT_UP
from rca.settings import Settings
from rca.words import flow_evidence, named, nic_name, node_name, process_evidence, rank_subject, score, waiting

RULE = "hang"
VERSION = 3


def explain(state: Progress, lossy: list[Sink], settings: Settings) -> list[Finding]:
    """Findings that cover all lossy links: one when a rank or NIC is common to all, else one per link."""
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
    return [_one_pair(state, state.links[sink.link], sink.waiters, settings) for sink in lossy[: settings.findings_max]]


def _common_ranks(state: Progress, ends: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> list[int]:
    return [int(at) for at in np.unique(ends) if (ends == at).any(axis=1).all()]


def _common_nic(state: Progress, ends: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> tuple[int, ...]:
    """Ranks that share the one NIC all links touch, () when there is no such NIC or two of them."""
    if len(ends) < 2:
        return ()
    nics = state.ranks.nic[ends]
    common = [int(nic) for nic in np.unique(nics) if nic >= 0 and (nics == nic).any(axis=1).all()]
    return tuple(int(at) for at in np.flatnonzero(state.ranks.nic == common[0])) if len(common) == 1 else ()


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
