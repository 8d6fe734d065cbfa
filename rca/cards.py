"""What network cards say themselves: work requests that failed, as evidence beside whatever the rules found (docs/verbs.md).

A card that gave up sending to its peer tells which card that was, where counters of both ends may leave two open. It does
not tell whose fault it is, so it names nobody: it stands with the findings about the ranks that use the card, or with the first.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from rca.findings import Evidence, Finding
from rca.ranks import UNKNOWN_COUNT, Ranks

CARDS_MAX: Final = 4
STATUSES: Final = {
    1: "wrong length", 2: "queue pair in a wrong state", 4: "memory not registered", 6: "memory window", 9: "refused by the peer",
    10: "no access at the peer", 11: "failed at the peer", 12: "no answer after all retries",
    13: "peer not ready after all retries", 20: "unreachable", 21: "failed card",
}  # fmt: skip
"""ibv_wc_status in words; others are given by number."""


def with_failed_completions(findings: list[Finding], ranks: Ranks, nodes: tuple[str, ...]) -> list[Finding]:
    """`findings` with the cards that report failed work requests. nodes: names by number."""
    failed = _failed(ranks)
    if not failed or not findings:
        return findings
    found, told = [], set[int]()
    for one in findings:
        about = {*one.suspects, *one.subject.ranks}
        mine = [card for card in failed if about & set(_users(ranks, card))][:CARDS_MAX]
        told.update(mine)
        found.append(replace(one, evidence=(*one.evidence, *(_evidence(ranks, card, nodes) for card in mine))))
    rest = [card for card in failed if card not in told][:CARDS_MAX]
    return [
        replace(found[0], evidence=(*found[0].evidence, *(_evidence(ranks, one, nodes) for one in rest))),
        *found[1:],
    ]


def _failed(ranks: Ranks) -> list[int]:
    """Places in ranks.nics of cards with failed completions, most first."""
    counts = ranks.nics["completion_errors"]
    some = np.flatnonzero((counts > 0) & (counts != UNKNOWN_COUNT))
    return [int(card) for card in some[np.argsort(-counts[some].astype(np.float64), kind="stable")]]


def _users(ranks: Ranks, card: int) -> list[int]:
    return [int(rank) for rank in ranks.rank[ranks.nic == card]]


def _evidence(ranks: Ranks, card: int, nodes: tuple[str, ...]) -> Evidence:
    row = ranks.nics[card]
    name, node, status = row["name"].decode(errors="replace"), int(row["node"]), int(row["completion_status"])
    users, where = _users(ranks, card), f" of {nodes[node]}" if 0 <= node < len(nodes) else ""
    what = f"failed work requests of NIC {name}{where}, the last one {STATUSES.get(status, f'with status {status}')}"
    return Evidence(what, int(row["completion_errors"]), "", "nic", users[0] if users else None)
