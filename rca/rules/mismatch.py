"""Members that entered different ops as their n-th: another function, another size, another type, another root.

    rank 0: op 7 AllReduce 1,024 Float32      rank 2: op 7 AllGather 1,024 Float32   ← deviates

The majority is taken to be right. A tie blames nobody. Looks at ops in progress, since those are the ones that hang, and
compares them with what members that are through say of the same number (rca/hang/disputed.py). Abstains on sends and
receives, and where a member's function or type is unknown.
"""

from __future__ import annotations

import numpy as np

from nccl_instrument.tables import DTYPES, FUNCS
from rca.advice import for_mismatch
from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Symptom
from rca.hang.cut import first_of
from rca.hang.extent import with_extent
from rca.hang.progress import Progress
from rca.keys import Ints
from rca.settings import Settings
from rca.words import named, rank_subject, score

RULE = "mismatch"
VERSION = 3


def explain(state: Progress, symptom: Symptom, settings: Settings) -> tuple[Finding, ...]:
    """A finding per communicator whose members disagree: about the oldest such op, from which the later ones follow."""
    disputed = state.disputed
    found = []
    for comm_id in first_of(state, np.unique(disputed.comm_id).tolist(), settings.findings_max, RULE):
        mine = np.flatnonzero(disputed.comm_id == comm_id)
        found.append(_explain_op(state, mine[disputed.op[mine] == disputed.op[mine].min()]))
    return with_extent(state, found, settings)


def _explain_op(state: Progress, rows: Ints) -> Finding:
    disputed, op = state.disputed, int(state.disputed.op[rows[0]])
    at, shape = disputed.at[rows], disputed.shape[rows]
    shapes, counts = np.unique(shape, return_counts=True)
    is_tie = bool((counts == counts.max()).sum() > 1)
    deviates = np.full(len(at), True) if is_tie else shape != shapes[counts.argmax()]
    deviating = tuple(at[deviates].tolist())
    ranks = state.ranks.names(np.array(deviating))
    # Those that deviate first, else eight of a thousand that agree would be all the evidence.
    evidence = [_said(state, row, op) for row in rows[np.argsort(~deviates, kind="stable")][:8]]
    grade = Grade.MODERATE if is_tie else Grade.STRONG
    return Finding(
        rule=RULE, version=VERSION, subject=rank_subject(state, deviating), component=Component.SOFTWARE,
        kind=FaultKind.MISMATCH, culprits=() if is_tie else ranks, score=score(grade, state.n_ranks, state.n_ranks),
        grade=grade, sentence=_sentence(named(ranks), op, len(shapes), is_tie),
        evidence=tuple(evidence), tied=tuple(rank_subject(state, (one,)) for one in deviating) if is_tie else (),
        advice=for_mismatch(state, deviating),
    )  # fmt: skip


def _sentence(who: str, op: int, n_shapes: int, is_tie: bool) -> str:
    if is_tie:
        return f"{who.capitalize()} entered {n_shapes} different ops as number {op}, without a majority."
    return f"{who.capitalize()} entered another op than the rest as number {op}."


def _said(state: Progress, row: int, op: int) -> Evidence:
    disputed = state.disputed
    says = disputed.says[row]
    shape = f"{_named(FUNCS, int(says['func']))} {int(says['count'])} {_named(DTYPES, int(says['dtype']))}"
    root = f" root {int(says['peer'])}" if says["peer"] >= 0 else ""
    rank = int(state.ranks.rank[disputed.at[row]])
    return Evidence(f"op {op}", shape + root, "", "op" if disputed.is_done[row] else "live_op", rank)


def _named(names: tuple[str, ...], code: int) -> str:
    return names[code] if code < len(names) else f"code {code}"
