"""Members that entered different ops as their n-th: another function, another size, another type.

    rank 0: op 7 AllReduce 1,024 Float32      rank 2: op 7 AllGather 1,024 Float32   ← deviates

The majority is taken to be right. A tie blames nobody. Compares only ops in progress: those are the ones that hang.
Abstains on sends and receives, and where a member's function or type is unknown.
"""

from __future__ import annotations

import numpy as np

from nccl_instrument.tables import DTYPES, FUNCS
from rca.advice import for_mismatch
from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Symptom
from rca.keys import Rows, is_p2p, mix
from rca.progress import Progress
from rca.settings import Settings
from rca.words import named, rank_subject, score

RULE = "mismatch"
VERSION = 1


def explain(state: Progress, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding for every op whose members disagree on what it is."""
    rows = state.known.live
    usable = ~is_p2p(rows) & (rows["func"] > 0) & (rows["dtype"] > 0)
    rows, at, key = rows[usable], state.known.live_at[usable], state.known.live_key[usable]
    shape = mix(rows["func"], rows["dtype"], rows["count"])
    _, first, op = np.unique(key, return_index=True, return_inverse=True)
    differs = np.unique(op[shape != shape[first][op]])
    found = [_explain_op(state, rows[op == one], at[op == one], shape[op == one]) for one in differs]
    return tuple(found[: settings.findings_max])


def _explain_op(state: Progress, rows: Rows, at: np.ndarray[tuple[int], np.dtype[np.int64]], shape: Rows) -> Finding:
    shapes, counts = np.unique(shape, return_counts=True)
    is_tie = (counts == counts.max()).sum() > 1
    deviating = tuple(at.tolist()) if is_tie else tuple(at[shape != shapes[counts.argmax()]].tolist())
    ranks = state.ranks.names(np.array(deviating))
    evidence = [
        Evidence(
            f"op {int(row['op'])}", f"{FUNCS[int(row['func'])]} {int(row['count'])} {DTYPES[int(row['dtype'])]}",
            "", "live_op", int(row["rank"]),
        )
        for row in rows[:8]
    ]  # fmt: skip
    grade = Grade.MODERATE if is_tie else Grade.STRONG
    return Finding(
        rule=RULE, version=VERSION, subject=rank_subject(state, deviating), component=Component.SOFTWARE,
        kind=FaultKind.MISMATCH, culprits=() if is_tie else ranks, score=score(grade, state.n_ranks, state.n_ranks),
        grade=grade,
        sentence=f"{named(ranks).capitalize()} entered another op than the rest as number {int(rows['op'][0])}"
        + (", without a majority." if is_tie else "."),
        evidence=tuple(evidence), tied=tuple(rank_subject(state, (one,)) for one in deviating) if is_tie else (),
        advice=for_mismatch(state, deviating),
    )  # fmt: skip
