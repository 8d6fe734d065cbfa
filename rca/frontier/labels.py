"""From a window to labels: deterministic, and saying why whenever something stronger is withheld (Appendices B, C).

Telemetry that does not close, ranks that play different roles, collapsed micro-steps and near ties each take away the
strong labels. What remains is told by three things: whether a stage leads the exposed time, whether clipping it alone
would shorten the step, and whether the group is known to wait for its slowest rank.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nccl_instrument.stage_schema import OTHER
from rca.frontier.accounting import Accounts, Seconds, account
from rca.frontier.device import forward_labels
from rca.frontier.folding import Folding, folding_of
from rca.frontier.gain import Baseline, baseline_of, gains
from rca.frontier.gates import DEFAULT, Gates
from rca.frontier.limits import telemetry_limits
from rca.frontier.report import STRONG, Label, Localization, Report, StageWindow
from rca.frontier.routing import candidates, co_critical, localize, waited_in
from rca.frontier.words import ON_HOST

ROLES_SHOWN_MAX = 8


def label(window: StageWindow, gates: Gates = DEFAULT) -> Report:
    """The report of a window. ValueError when its durations cannot be accounted at all."""
    return label_accounted(window, account(window.durations), gates)


def label_accounted(window: StageWindow, accounts: Accounts, gates: Gates = DEFAULT) -> Report:
    """The same where the window has been accounted already."""
    view = _view(window, accounts)
    routing = candidates(view.shares, gates.candidates) if accounts.exposed.sum() >= gates.floor_s else ()
    at = localize(window, accounts, view.boundary, gates)
    found, downgrades, tied = _judged(view, at, routing, gates)
    return Report(
        labels=tuple(dict.fromkeys(found)), shares=_by_stage(view, view.shares), gains=_by_stage(view, view.gain),
        routing=tuple(view.folding.stages[stage] for stage in routing),
        co_critical_stages=tuple(view.folding.stages[stage] for stage in tied) if Label.CO_CRITICAL in found else (),
        at=at, step_s=float(accounts.exposed.mean()), downgrades=tuple(downgrades),
        n_steps=accounts.n_steps, n_ranks=len(window.ranks), gain_baseline=view.kind.value,
        all_gains={one.value: _by_stage(view, gained) for one, gained in view.all_gains.items()},
        fits_wait_model=window.fits_wait_model, why=window.why, gates=gates.numbers(),
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _View:
    """A window by its broad stages. durations: (T, R, G); shares, gain: (G,). top: the broad stage that leads; boundary:
    the ordered stage in which most of it was exposed."""

    window: StageWindow
    accounts: Accounts
    folding: Folding
    durations: Seconds
    shares: Seconds
    kind: Baseline
    all_gains: dict[Baseline, Seconds]
    top: int
    boundary: int

    @property
    def gain(self) -> Seconds:
        return self.all_gains[self.kind]


def _view(window: StageWindow, accounts: Accounts) -> _View:
    folding = folding_of(window.stages)
    shares = folding.sums(accounts.shares)
    top = int(shares.argmax())
    kinds = [Baseline.RANK_MEDIAN, Baseline.COHORT_MEDIAN]
    if window.reference_s is not None:
        kinds.append(Baseline.REFERENCE)
    usual = {one: baseline_of(window.durations, one, window.reference_s) for one in kinds}
    found = {one: gains(window.durations, baseline, folding.of) for one, baseline in usual.items()}
    kind = Baseline.COHORT_MEDIAN if window.reference_s is None else Baseline.REFERENCE
    folded = folding.sums(window.durations)
    return _View(window, accounts, folding, folded, shares, kind, found, top, folding.boundary(accounts, top))


def _judged(
    view: _View, at: Localization, routing: tuple[int, ...], gates: Gates
) -> tuple[list[Label], list[str], tuple[int, ...]]:
    """Labels, why stronger ones were withheld, and the stages that cannot be ranked."""
    accounts = view.accounts
    limits = telemetry_limits(view.window, accounts, gates)
    found, downgrades = [Label.FRONTIER_ACCOUNTING], list(limits)
    if limits:
        found.append(Label.TELEMETRY_LIMITED)
    found += _ambiguous(view.window, downgrades)
    is_usable = len(found) == 1
    tied = co_critical(view.shares, view.gain, gates.tie) if routing else ()
    if is_usable and routing and view.shares[view.top] >= gates.dominance:
        withheld = _withheld(view, at, tied, gates)
        strong = [] if withheld else _strong(view, gates)
        if not strong:
            found.append(Label.CO_CRITICAL)
            downgrades += withheld or [_unfit(view, gates)]
            tied = tuple(sorted({*tied, *waited_in(view.durations, view.top, gates.tie * accounts.exposed.sum())}))
        found += strong
    found += _forward(view, routing, gates, may_be_strong=is_usable and len(view.window.ranks) > 1)
    return found, downgrades, tied


def _ambiguous(window: StageWindow, downgrades: list[str]) -> list[Label]:
    found = []
    if window.accumulation > 1 and not window.is_indexed:
        downgrades.append(f"{window.accumulation} micro-steps are folded into each stage.")
        found.append(Label.GRADIENT_ACCUMULATION_AMBIGUOUS)
    if len(set(window.roles)) > 1:
        roles = ", ".join(sorted(set(window.roles))[:ROLES_SHOWN_MAX])
        downgrades.append(f"Ranks of several roles are in one group: {roles}.")
        found.append(Label.ROLE_AWARE_NEEDED)
    return found


def _withheld(view: _View, at: Localization, tied: tuple[int, ...], gates: Gates) -> list[str]:
    """Why no single stage may be called the cause; [] when one may."""
    found, shares = [], view.shares
    if len(view.window.ranks) < 2:
        found.append("Only one rank plays this part: there is nobody to compare it with.")
    by_share = [stage for stage in tied if shares[stage] >= shares.max() - gates.tie]
    if len(by_share) > 1:
        found.append(f"{len(by_share)} stages are within {gates.tie:.0%} of the largest share.")
    if at.switch_share > gates.switch_share and at.n_clear > 2:
        found.append(f"The leading rank changed in {at.switch_share:.0%} of the steps with a clear one.")
    return found


def _strong(view: _View, gates: Gates) -> list[Label]:
    """Strong labels of the leading stage, which has a dominating share. What is in no stage is no stage's doing."""
    found, gain, top = list[Label](), view.gain, view.top
    if view.folding.stages[top] == OTHER:
        return found
    if gain[top] >= gates.static_gain and int(gain.argmax()) == top and _agrees(view, gates):
        found.append(Label.DIRECT_EXPOSURE)
    if view.window.fits_wait_model and _is_led(view, gates):
        if gain[top] < gates.static_gain:
            found.append(Label.SYNC_WAIT_DEPENDENT)
        if _is_caught_up(view):
            found.append(Label.LIKELY_SYNC_WAIT)
    return found


def _is_led(view: _View, gates: Gates) -> bool:
    """Whether somebody arrives late at the end of the leading stage, and others go on after it to wait for them.

    A wait needs somebody to wait for: where all ranks arrive together, a large share is only a large stage.
    """
    return _is_late(view, gates) and view.boundary + 1 < len(view.folding.of)


def _is_late(view: _View, gates: Gates) -> bool:
    """Whether somebody arrives later than the median rank, by more than a tie."""
    lag, exposed = view.accounts.lag[:, view.boundary], view.accounts.exposed
    return float(lag.mean()) >= gates.tie * float(exposed.mean())


def _agrees(view: _View, gates: Gates) -> bool:
    """Whether raw durations say the same: ranks differ most in the leading stage, or it is the longest.

    Where other roles work on the same step, a stage that is merely long on all ranks may be a wait for them, which no
    clipping inside this group takes away (Equation 4): then only what differs between its ranks is their own.
    """
    spread = (view.durations.max(axis=1) - np.median(view.durations, axis=1)).sum(axis=0)
    is_apart = view.top == int(spread.argmax())
    if view.window.has_other_roles and view.folding.stages[view.top] not in ON_HOST:
        return is_apart and _is_late(view, gates)
    return is_apart or view.top == int(view.durations.mean(axis=(0, 1)).argmax())


def _is_caught_up(view: _View) -> bool:
    """Whether the lead arises in this stage and the others make up for most of it later in the step."""
    rise = float(view.accounts.lag_increase[:, view.boundary].mean())
    lag = view.accounts.lag.mean(axis=0)
    return rise > 0 and float(lag[-1]) <= float(lag[view.boundary]) - 0.5 * rise


def _unfit(view: _View, gates: Gates) -> str:
    """Why a stage that leads, and whose own work clipped would save little, is not called the cause."""
    if view.window.has_other_roles and not _is_late(view, gates):
        return "All ranks of this role end the leading stage together: they may be waiting for ranks of another role."
    if view.window.fits_wait_model and not _is_led(view, gates):
        return "All ranks end the leading stage together: whose work it is, or whose wait, cannot be told from stages."
    said = f": {view.window.why}" if view.window.why else ""
    return f"Clipping the stage alone would not shorten the step, and nothing shows that the others wait for it{said}."


def _forward(view: _View, routing: tuple[int, ...], gates: Gates, *, may_be_strong: bool) -> list[Label]:
    """What sampled device time says of the forward stage; [] without samples."""
    exposed_s = float(view.accounts.exposed.mean())
    wall, events = view.durations.mean(axis=0), view.window.events
    found = forward_labels(events, view.folding.stages, wall, view.shares, routing, exposed_s, gates)
    return found if may_be_strong else [one for one in found if one not in STRONG]


def _by_stage(view: _View, values: Seconds) -> dict[str, float]:
    return {stage: round(float(value), 9) for stage, value in zip(view.folding.stages, values, strict=True)}
