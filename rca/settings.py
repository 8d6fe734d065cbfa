"""The thresholds of triggers and rules, with the paper's defaults.

One frozen dataclass, so that a diagnosis can be stored with the thresholds that were in force and repeated with them
later. Durations are nanoseconds of data time. The paper's Δ is a ceiling here: a job whose ops normally finish every
20 ms need not wait 10 s before a stall is believed (docs/rules/hang.md).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

SECOND_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """Thresholds of one job. Algorithm 1 reads the first group, the rules the second."""

    delta_max_ns: int = 10 * SECOND_NS  # the paper's Δ; holds while no normal is known
    delta_min_ns: int = 2 * SECOND_NS
    delta_intervals: float = 10.0  # Δ = this many times the p99 of the sampled ranks' op interval
    intervals_min: int = 50  # fewer than this are not yet a normal
    sampled_ranks_max: int = 10
    silence_ns: int = 10 * SECOND_NS  # a node without data for so long, while others report
    return_ns: int = 30 * SECOND_NS  # so long after an outage of ours an agent may take to be heard again
    gone_ns: int = 2 * SECOND_NS  # a process gone for so long, while others wait in ops
    spread_ns: int = SECOND_NS  # a stall reaches every rank, and news of it the server, within about so long
    io_bytes_per_s: int = 1_000_000  # a missing rank that reads or writes this much is late, not stuck
    io_patience_ns: int = 120 * SECOND_NS

    slow_factor: float = 2.0  # iterations this many times as long: throughput halves, op interval doubles
    halved_iterations: int = 3
    small_share: float = 0.05  # a slowdown below this share is not looked for
    small_deviations: float = 6.0  # and it must stand out of what iterations usually vary by
    small_iterations: int = 10
    small_ns: int = 10 * SECOND_NS
    recurring_min: int = 3  # long iterations that come and go, within pace_ns
    recurring_share: float = 0.05  # of the time, lost to them
    pace_ns: int = 60 * SECOND_NS
    judged_ns: int = 20 * SECOND_NS  # iterations this old have been judged, and are normal if nothing was found
    history_pause_ns: int = 10 * SECOND_NS  # between two readings of a longer history, for jobs with long iterations
    history_max_ns: int = 240 * SECOND_NS
    warm_up_iterations: int = 20
    usual_iterations_min: int = 20

    still_ns: int = SECOND_NS // 2  # a flow that moved more recently than this is not stalled
    fresh_ns: int = 3 * SECOND_NS // 2  # rows older than the rank's newest by more than this are history
    group_ns: int = 10_000  # p2p ops enqueued so close together were launched as one group
    path_edges_max: int = 64
    conditions_max: int = 16
    evidence_max: int = 16
    findings_max: int = 5

    def thresholds(self) -> dict[str, float]:
        """Name → number, as stored with every diagnosis; durations in seconds."""
        return {
            (name[:-3] + "_s" if name.endswith("_ns") else name): (
                value / SECOND_NS if name.endswith("_ns") else float(value)
            )
            for name, value in asdict(self).items()
        }


DEFAULT = Settings()
