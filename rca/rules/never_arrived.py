"""A job that never began: the ranks that it waits for, which never came.

    rank 0 … heard, declared world of 8        rank 6, 7 … never heard of: no process, no communicator

The first communicator is made by all its members together, so one that is missing holds up everybody. Nothing else is seen of
who is missing, so this is moderately sure, and weak where whole nodes are missing: nobody may be listening there. Abstains
when ops were seen, when everybody arrived, and when more than half are missing. docs/rules/never_arrived.md
"""

from __future__ import annotations

import numpy as np

from ingest.window import Window
from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Subject, Symptom
from rca.hang.progress import Progress
from rca.settings import Settings
from rca.triggers.unstarted import NEVER_BEGAN, never_arrived
from rca.words import capitalised, named, score

RULE = "never_arrived"
VERSION = 1


def explain(state: Progress, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """One finding, of all that never arrived."""
    missing = tuple(never_arrived(state.window).tolist()) if NEVER_BEGAN in symptom.numbers else ()
    if not missing:
        return ()
    grade = Grade.MODERATE if _is_beside_others(state.window) else Grade.WEAK
    n_known = state.n_ranks
    return (
        Finding(
            rule=RULE, version=VERSION, subject=Subject("rank", named(missing), missing), component=Component.PROCESS,
            kind=FaultKind.COMPUTATION_FAIL_STOP, culprits=missing, score=score(grade, n_known, n_known + len(missing)),
            grade=grade,
            sentence=f"{capitalised(named(missing))} never arrived, and no op of the job has ended: the others wait for them.",
            evidence=(
                Evidence("ranks of the declared world", state.window.world_size, "", "comm"),
                Evidence("ranks heard of", n_known, "", "comm"),
            ),
            advice=_ADVICE,
        ),
    )  # fmt: skip


def _is_beside_others(window: Window) -> bool:
    """Whether some node that is heard has fewer ranks than others: its agent would have seen theirs."""
    n_ranks = window.nodes["n_ranks"][window.nodes["n_ranks"] > 0]
    return (len(n_ranks) > 0 and bool(n_ranks.min() < n_ranks.max())) or _is_undeclared(window)


def _is_undeclared(window: Window) -> bool:
    """Whether somebody who is missing in a communicator is heard of otherwise."""
    return bool(np.isin(never_arrived(window), window.ranks["rank"]).any())


_ADVICE = """Look at the launcher's log for these ranks: were their processes started, did they fail while importing?
On their nodes: nvidia-smi; ps -C python
If no agent runs on their nodes they may be there unheard: start one, or look at the stacks of the others."""
