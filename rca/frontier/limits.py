"""What caps the confidence in a window, in sentences (StageFrontier Tables 11 and 13).

Spans have to close the step on every rank: of many ranks the one that they do not close is the one whose time is where
nobody looks, and a mean over all would hide it.
"""

from __future__ import annotations

import numpy as np

from nccl_instrument.stage_schema import OTHER
from rca.frontier.accounting import Accounts, Seconds
from rca.frontier.gates import Gates
from rca.frontier.report import StageWindow


def telemetry_limits(window: StageWindow, accounts: Accounts, gates: Gates) -> list[str]:
    """Sentences; [] when nothing limits what may be said."""
    found = list(window.trouble)
    if accounts.exposed.sum() < gates.floor_s:
        found.append(f"The window holds less than {gates.floor_s * 1e3:g} ms: shares say nothing.")
    if accounts.n_steps < gates.steps_min and not window.is_mean:
        steps = "1 step" if accounts.n_steps == 1 else f"{accounts.n_steps} steps"
        found.append(f"The window holds {steps}: fewer than {gates.steps_min} say little.")
    if window.n_missing > gates.missing_ranks:
        found.append(f"{n_ranks(window.n_missing)} of the group sent nothing.")
    whole = window.durations.sum(axis=(0, 2))
    if OTHER in window.stages and whole.any():
        at = window.stages.index(OTHER)
        rest = _over(window, window.durations[:, :, at].sum(axis=0), whole, gates.residual_share, "is in no stage")
        found += rest or _exposed(accounts.shares[at], gates.residual_share)
    if window.overlap_s is not None and whole.any():
        found += _over(window, window.overlap_s.sum(axis=0), whole, gates.overlap_share, "was counted in two stages")
    return found


def n_ranks(n: int) -> str:
    return "1 rank" if n == 1 else f"{n:,} ranks"


def _over(window: StageWindow, spent: Seconds, whole: Seconds, most: float, what: str) -> list[str]:
    """Of all ranks together, else of the worst one. spent, whole: (R,) seconds of the window."""
    if spent.sum() > most * whole.sum():
        return [f"{spent.sum() / whole.sum():.0%} of the step time {what}."]
    shares = spent / np.maximum(whole, 1e-12)
    worst = int(shares.argmax())
    if shares[worst] <= most:
        return []
    return [f"On rank {window.ranks[worst]}, {shares[worst]:.0%} of the step time {what}."]


def _exposed(share: float, most: float) -> list[str]:
    return [f"{share:.0%} of the exposed time is in no stage."] if share > most else []
