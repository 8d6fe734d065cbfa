"""The gates of the labeler, with the defaults of StageFrontier Table 13.

One frozen dataclass, stored with every report, so that a report can be repeated with the gates that were in force. The
paper's text lost some of its numbers; those marked † are ours. People change them as settings of a job (rca/settings.py,
group "stages").
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from rca.settings import Settings


@dataclass(frozen=True, slots=True)
class Gates:
    """Shares are of the window's step time."""

    residual_share: float = 0.10  # † more than this is not covered by explicit stages
    overlap_share: float = 0.10  # † more than this is counted twice
    missing_ranks: int = 0
    ready_ratio: float = 0.8  # † of the sampled device events
    event_samples_min: int = 5  # †
    dominance: float = 0.40  # † share of exposed time a stage must lead with
    static_gain: float = 0.10  # † below it, the share depends on waits
    tie: float = 0.05  # † shares or gains this close are tied
    lead_share: float = 0.05  # † of its progress, a leader must be ahead of the second
    lead_s: float = 0.001  # †
    switch_share: float = 0.20  # † changes between clear leaders
    candidates: float = 0.80
    floor_s: float = 0.001  # † exposed time of a window below which shares say nothing
    steps_min: int = 5  # †

    def numbers(self) -> dict[str, float]:
        """Name → number, as stored with every report."""
        return {name: float(value) for name, value in asdict(self).items()}


DEFAULT = Gates()


def gates_of(settings: Settings) -> Gates:
    """The gates that a job's settings say."""
    return Gates(
        residual_share=settings.stage_residual_share, overlap_share=settings.stage_overlap_share,
        missing_ranks=settings.stage_missing_ranks, ready_ratio=settings.stage_ready_ratio,
        event_samples_min=settings.stage_event_samples, dominance=settings.stage_dominance,
        static_gain=settings.stage_static_gain, tie=settings.stage_tie, lead_share=settings.stage_lead_share,
        lead_s=settings.stage_lead_ns / 1e9, switch_share=settings.stage_switch_share,
        candidates=settings.stage_candidates, floor_s=settings.stage_floor_ns / 1e9,
        steps_min=settings.stage_steps_min,
    )  # fmt: skip
