"""Whether a job is over: its processes are all gone, as after a cancelled job, so nothing in it can hang any more.

Agents go on reporting the dead for a while, and their last ops look like a stall; ingest ends the attempt a little later
(ingest/jobs/endings.py). While ranks of the declared world were never heard of, nobody can say that all are gone.
"""

from __future__ import annotations

import numpy as np

from ingest.window import Window


def is_over(window: Window) -> bool:
    """Whether the newest row of every rank's process says that it is gone."""
    known = np.unique(window.ranks["rank"][window.ranks["rank"] >= 0])
    if not len(known) or len(known) < window.world_size:
        return False
    process = window.rows("process")
    process = process[np.isin(process["rank"], known)]
    process = process[np.lexsort((process["tick_ns"], process["rank"]))]
    is_newest = np.append(process["rank"][1:] != process["rank"][:-1], len(process) > 0)[: len(process)]
    newest = process[is_newest]
    return len(newest) == len(known) and not newest["alive"].any()
