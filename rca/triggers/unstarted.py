"""Trigger: a job that has never begun. Its processes live, its communicators are declared, and no op was ever enqueued, or
by the ranks' own counts none has ever finished.

Nothing is known of what is usual then, so the other triggers are silent. A job may load weights and compile for minutes
first: it has `start_s` from when its last node was first heard. What explains an idle job explains this one. Where nothing
would tell of ops (no communicator and no counts) nothing is judged. Ranks that never arrived are those of the declared world,
or of a communicator whose other members have declared it, that nobody ever heard of there.
"""

from __future__ import annotations

import numpy as np

from ingest.window import Window
from rca.findings import Symptom, SymptomKind
from rca.keys import Ints
from rca.settings import SECOND_NS, Settings
from rca.triggers.idle import Idle, seen_ns
from rca.triggers.no_progress import AGES
from rca.triggers.normal import Normal
from rca.words import capitalised, named

NEVER_BEGAN = "never_began"
"""Among a symptom's numbers: no op has ever been seen of this job."""
NAMED_SHARE = 0.5
"""Where more of the ranks never arrived, it is likelier that nobody listens on their nodes."""


def unstarted_of(window: Window, normal: Normal, settings: Settings) -> Idle | None:
    """Whether a job whose ops would be seen has had none for too long since its last node was first heard."""
    seen, first_ns = seen_ns(window), window.nodes["first_ns"][window.nodes["first_ns"] > 0]
    if seen is None or not len(first_ns) or normal.seen_ns or normal.count() or normal.count(AGES):
        return None
    if _has_begun(window) or not _would_tell(window):
        return None
    since = int(first_ns.max())
    return Idle(since, seen - since, settings.start_ns) if seen - since >= settings.start_ns else None


def never_arrived(window: Window) -> Ints:
    """Global ranks that should be there and were never heard of, sorted; none where that cannot be told."""
    known = np.unique(window.ranks["rank"][window.ranks["rank"] >= 0]).astype(np.int64)
    world = window.world_size
    if not len(known) or not known[-1] < world <= len(known) / NAMED_SHARE:  # what is declared may be anything
        return np.zeros(0, np.int64)
    missing = {*np.setdiff1d(np.arange(world), known).tolist(), *_undeclared(window, world)}
    return np.array(sorted(missing) if len(missing) <= NAMED_SHARE * world else [], np.int64)


def unstarted_symptom(window: Window, idle: Idle) -> Symptom:
    """Of the kind idle: it asks for stacks first, too."""
    n_known, missing = len(np.unique(window.ranks["rank"][window.ranks["rank"] >= 0])), never_arrived(window)
    absent = f" {capitalised(named(missing.tolist()))} never arrived." if len(missing) else ""
    return Symptom(
        kind=SymptomKind.IDLE, job=window.job, attempt=window.attempt, at_ns=idle.since_ns, seen_ns=window.now_ns, comm_id=0,
        ranks=tuple(missing.tolist()),
        sentence=f"No op has ended on any of {n_known} ranks since the job was first heard, {idle.idle_ns / SECOND_NS:.0f} s ago."
        f"{absent}",
        numbers={
            "idle_s": round(idle.idle_ns / SECOND_NS, 3), "limit_s": round(idle.limit_ns / SECOND_NS, 3), NEVER_BEGAN: 1.0,
        },
    )  # fmt: skip


def _has_begun(window: Window) -> bool:
    """Whether any op was seen, in progress or done; of counts alone, whether any was done."""
    progress, status = window.rows("progress"), window.rows("status")
    if any(len(window.rows(table)) for table in ("op", "live_op", "flow")):
        return True
    counted = (progress["n_enqueued"], progress["n_p2p_enqueued"], progress["last_enqueued_ns"], status["n_done"])
    return any(bool((column > 0).any()) for column in counted)


def _would_tell(window: Window) -> bool:
    """Whether an op of this job would be seen: by a communicator that somebody declared, or by ranks that count."""
    return len(window.rows("progress")) > 0 or len(window.rows("status")) > 0


def _undeclared(window: Window, world: int) -> set[int]:
    """Members that never declared a communicator which others have, where those have ranks at even distances."""
    members, found = window.members[window.members["rank"] >= 0], set[int]()
    for comm_id in np.unique(members["comm_id"]):
        mine = members[members["comm_id"] == comm_id]
        mine = mine[np.argsort(mine["comm_rank"], kind="stable")]
        n, place, rank = int(mine["n_ranks"].max()), mine["comm_rank"].astype(int), mine["rank"].astype(int)
        if not 1 < len(mine) < n <= world or not 0 <= place.min() < place.max() < n:
            continue
        step, rest = divmod(int(rank[-1] - rank[0]), int(place[-1] - place[0]))
        every = rank[0] + step * (np.arange(n) - place[0])
        if rest == 0 and step > 0 and (every[place] == rank).all() and every[0] >= 0 and every[-1] < world:
            found |= set(np.setdiff1d(every, rank).tolist())
    return found
