"""The thresholds of triggers and rules, with the paper's defaults, and what each may be changed to.

One frozen dataclass, so that a diagnosis can be stored with the thresholds that were in force and repeated with them
later. Durations are nanoseconds of data time; people name and set them in seconds. The paper's Δ is a ceiling here: a
job whose ops normally finish every 20 ms need not wait 10 s before a stall is believed (docs/rules/hang.md).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

SECOND_NS = 1_000_000_000


class BadSetting(ValueError):
    """A setting that does not exist, or a value it may not have; the message is a sentence for people."""


@dataclass(frozen=True, slots=True)
class Limit:
    """What a setting may be changed to: low ≤ value ≤ high, in `unit`; `whole` numbers only where half a one means nothing."""

    name: str
    group: str
    default: float
    low: float
    high: float
    unit: str
    whole: bool
    about: str


def _seconds(group: str, default: float, low: float, high: float, about: str) -> Any:
    limits = {"group": group, "low": low, "high": high, "unit": "s", "about": about}
    return dataclasses.field(default=int(default * SECOND_NS), metadata=limits)


def _number(group: str, default: float, low: float, high: float, unit: str, about: str) -> Any:
    limits = {"group": group, "low": low, "high": high, "unit": unit, "about": about}
    return dataclasses.field(default=default, metadata=limits)


@dataclass(frozen=True, slots=True)
class Settings:
    """Thresholds of one job. Those with limits may be changed while it runs; the others are what the rules are made of."""

    delta_max_ns: int = _seconds(
        "failure", 10, 1, 600, "The longest Δ, which also holds while no normal is known, as in the paper."
    )
    delta_min_ns: int = _seconds("failure", 2, 0.5, 600, "The shortest Δ, however short the job's ops are.")
    delta_intervals: float = _number(
        "failure", 10.0, 1, 1000, "intervals", "Between them Δ is so many p99 of the watched ranks' op interval."
    )
    intervals_min: int = _number(
        "failure", 50, 10, 10_000, "intervals", "Op intervals seen before they count as the job's normal."
    )
    sampled_ranks_max: int = _number("failure", 10, 1, 64, "ranks", "Ranks by which a job is watched, at most.")
    spread_ns: int = _seconds(
        "failure", 1, 0.1, 60, "Time in which a stall reaches every rank, and news of it the server."
    )
    io_bytes_per_s: int = _number(
        "failure", 1_000_000, 1000, 10**12, "B/s", "A missing rank that reads or writes this much is late, not stuck."
    )
    io_patience_ns: int = _seconds(
        "failure", 120, 0, 86_400, "A rank that reads or writes files excuses a stall so long at most."
    )
    silence_ns: int = _seconds(
        "silence",
        10,
        3,
        3600,
        "A node that sends nothing for so long while others report is silent, twice as long where the job goes on with it.",
    )
    return_ns: int = _seconds("silence", 30, 0, 3600, "Time an agent may take to return after an outage of the server.")
    gone_ns: int = _seconds("silence", 2, 0.5, 600, "A process gone for so long while others wait in ops is told.")

    slow_factor: float = _number(
        "straggler", 2.0, 1.1, 100, "times", "An iteration so many times the usual is slow at once, as in the paper."
    )
    halved_iterations: int = _number(
        "straggler", 3, 2, 100, "iterations", "Iterations in a row that must be that slow."
    )
    small_share: float = _number(
        "straggler", 0.05, 0.01, 1, "share", "The smallest slowdown looked for, as a share of the usual."
    )
    small_deviations: float = _number(
        "straggler",
        6.0,
        2,
        100,
        "deviations",
        "How far a small slowdown must stand out from what iterations, or blocks of them, vary by.",
    )
    small_iterations: int = _number(
        "straggler",
        10,
        3,
        200,
        "iterations",
        "Iterations for which a small slowdown must last; amid jitter up to eight times as many.",
    )
    small_ns: int = _seconds("straggler", 10, 1, 600, "Time for which a small slowdown must last.")
    large_factor: float = _number(
        "straggler", 1.3, 1, 100, "times", "A slowdown to so many times the usual opens an incident without a name."
    )
    recurring_min: int = _number(
        "straggler", 3, 2, 100, "iterations", "Long iterations that come and go before they are a symptom."
    )
    recurring_share: float = _number(
        "straggler", 0.05, 0.01, 1, "share", "Share of the time that such iterations must cost."
    )
    pace_ns: int = _seconds("straggler", 60, 10, 600, "How far back iterations are compared with the usual.")
    judged_ns: int = _seconds(
        "straggler", 20, 1, 600, "Age at which iterations that look well become part of the normal."
    )
    history_pause_ns: int = _seconds(
        "straggler", 10, 1, 600, "Pause between readings of a longer history, for jobs with long iterations."
    )
    history_max_ns: int = _seconds("straggler", 240, 15, 600, "How far back that longer history is read, at most.")
    warm_up_iterations: int = _number(
        "straggler", 20, 0, 10_000, "iterations", "Iterations at the start of a job that are not judged."
    )
    usual_iterations_min: int = _number(
        "straggler", 20, 5, 200, "iterations", "Iterations seen before they count as the job's normal."
    )

    idle_ns: int = _seconds("idle", 60, 10, 86_400, "A job is idle when no op is in flight anywhere for so long.")
    idle_intervals: float = _number(
        "idle", 10.0, 1, 10_000, "intervals", "An idle job has also missed so many of its usual op intervals."
    )
    idle_patience_ns: int = _seconds(
        "idle", 1800, 0, 7 * 86_400, "Reading or writing files excuses an idle job so long at most."
    )
    start_ns: int = _seconds(
        "idle", 600, 30, 86_400, "A job whose ranks are heard must have ended its first op within so long."
    )
    idle_stacks_ns: int = _seconds(
        "idle", 30, 0, 3600, "An idle job that its stacks do not explain pages so long after they were asked for."
    )

    stage_steps: int = _number("stages", 120, 10, 2000, "steps", "Steps of a window of stages, as in the paper.")
    stage_warm_up: int = _number("stages", 20, 0, 10_000, "steps", "Steps at the start of a job that no window holds.")
    stage_window_ns: int = _seconds(
        "stages", 60, 5, 600, "A window of stages is closed after so long, however few its steps."
    )
    stage_steps_min: int = _number(
        "stages", 5, 1, 1000, "steps", "Of a window with fewer steps nothing strong is said."
    )
    stage_residual_share: float = _number(
        "stages",
        0.10,
        0,
        1,
        "share",
        "More step time than this in no stage, on any rank, takes the strong labels away.",
    )
    stage_overlap_share: float = _number(
        "stages",
        0.10,
        0,
        1,
        "share",
        "More step time than this counted in two stages, on any rank, takes the strong labels away.",
    )
    stage_missing_ranks: int = _number(
        "stages",
        0,
        0,
        10_000,
        "ranks",
        "So many ranks of a group may send no stages before strong labels are withheld.",
    )
    stage_ready_ratio: float = _number(
        "stages", 0.8, 0, 1, "share", "Of the sampled device times so many must have been ready to be evidence."
    )
    stage_event_samples: int = _number("stages", 5, 1, 10_000, "samples", "Fewer sampled device times say nothing.")
    stage_dominance: float = _number(
        "stages",
        0.40,
        0.05,
        1,
        "share",
        "Share of the exposed time with which a stage must lead to be called the cause.",
    )
    stage_static_gain: float = _number(
        "stages",
        0.10,
        0,
        1,
        "share",
        "What clipping a stage must save of the exposed time for it to be exposed directly.",
    )
    stage_tie: float = _number("stages", 0.05, 0, 0.5, "share", "Shares or gains this close are tied.")
    stage_lead_share: float = _number(
        "stages", 0.05, 0, 1, "share", "So much of its progress a rank must be ahead of the second to lead clearly."
    )
    stage_lead_ns: int = _seconds("stages", 0.001, 0, 10, "And so long.")
    stage_switch_share: float = _number(
        "stages", 0.20, 0, 1, "share", "Changes of the clear leader in more steps than this are nobody's doing."
    )
    stage_candidates: float = _number(
        "stages", 0.80, 0.1, 1, "share", "Stages are looked at, largest first, until they cover this share."
    )
    stage_floor_ns: int = _seconds("stages", 0.001, 0, 10, "Shares of a window with less exposed time say nothing.")
    stage_moved_share: float = _number(
        "stages", 0.05, 0.01, 10, "share", "A step time so much above the job's usual, or more, has moved."
    )
    stage_moved_deviations: float = _number(
        "stages", 6.0, 2, 100, "deviations", "And it must stand out so far from what windows vary by."
    )
    stage_usual_windows: int = _number("stages", 2, 1, 100, "windows", "Windows seen before they are the job's usual.")

    still_ns: int = SECOND_NS // 2  # a flow that moved more recently than this is not stalled
    fresh_ns: int = 3 * SECOND_NS // 2  # rows older than the rank's newest by more than this are history
    group_ns: int = 10_000  # p2p ops enqueued so close together were launched as one group
    path_edges_max: int = 64
    conditions_max: int = 16
    evidence_max: int = 16
    findings_max: int = 5

    def thresholds(self) -> dict[str, float]:
        """Name → number, as stored with every diagnosis; durations in seconds."""
        return {_said(name): _number_of(name, value) for name, value in asdict(self).items()}


DEFAULT = Settings()


@lru_cache(maxsize=1)
def limits() -> dict[str, Limit]:
    """Name (durations in seconds) → what it may be, of every setting that people may change."""
    shipped, found = Settings(), {}
    for one in dataclasses.fields(Settings):
        if one.metadata:
            name, default = _said(one.name), _number_of(one.name, getattr(shipped, one.name))
            found[name] = Limit(name=name, default=default, whole=_is_whole(one), **one.metadata)
    return found


def checked(name: str, value: object) -> float:
    """`value` if the setting may have it. Raises BadSetting."""
    limit = limits().get(name)
    if limit is None:
        raise BadSetting(f"There is no setting {name[:64]!r} that can be changed.")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadSetting(f"{name} must be a number ({limit.unit}).")
    if not limit.low <= value <= limit.high:
        given = f", not {value:.10g}" if isinstance(value, float) or abs(value) < 10**15 else ""
        raise BadSetting(f"{name} must be between {limit.low:,.10g} and {limit.high:,.10g} {limit.unit}{given}.")
    if limit.whole and value != int(value):
        raise BadSetting(f"{name} must be a whole number of {limit.unit}, not {value:.10g}.")
    return float(value)


def settings_with(overrides: Mapping[str, object], base: Settings = DEFAULT) -> Settings:
    """`base` with these values, names and units as in `limits()`. Raises BadSetting."""
    fields = {_said(one.name): one for one in dataclasses.fields(Settings)}
    values: dict[str, Any] = {}
    for name, value in overrides.items():
        number = checked(name, value)
        one = fields[name]
        if one.name.endswith("_ns"):
            number *= SECOND_NS
        values[one.name] = round(number) if one.type == "int" else number
    made = dataclasses.replace(base, **values)
    if made.delta_min_ns > made.delta_max_ns:
        raise BadSetting(
            f"delta_min_s ({made.delta_min_ns / SECOND_NS:g} s) must not be above"
            f" delta_max_s ({made.delta_max_ns / SECOND_NS:g} s)."
        )
    return made


def _said(name: str) -> str:
    return name[:-3] + "_s" if name.endswith("_ns") else name


def _number_of(name: str, value: float) -> float:
    return value / SECOND_NS if name.endswith("_ns") else float(value)


def _is_whole(one: dataclasses.Field[Any]) -> bool:
    return one.type == "int" and not one.name.endswith("_ns")
