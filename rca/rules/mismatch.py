"""Members that entered different ops as their n-th: another function, another size, another type, another root.

    rank 0: op 7 AllReduce 1,024 Float32      rank 2: op 7 AllGather 1,024 Float32   ← deviates

What more than half of all members say is taken to be right. Without that nobody is blamed, and those who say the same are tied
with those who say otherwise: of members that tell nothing it is not known whose side they are on. Looks at ops in progress, since
those are the ones that hang, and compares them with what members that are through say of the same number
(rca/hang/disputed.py). Abstains on sends and receives, and where a member's function or type is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nccl_instrument.tables import DTYPES, FUNCS
from rca.advice import for_mismatch
from rca.findings import Component, Evidence, FaultKind, Finding, Grade, Subject, Symptom
from rca.hang.cut import first_of
from rca.hang.extent import with_extent
from rca.hang.progress import Progress
from rca.keys import Ints, Keys
from rca.settings import Settings
from rca.words import capitalised, named, rank_subject, score

RULE = "mismatch"
VERSION = 4


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
    shapes, which, counts = np.unique(shape, return_inverse=True, return_counts=True)
    n_members = _n_members(state, int(disputed.comm_id[rows[0]]), len(at))
    is_tie = bool(2 * counts.max() <= n_members)
    deviates = np.full(len(at), True) if is_tie else shape != shapes[counts.argmax()]
    deviating = tuple(at[deviates].tolist())
    ranks = state.ranks.names(np.array(deviating))
    # What few said comes first, else eight of a thousand that agree would be all the evidence.
    evidence = [_said(state, row, op) for row in rows[np.argsort(counts[which], kind="stable")][:8]]
    grade = Grade.WEAK if is_tie else Grade.STRONG
    return Finding(
        rule=RULE, version=VERSION, subject=rank_subject(state, deviating), component=Component.SOFTWARE,
        kind=FaultKind.MISMATCH, culprits=() if is_tie else ranks, score=score(grade, state.n_ranks, state.n_ranks),
        grade=grade, sentence=_tied(ranks, op, len(shapes), n_members) if is_tie else _blamed(ranks, op),
        evidence=tuple(evidence), tied=_sides(state, at, shape) if is_tie else (), advice=for_mismatch(state, deviating),
    )  # fmt: skip


def _n_members(state: Progress, comm_id: int, n_told: int) -> int:
    """How many belong to the communicator, whether they tell anything or not; those that tell where nobody says how many."""
    comm = int(state.members.comm_of(np.array([comm_id], np.uint64))[0])
    return max(n_told, int(state.members.n_ranks[comm]) if comm >= 0 else 0)


def _sides(state: Progress, at: Ints, shape: Keys) -> tuple[Subject, ...]:
    """Those who entered the same, as one subject each; the smallest first, which would be the one that deviates."""
    sides = [np.sort(at[shape == one]) for one in np.unique(shape)]
    sides.sort(key=lambda side: (len(side), side[0]))
    return tuple(rank_subject(state, side.tolist()) for side in sides)


def _blamed(ranks: Sequence[int], op: int) -> str:
    return f"{capitalised(named(ranks))} entered another op than the rest as number {op}."


def _tied(ranks: Sequence[int], op: int, n_shapes: int, n_members: int) -> str:
    n_silent = n_members - len(ranks)
    silent = f"; {n_silent} of its {n_members} members tell nothing of it" if n_silent else ""
    return (
        f"{capitalised(named(ranks))} entered {n_shapes} different ops as number {op}, and none of them is what more than half "
        f"of the communicator entered{silent}."
    )


def _said(state: Progress, row: int, op: int) -> Evidence:
    disputed = state.disputed
    says = disputed.says[row]
    shape = f"{_named(FUNCS, int(says['func']))} {int(says['count'])} {_named(DTYPES, int(says['dtype']))}"
    root = f" root {int(says['peer'])}" if says["peer"] >= 0 else ""
    rank = int(state.ranks.rank[disputed.at[row]])
    return Evidence(f"op {op}", shape + root, "", "op" if disputed.is_done[row] else "live_op", rank)


def _named(names: tuple[str, ...], code: int) -> str:
    return names[code] if code < len(names) else f"code {code}"
