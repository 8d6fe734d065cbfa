"""Which few stages to look at: the smallest set of leading shares that covers most of the exposed time.

Routing is kept apart from ambiguity: two stages may route together and yet be one clear leader and its follower, or be
tied so closely that neither may be called the cause (StageFrontier §4).
"""

from __future__ import annotations

from collections import Counter
from typing import Final

import numpy as np

from rca.frontier.accounting import Accounts, Seconds, times_tied
from rca.frontier.gates import Gates
from rca.frontier.report import Localization, StageWindow
from rca.keys import Mask

TIED_SHOWN_MAX: Final = 16
LEADERS_SHOWN_MAX: Final = 8


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


def waited_in(durations: Seconds, leading: int, floor_s: float) -> tuple[int, ...]:
    """The later stage in which ranks differ most, where they may be waiting for `leading` or doing work of their own.

    () when they differ by less than `floor_s` over the window. The two-rank matrix (10, 0), (0, 10) cannot tell which it is.
    """
    if leading + 1 >= durations.shape[2]:
        return ()
    apart = (durations.max(axis=1) - durations.min(axis=1)).sum(axis=0)
    stage = leading + 1 + int(apart[leading + 1 :].argmax())
    return (stage,) if apart[stage] >= floor_s else ()


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


def localize(window: StageWindow, accounts: Accounts, stage: int, gates: Gates) -> Localization:
    """Who leads at a boundary; nobody in a group of one rank."""
    if len(window.ranks) < 2:
        return Localization()
    is_clear = has_clear_leader(accounts, stage, gates.lead_share, gates.lead_s)
    switch_share, n_clear = leader_switches(accounts, stage, gates.lead_share, gates.lead_s)
    leaders = Counter(accounts.leader[is_clear, stage].tolist()).most_common(LEADERS_SHOWN_MAX)
    leader, lead_s, n_led = None, 0.0, 0
    if leaders and 2 * leaders[0][1] > n_clear:
        rank, n_led = leaders[0]
        is_own = is_clear & (accounts.leader[:, stage] == rank)
        leader, lead_s = window.ranks[rank], float(accounts.gap[is_own, stage].mean())
    tied = np.flatnonzero(2 * times_tied(window.durations, stage, gates.tie) > accounts.n_steps)
    return Localization(
        leader, lead_s, tuple(window.ranks[at] for at in tied[:TIED_SHOWN_MAX].tolist()), len(tied),
        float(accounts.lag[:, stage].mean()), float(accounts.lag_increase[:, stage].mean()),
        float(accounts.gap[:, stage].mean()), n_clear, switch_share, n_led,
        tuple((window.ranks[rank], times) for rank, times in leaders),
    )  # fmt: skip
