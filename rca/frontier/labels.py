"""From a window to labels: deterministic, and saying why whenever something stronger is withheld (Appendices B, C).

Telemetry that does not close, ranks that play different roles, collapsed micro-steps and near ties each take away the
strong labels. What remains is told by three things: whether a stage leads the exposed time, whether clipping it alone
would shorten the step, and whether the group is known to wait for its slowest rank.
"""

from __future__ import annotations

from collections import Counter

import numpy as np

from nccl_instrument.stage_schema import FORWARD, OTHER
from rca.frontier.accounting import Accounts, Seconds, account
from rca.frontier.gain import Baseline, baseline_of, gains
from rca.frontier.gates import DEFAULT, Gates
from rca.frontier.report import Label, Report, StageWindow
from rca.frontier.routing import candidates, co_critical, has_clear_leader, leader_switches


def label(window: StageWindow, gates: Gates = DEFAULT) -> Report:
    """The report of a window. ValueError when its durations cannot be accounted at all."""
    accounts = account(window.durations)
    kind = Baseline.COHORT_MEDIAN if window.reference_s is None else Baseline.REFERENCE
    gain = gains(window.durations, baseline_of(window.durations, kind, window.reference_s))
    shares, top = accounts.shares, int(accounts.shares.argmax())
    routing = candidates(shares, gates.candidates) if accounts.exposed.sum() >= gates.floor_s else ()
    limits = telemetry_limits(window, accounts, gates)
    found, downgrades = [Label.FRONTIER_ACCOUNTING], list(limits)
    if limits:
        found.append(Label.TELEMETRY_LIMITED)
    found += _ambiguous(window, downgrades)
    is_usable = len(found) == 1
    tied = co_critical(shares, gain, gates.tie) if routing else ()
    withheld = _withheld(accounts, shares, top, tied, gates)
    if is_usable and routing:
        strong = _of_stage(window, accounts, gain, top, gates) if not withheld else []
        is_waiting = not strong and shares[top] >= gates.dominance and gain[top] < gates.static_gain
        if withheld or is_waiting:
            found.append(Label.CO_CRITICAL)
            downgrades += withheld or [_unfit(window)]
        found += strong
    found += _forward(window, accounts, routing, gates, may_be_strong=is_usable)
    leader, lead_s = _leader(window, accounts, top, gates)
    named = dict.fromkeys(found)
    return Report(
        labels=tuple(named), shares=_by_stage(window, shares), gains=_by_stage(window, gain),
        routing=tuple(window.stages[stage] for stage in routing),
        co_critical_stages=tuple(window.stages[stage] for stage in tied) if Label.CO_CRITICAL in named else (),
        leader=leader, lead_s=lead_s, step_s=float(accounts.exposed.mean()), downgrades=tuple(downgrades),
        n_steps=accounts.n_steps, n_ranks=len(window.ranks),
    )  # fmt: skip


def telemetry_limits(window: StageWindow, accounts: Accounts, gates: Gates) -> list[str]:
    """What caps confidence, in sentences."""
    found = list(window.trouble)
    whole = float(window.durations.sum())
    if accounts.exposed.sum() < gates.floor_s:
        found.append(f"The window holds less than {gates.floor_s * 1e3:g} ms: shares say nothing.")
    if window.n_missing > gates.missing_ranks:
        found.append(f"{window.n_missing} ranks of the group sent nothing.")
    if OTHER in window.stages and whole > 0:
        residual = float(window.durations[:, :, window.stages.index(OTHER)].sum()) / whole
        if residual > gates.residual_share:
            found.append(f"{residual:.0%} of the step time is in no stage.")
    if (
        window.overlap_s is not None
        and whole > 0
        and (overlap := float(window.overlap_s.sum()) / whole) > gates.overlap_share
    ):
        found.append(f"{overlap:.0%} of the step time was counted in two stages.")
    return found


def _ambiguous(window: StageWindow, downgrades: list[str]) -> list[Label]:
    found = []
    if window.accumulation > 1 and not window.is_indexed:
        downgrades.append(f"{window.accumulation} micro-steps are folded into each stage.")
        found.append(Label.GRADIENT_ACCUMULATION_AMBIGUOUS)
    if len(set(window.roles)) > 1:
        downgrades.append("Ranks of several roles are in one group: " + ", ".join(sorted(set(window.roles))[:8]) + ".")
        found.append(Label.ROLE_AWARE_NEEDED)
    return found


def _withheld(accounts: Accounts, shares: Seconds, top: int, tied: tuple[int, ...], gates: Gates) -> list[str]:
    """Why no single stage may be called the cause; [] when one may, or none leads at all."""
    if shares[top] < gates.dominance:
        return []
    found = []
    by_share = [stage for stage in tied if shares[stage] >= shares[top] - gates.tie]
    if len(by_share) > 1:
        found.append(f"{len(by_share)} stages are within {gates.tie:.0%} of the largest share.")
    switches, n_clear = leader_switches(accounts, top, gates.lead_share, gates.lead_s)
    if switches > gates.switch_share and n_clear > 2:
        found.append(f"The leading rank changed in {switches:.0%} of the steps with a clear one.")
    return found


def _of_stage(window: StageWindow, accounts: Accounts, gain: Seconds, top: int, gates: Gates) -> list[Label]:
    """Strong labels of the leading stage."""
    if accounts.shares[top] < gates.dominance:
        return []
    found = []
    if gain[top] >= gates.static_gain and int(gain.argmax()) == top and _is_spread_most(window, top):
        found.append(Label.DIRECT_EXPOSURE)
    # A wait needs somebody to wait for: where all ranks arrive together, a large share is only a large stage.
    is_led = float(accounts.lag[:, top].mean()) >= gates.tie * float(accounts.exposed.mean())
    if window.fits_wait_model and is_led and top + 1 < len(window.stages):
        if gain[top] < gates.static_gain:
            found.append(Label.SYNC_WAIT_DEPENDENT)
        if _is_caught_up(accounts, top):
            found.append(Label.LIKELY_SYNC_WAIT)
    return found


def _is_spread_most(window: StageWindow, stage: int) -> bool:
    """Whether ranks differ most in this stage, or it is the longest."""
    spread = (window.durations.max(axis=1) - np.median(window.durations, axis=1)).sum(axis=0)
    return stage in (int(spread.argmax()), int(window.durations.mean(axis=(0, 1)).argmax()))


def _is_caught_up(accounts: Accounts, stage: int) -> bool:
    """Whether the lead arises in this stage and the others make up for most of it later in the step."""
    rise = float(accounts.lag_increase[:, stage].mean())
    return rise > 0 and float(accounts.lag[:, -1].mean()) <= float(accounts.lag[:, stage].mean()) - 0.5 * rise


def _unfit(window: StageWindow) -> str:
    said = f": {window.why}" if window.why else ""
    return f"Clipping the stage alone would not shorten the step, and nothing shows that the others wait for it{said}."


def _forward(
    window: StageWindow, accounts: Accounts, routing: tuple[int, ...], gates: Gates, *, may_be_strong: bool
) -> list[Label]:
    """What sampled device time says of the forward stage; [] without samples."""
    events = window.events
    if events is None or not events.n_asked or FORWARD not in window.stages:
        return []
    if events.n_ready < gates.event_samples_min or events.n_ready < gates.ready_ratio * events.n_asked:
        return [Label.FORWARD_EVENT_SCOPE_LIMITED]
    stage = window.stages.index(FORWARD)
    wall = window.durations[:, :, stage].mean(axis=0)
    stands_out = gates.tie * float(accounts.exposed.mean())
    is_device_high = bool(np.nanmax(events.mean_s) - np.nanmedian(events.mean_s) >= stands_out)
    is_wall_high = bool(wall.max() - np.median(wall) >= stands_out)
    if is_device_high and stage in routing:
        found = [Label.FORWARD_DEVICE_SUPPORTED] if may_be_strong else []
        return found if is_wall_high else [*found, Label.FORWARD_SPILLOVER_SUSPECTED]
    if is_device_high:
        return [Label.FORWARD_SPILLOVER_SUSPECTED]
    return [Label.FORWARD_HOST_OVERHEAD_SUSPECTED] if is_wall_high and stage in routing else []


def _leader(window: StageWindow, accounts: Accounts, stage: int, gates: Gates) -> tuple[int | None, float]:
    """The rank that clearly leads at a boundary in most of the steps that have a clear leader, and its mean lead."""
    is_clear = has_clear_leader(accounts, stage, gates.lead_share, gates.lead_s)
    if len(window.ranks) < 2 or is_clear.sum() == 0:
        return None, 0.0
    (rank, times), *_ = Counter(accounts.leader[is_clear, stage].tolist()).most_common(1)
    if 2 * times <= is_clear.sum():
        return None, 0.0
    return window.ranks[rank], float(accounts.gap[is_clear, stage].mean())


def _by_stage(window: StageWindow, values: Seconds) -> dict[str, float]:
    return {stage: round(float(value), 9) for stage, value in zip(window.stages, values, strict=True)}
