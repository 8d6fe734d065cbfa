"""Whether a job still went on when its recorders were dumped: then who is late for an op is late for a moment only.

    op in progress   entered 0.2 s before the dump, 0.4 s between two ops are usual   → at work: nobody is to blame
                     entered 9 s before it                                            → stands still

Every op in progress has to be that young: of a job that hangs some rank has waited for long. Nothing is said where it is not
known when a recording was made, or where too little of the past is left to know what is usual.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np

from rca.flight_recorder.analysis import Waiting
from rca.flight_recorder.recording import Recording
from rca.settings import SECOND_NS

GAPS_MIN: Final = 20
USUAL: Final = 0.99
YOUNG_NS: Final = SECOND_NS
"""Between ops that follow each other within milliseconds a busy machine makes pauses, too."""


def moving(state: Waiting, recorded_ns: Mapping[int, int]) -> str:
    """Why the job is taken to have gone on, as a sentence; '' when it stood still, or nobody can tell.

    recorded_ns: rank → when its recording was made, unix, by its node's clock, which its ops have, too.
    """
    entries = state.recording.entries
    rows = [row for stop in state.stops for row in stop.rows]
    if not rows or state.recording.ended or any(int(entries["rank"][row]) not in recorded_ns for row in rows):
        return ""
    ages = [recorded_ns[int(entries["rank"][row])] - int(entries["created_ns"][row]) for row in rows]
    usual = usual_gap_ns(state.recording)
    if usual is None or min(ages) < 0 or max(ages) >= max(usual, YOUNG_NS):
        return ""
    return (
        f"The job went on while it was dumped: no op in progress was older than {max(ages) / SECOND_NS:.1f} s, where "
        f"{usual / SECOND_NS:.1f} s between two are usual. A moment of a job at work names nobody: ask when it stands still."
    )


def usual_gap_ns(recording: Recording) -> int | None:
    """How long a rank is between entering two ops, all but the rarest; None where too few are known."""
    rank, created = (recording.entries[name].astype(np.int64) for name in ("rank", "created_ns"))
    gaps = np.diff(created)[(np.diff(rank) == 0) & (created[1:] > 0) & (created[:-1] > 0)]
    return int(np.quantile(np.maximum(gaps, 0), USUAL)) if len(gaps) >= GAPS_MIN else None
