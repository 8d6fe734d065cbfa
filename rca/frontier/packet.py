"""A window packet: what is kept of a window of stages once its rows are gone (StageFrontier §5, evidence packets).

It holds the report, the step's accounts (advances and leaders, step by step), what the stages took on each rank, what
dashboards would have shown instead, and what the job's normal is made of. A few tens of kilobytes: of many ranks, those that
stand out are kept, and the rest by their median; how late each of all is takes less than two bytes (lateness.py).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final

import numpy as np

from ingest.window import Window
from nccl_instrument.stage_schema import BACKWARD, FORWARD_EVENTS
from nccl_instrument.tables import EVENT_SCOPE_LIMITED
from rca.frontier.accounting import Accounts, Seconds, account, sampled_ranks
from rca.frontier.cutting import Cut
from rca.frontier.folding import broad_name, folding_of
from rca.frontier.gates import Gates
from rca.frontier.groups import Group, fit_of
from rca.frontier.labels import label_accounted
from rca.frontier.lateness import lateness_ms, pack_lateness
from rca.frontier.moved import Pace, pace_of
from rca.frontier.report import DeviceEvents, Report, StageWindow
from rca.frontier.summaries import SUMMARIES
from rca.keys import Ints

RANKS_SHOWN_MAX: Final = 256
PLACES: Final = 3  # of milliseconds: what a wall clock is good for


@dataclass(frozen=True, slots=True)
class Packet:
    """report: of the window. role: of its group. body: plain JSON of everything the page shows beside the report.

    usual_s: ordered stage → median over ranks and steps, to which later windows are clipped. step_s: mean exposed time of
    a step. pace: by which the window is compared with others.
    """

    role: str
    report: Report
    cut: Cut
    window: StageWindow
    accounts: Accounts
    step_s: float
    pace: Pace
    usual_s: dict[str, float]
    body: dict[str, Any]


def packet_of(cut: Cut, group: Group, told: Window, gates: Gates, usual_s: dict[str, float] | None = None) -> Packet:
    """The packet of a cut window. told: a window that holds its side, recorder and op rows. usual_s: ordered stage →
    median while the job was as usual, when that is known."""
    accounts = account(cut.durations)
    window = _window(cut, group, told, usual_s)
    at = _leading(cut, accounts)
    fit = fit_of(
        told, group, cut.ranks, _boundary(cut, at), cut.ended_ns, is_before_reduction=_is_before_reduction(cut, at)
    )
    window = replace(window, fits_wait_model=fit.fits, why=fit.why)
    report = label_accounted(window, accounts, gates)
    late = pack_lateness(cut.stages.names[at], cut.ranks, lateness_ms(cut.durations, at))
    pace, body = pace_of(report, accounts.exposed), {**_body(cut, window, accounts, report), "late": late}
    return Packet(group.role, report, cut, window, accounts, report.step_s, pace, _medians(window), body)


def _window(cut: Cut, group: Group, told: Window, usual_s: dict[str, float] | None) -> StageWindow:
    stages = cut.stages
    roles = () if group.are_roles_known else tuple(f"place in the pipeline unknown ({rank})" for rank in cut.ranks)
    reference = None
    if usual_s and all(name in usual_s for name in stages.names):
        reference = np.array([usual_s[name] for name in stages.names])
    return StageWindow(
        cut.durations, stages.names, cut.ranks, cut.overlap_s, max(group.n_known - len(cut.ranks), 0), roles,
        accumulation=max(stages.micro_steps, cut.repeats), is_indexed=stages.is_indexed and cut.repeats == 1,
        events=events_of(cut, told), trouble=cut.trouble, reference_s=reference, first_step=int(cut.steps[0]),
        has_other_roles=group.n_roles > 1,
    )  # fmt: skip


def _leading(cut: Cut, accounts: Accounts) -> int:
    """The ordered stage at whose end the leading one was exposed."""
    stages = folding_of(cut.stages.names)
    return stages.boundary(accounts, int(stages.sums(accounts.shares).argmax()))


def _boundary(cut: Cut, at: int) -> Ints:
    """(T, R) when each rank ended that stage, on its own clock."""
    rest = cut.durations[:, :, at + 1 :].sum(axis=2)
    found: Ints = cut.ended_ns - (rest * 1e9).astype(np.int64)
    return found


def _is_before_reduction(cut: Cut, at: int) -> bool:
    """Whether the last backward ends after that stage has begun: gradients are reduced in it."""
    backward = [place for place, name in enumerate(cut.stages.names) if broad_name(name) == BACKWARD]
    return bool(backward) and at <= backward[-1]


def events_of(cut: Cut, told: Window) -> DeviceEvents | None:
    """Sampled device time of the forward stage in the window; None when none was asked for."""
    channel = next((number for number, name in cut.stages.sides.items() if name == FORWARD_EVENTS), None)
    recorder = told.rows("recorder")
    flagged = recorder["rank"][(recorder["flags"] & EVENT_SCOPE_LIMITED) > 0]
    is_limited = bool(np.isin(flagged, cut.ranks).any())
    side = told.rows("side")
    side = side[(side["step"] >= cut.steps[0]) & (side["step"] <= cut.steps[-1]) & np.isin(side["rank"], cut.ranks)]
    side = side[side["channel"] == channel] if channel is not None else side[:0]
    if not len(side):
        none = np.zeros(len(cut.ranks), np.int64)
        return DeviceEvents(np.full(len(cut.ranks), np.nan), none, none, True) if is_limited else None
    at = np.searchsorted(cut.ranks, side["rank"])
    ready = side["value_ns"] >= 0
    n = np.bincount(at[ready], minlength=len(cut.ranks))
    spent = np.bincount(at[ready], weights=side["value_ns"][ready] / 1e9, minlength=len(cut.ranks))
    mean = np.where(n > 0, spent / np.maximum(n, 1), np.nan)
    return DeviceEvents(mean, n, np.bincount(at, minlength=len(cut.ranks)), is_limited)


def _medians(window: StageWindow) -> dict[str, float]:
    """Ordered stage → median over ranks and steps."""
    drawn = sampled_ranks(len(window.ranks))
    some = window.durations if drawn is None else window.durations[:, drawn]
    return dict(zip(window.stages, np.median(some, axis=(0, 1)).tolist(), strict=True))


def _body(cut: Cut, window: StageWindow, accounts: Accounts, report: Report) -> dict[str, Any]:
    return {
        "first_step": int(cut.steps[0]), "last_step": int(cut.steps[-1]), "start_ns": cut.start_ns,
        "end_ns": cut.end_ns, "closed": cut.closed, "n_left_out": cut.n_left_out, "stages": list(window.stages),
        "report": report_json(report), "steps": _steps(cut, window, accounts),
        "ranks": _ranks(window, report), "by_stage": _by_stage(window, accounts), "summaries": _summaries(window),
    }  # fmt: skip


def report_json(report: Report) -> dict[str, Any]:
    """The report as plain JSON."""
    found = asdict(report)
    return {**found, "labels": [one.value for one in report.labels], "is_strong": report.is_strong}


def _steps(cut: Cut, window: StageWindow, accounts: Accounts) -> dict[str, Any]:
    """The accounts of every step: numbers, advances by broad stage (ms), and the rank that led at each boundary."""
    folding = folding_of(window.stages)
    ends = [int(np.flatnonzero(folding.of == broad)[-1]) for broad in range(len(folding.stages))]
    ranks = np.array(window.ranks)
    return {
        "step": cut.steps.tolist(), "stages": list(folding.stages),
        "advances_ms": np.round(folding.sums(accounts.advances) * 1e3, PLACES).tolist(),
        "leader": ranks[accounts.leader[:, ends]].tolist(),
        "gap_ms": np.round(accounts.gap[:, ends] * 1e3, PLACES).tolist(),
    }  # fmt: skip


def _ranks(window: StageWindow, report: Report) -> dict[str, Any]:
    """Mean of every broad stage on every rank (ms); of many ranks, those that differ most from the median rank."""
    folding = folding_of(window.stages)
    means = folding.sums(window.durations.mean(axis=0)) * 1e3
    shown = np.arange(len(means))
    if len(shown) > RANKS_SHOWN_MAX:
        apart = np.abs(means - np.median(means, axis=0)).max(axis=1)
        shown = np.sort(np.argsort(-apart, kind="stable")[:RANKS_SHOWN_MAX])
    return {
        "rank": [window.ranks[at] for at in shown.tolist()], "stages": list(folding.stages), "n_ranks": len(means),
        "mean_ms": np.round(means[shown], PLACES).tolist(), "median_ms": np.round(np.median(means, axis=0), PLACES).tolist(),
        "leader": report.leader,
    }  # fmt: skip


def _by_stage(window: StageWindow, accounts: Accounts) -> list[dict[str, Any]]:
    """What a median, a 95th percentile and a maximum say of every broad stage, and what the frontier says."""
    folding = folding_of(window.stages)
    durations, shares = folding.sums(window.durations) * 1e3, folding.sums(accounts.shares)
    drawn = sampled_ranks(durations.shape[1])
    some = durations if drawn is None else durations[:, drawn]
    p50, p95 = np.percentile(some, (50, 95), axis=(0, 1))
    step = float(np.median(accounts.exposed)) * 1e3
    return [
        {
            "stage": stage, "p50_ms": round(float(p50[at]), PLACES), "p95_ms": round(float(p95[at]), PLACES),
            "max_ms": round(float(durations[:, :, at].max()), PLACES),
            "p50_share": round(float(p50[at]) / step, 6) if step > 0 else 0.0, "share": round(float(shares[at]), 6),
        }
        for at, stage in enumerate(folding.stages)
    ]  # fmt: skip


def _summaries(window: StageWindow) -> dict[str, dict[str, float]]:
    """What the summaries that dashboards show would say of the same window: name → stage → share (Table 4)."""
    folding = folding_of(window.stages)
    folded: Seconds = folding.sums(window.durations)
    return {
        name: dict(zip(folding.stages, (round(float(share), 6) for share in summary(folded)), strict=True))
        for name, summary in SUMMARIES.items()
    }
