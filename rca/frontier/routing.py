"""Which few stages to look at: the smallest set of leading shares that covers most of the exposed time.

Routing is kept apart from ambiguity: two stages may route together and yet be one clear leader and its follower, or be
tied so closely that neither may be called the cause.
"""

from __future__ import annotations

import numpy as np

from rca.frontier.accounting import Accounts, Seconds
from rca.keys import Mask


def candidates(shares: Seconds, cumulative: float) -> tuple[int, ...]:
    """Stages, largest share first, until `cumulative` of the whole is covered; () when nothing is exposed."""
    if shares.sum() <= 0:
        return ()
    order = np.argsort(-shares, kind="stable")
    n = int(np.searchsorted(np.cumsum(shares[order]) / shares.sum(), cumulative - 1e-12)) + 1
    return tuple(order[:n].tolist())


def co_critical(shares: Seconds, gains: Seconds, tolerance: float) -> tuple[int, ...]:
    """Stages within `tolerance` of the largest share, or of the largest gain where there is any; in their order."""
    near = shares >= shares.max() - tolerance
    if gains.max() > tolerance:
        near |= gains >= gains.max() - tolerance
    return tuple(np.flatnonzero(near).tolist())


def has_clear_leader(accounts: Accounts, stage: int, lead_share: float, lead_s: float) -> Mask:
    """(T,) steps whose leader at a boundary is ahead of the second by `lead_s` and by `lead_share` of its own progress."""
    reached = accounts.advances[:, : stage + 1].sum(axis=1)
    found: Mask = (accounts.gap[:, stage] >= lead_s) & (accounts.gap[:, stage] >= lead_share * reached)
    return found


def leader_switches(accounts: Accounts, stage: int, lead_share: float, lead_s: float) -> tuple[float, int]:
    """(share of changes, confident steps): how often the leader at a boundary changed between steps with a clear one."""
    leaders = accounts.leader[has_clear_leader(accounts, stage, lead_share, lead_s), stage]
    if len(leaders) < 2:
        return 0.0, len(leaders)
    return float((leaders[1:] != leaders[:-1]).mean()), len(leaders)
