"""What to look for when somebody asks for a diagnosis and no trigger has said what is wrong.

A job in which ops stand still is looked at as a hang. One that goes on, and whose newest iterations are longer than those
before by more than they usually vary, as a slowdown since then. Of any other only what is seen directly counts: what a
moment of a running job looks like is no evidence.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from ingest.window import Window
from rca.findings import Component, Diagnosis, Evidence, FaultKind, Finding, Grade, Symptom, SymptomKind
from rca.hang.stuck import resumed_ranks, watched_ranks
from rca.ranks import Ranks, known_ranks
from rca.settings import Settings
from rca.slow.iterations import iteration_lengths
from rca.slow.streams import Floats
from rca.triggers.sampling import sampled_ranks
from rca.words import capitalised, named

PART_MIN = 3
"""Iterations before and after the change: fewer tell nothing of what is usual."""
CLIPPED = 3.0
NORMAL_MAD = 1.4826


def taken_as(window: Window, symptom: Symptom, settings: Settings) -> Symptom:
    """`symptom` as the kind whose rules have something to explain."""
    since_ns = _stuck_since_ns(window, settings)
    if since_ns is not None:
        return replace(symptom, kind=SymptomKind.FAILURE, at_ns=min(symptom.at_ns, since_ns))
    onset_ns = slow_since_ns(window, settings)
    if onset_ns is not None:
        return replace(symptom, kind=SymptomKind.STRAGGLER, at_ns=onset_ns)
    return replace(symptom, kind=SymptomKind.SILENCE)


def excused(window: Window, found: Diagnosis, settings: Settings) -> Diagnosis:
    """`found`, in which nobody is blamed who only reads or writes files (a checkpoint): late, not stuck.

    A trigger waits for such ranks; who asks by hand hears of them at once.
    """
    ranks = known_ranks(window, settings)
    return replace(found, findings=tuple(_excused(one, ranks, settings) for one in found.findings))


def _excused(finding: Finding, ranks: Ranks, settings: Settings) -> Finding:
    at = ranks.position(np.array(finding.culprits, np.int64))
    is_between_ops = finding.component is Component.SOFTWARE and finding.kind is FaultKind.COMPUTATION_FAIL_STOP
    if not is_between_ops or not len(at) or (ranks.io_rate[at] < settings.io_bytes_per_s).any():
        return finding
    rate = round(float(ranks.io_rate[at].min()) / 1e6, 1)
    fact = Evidence("files read and written", rate, "MB/s", "process", finding.culprits[0])
    return replace(
        finding, culprits=(), grade=Grade.WEAK, score=round(finding.score / 2, 4), evidence=(fact, *finding.evidence),
        sentence=f"{capitalised(named(finding.culprits))}: {rate} MB/s of files: late, not stuck. {finding.sentence}",
    )  # fmt: skip


def stands_still(window: Window, settings: Settings) -> bool:
    """Whether a watched rank has had ops in progress for the shortest Δ with nothing moving, and none has just gone on."""
    return _stuck_since_ns(window, settings) is not None


def _stuck_since_ns(window: Window, settings: Settings) -> int | None:
    """Since when it stands still; None where it does not."""
    watched = watched_ranks(window, sampled_ranks(window, settings), settings)
    stuck = [one.since_ns for one in watched if one.stalled_ns >= settings.delta_min_ns]
    if not stuck or resumed_ranks(window, watched, settings.delta_min_ns, settings):
        return None
    return min(stuck)


def slow_since_ns(window: Window, settings: Settings) -> int | None:
    """When iterations became longer; None when they did not, or when the window holds too few of them."""
    known = iteration_lengths(window, sampled_ranks(window, settings))
    lengths = np.array([length for _, length in known], np.float64)
    if len(lengths) < 2 * PART_MIN:
        return None
    at = _change(lengths)
    usual = float(np.median(lengths[:at]))
    deviation = NORMAL_MAD * float(np.median(np.abs(lengths[:at] - usual)))
    limit = usual + max(settings.small_share * usual, settings.small_deviations * deviation)
    is_long = lengths[at:] >= limit
    if is_long.sum() < settings.recurring_min or lengths[at:].mean() < (1 + settings.recurring_share) * usual:
        return None
    return known[at + int(is_long.argmax())][0]


def _change(lengths: Floats) -> int:
    """Where the lengths before and after differ most, in units of what a mean of so many varies by."""
    clipped = np.minimum(lengths, CLIPPED * np.median(lengths))
    n = len(clipped)
    before = np.cumsum(clipped)[:-1]
    k = np.arange(1, n)
    shift = (clipped.sum() - before) / (n - k) - before / k
    shift = np.where((k >= PART_MIN) & (n - k >= PART_MIN), shift, -np.inf)
    return int(k[np.argmax(shift * np.sqrt(k * (n - k) / n))])
