"""Which ranks may be compared: those that play the same part, by what they declare and by their communicators.

A pipeline's stages and the holders of different experts do different work, so a frontier over all of them would blame
whoever has most to do. The launcher's coordinates, or those read off the communicators, tell them apart; tensor-parallel
ranks do the same work in lockstep and stay together. Where ranks send each other p2p ops and nobody knows their places,
the roles are said to be unknown instead (StageFrontier Table 1, role_aware_needed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from ingest.window import Window
from nccl_instrument.tables import FUNCS, SYNCHRONOUS
from rca.frontier.steps import printable
from rca.keys import Ints, Rows, is_p2p

EVERYBODY: Final = ""
SYNCHRONISING: Final = tuple(FUNCS.index(name) for name in ("AllReduce", "AllGather", "ReduceScatter") if name in FUNCS)
"""Collectives that nobody leaves before everybody has entered them."""
LATEST_SHARE: Final = 0.8
DECLARED: Final = "declared by the programs"
"""How a reason begins that rests on the programs' own word."""
SLACK_NS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Group:
    """Ranks that play one part. role: '' when all ranks of the job do. n_known: ranks of it, also those that record no
    stages. are_roles_known: False where they differ and nobody knows how. n_roles: of the job."""

    role: str
    ranks: tuple[int, ...]
    n_known: int
    are_roles_known: bool = True
    n_roles: int = 1


def groups_of(window: Window) -> tuple[Group, ...]:
    """The groups of the job's ranks that record stages, by role."""
    recorder = window.rows("recorder")
    recording = np.unique(np.concatenate([window.rows("stage")["rank"], recorder["rank"]]))
    recording = recording[recording >= 0]
    declared = {int(row["rank"]): printable(row["role"]) for row in recorder if row["role"]}
    roles = {int(row["rank"]): _role(row, declared) for row in window.ranks}
    named = [roles.get(rank, declared.get(rank, EVERYBODY)) for rank in recording.tolist()]
    n_known = {role: list(roles.values()).count(role) for role in set(named)}
    world = max(window.world_size, int(recorder["world_size"].max(initial=0)))
    is_known = len(set(named)) > 1 or not _is_pipeline(window)
    found = []
    for role in dict.fromkeys(sorted(named)):
        ranks = tuple(rank for rank, its in zip(recording.tolist(), named, strict=True) if its == role)
        n = max(n_known[role], world) if len(set(named)) == 1 else max(n_known[role], len(ranks))
        found.append(Group(role, ranks, n, is_known, len({*roles.values(), *named})))
    return tuple(found)


def _role(row: np.void, declared: dict[int, str]) -> str:
    """What a rank declares, and its place in the pipeline and among the experts."""
    said = [declared.get(int(row["rank"]), "")]
    said += [f"{axis} {int(row[axis])}" for axis in ("pp", "ep") if int(row[axis]) >= 0]
    return ", ".join(one for one in said if one)


def _is_pipeline(window: Window) -> bool:
    """Whether ranks send each other p2p ops while no coordinates of a pipeline are known."""
    ops = window.rows("op")
    return bool(len(ops)) and bool(is_p2p(ops).any()) and not (window.ranks["pp"] >= 0).any()


@dataclass(frozen=True, slots=True)
class Fit:
    """The model-fit indicator and its reason, as a clause."""

    fits: bool
    why: str


def fit_of(
    window: Window,
    group: Group,
    ranks: Sequence[int],
    boundary_ns: Ints,
    ended_ns: Ints,
    *,
    is_before_reduction: bool = False,
) -> Fit:
    """Whether the communicators show one homogeneous data-parallel group that synchronises after a stage (Appendix C).

    boundary_ns, ended_ns: (T, R) when each of `ranks` ended the leading stage and the step. Asked of one rank, on its own
    clock: an op that it begins after its boundary is one in which it waits for the others. Where no communicator is traced, the
    programs' own word is taken (is_before_reduction: the stage is not behind backward), and said to be that.
    """
    if not group.are_roles_known:
        return Fit(False, "what part each rank plays is not known")
    comms = _covering(window, group.ranks)
    if comms is None:
        return _declared(window, group, is_before_reduction=is_before_reduction)
    if not comms:
        return Fit(False, "the communicators that are traced do not join this group into one")
    ops = window.rows("op")
    ops = ops[np.isin(ops["comm_id"], np.array(comms, np.uint64)) & np.isin(ops["func"], SYNCHRONISING)]
    if not len(ops):
        return Fit(False, "no synchronising op of this group was seen in the window")
    share = _share_after(ops, ranks, boundary_ns, ended_ns)
    if share < LATEST_SHARE:
        return Fit(False, f"{_in_steps(share)} a synchronising op of the group begins after that stage")
    names = sorted({FUNCS[int(func)] for func in np.unique(ops["func"])})
    which = "one communicator" if len(comms) == 1 else f"{len(comms)} communicators that join them"
    return Fit(
        True, f"{len(group.ranks)} ranks of one role are in {which}, with {' and '.join(names)} after that stage"
    )


def _declared(window: Window, group: Group, *, is_before_reduction: bool) -> Fit:
    """What the recorders of all the job's ranks say of its one data-parallel group."""
    recorder = window.rows("recorder")
    said = np.unique(recorder["rank"][(recorder["flags"] & SYNCHRONOUS) > 0])
    if not len(group.ranks) == group.n_known == int(np.isin(group.ranks, said).sum()):
        return Fit(False, "no communicator of this group is traced")
    if not is_before_reduction:
        return Fit(False, "no communicator is traced, and the reduction that the programs declare is before that stage")
    return Fit(True, f"{DECLARED} of all {len(group.ranks)} ranks: backward ends in a reduction over them")


def _share_after(ops: Rows, ranks: Sequence[int], boundary_ns: Ints, ended_ns: Ints) -> float:
    """In how many of the steps of which there are ops one begins between the boundary and the end of the step."""
    seen, counts = np.unique(ops["rank"][np.isin(ops["rank"], ranks)], return_counts=True)
    if not len(seen):
        return 0.0
    asked = int(seen[counts.argmax()])
    at, ops = list(ranks).index(asked), ops[ops["rank"] == asked]
    began = np.sort(np.where(ops["enqueued_ns"] > 0, ops["enqueued_ns"], ops["started_ns"]).astype(np.int64))
    boundary, ended = boundary_ns[:, at], ended_ns[:, at]
    is_covered = (ended > began[0]) & (boundary < began[-1])  # ops may have been read of some of the steps only
    n_after = np.searchsorted(began, ended) - np.searchsorted(began, boundary - SLACK_NS)
    return float((n_after[is_covered] > 0).mean()) if is_covered.any() else 0.0


def _covering(window: Window, ranks: Sequence[int]) -> list[int] | None:
    """Communicators inside the group that together join all of it; [] when they do not, None when none is known.

    One that holds just these ranks is enough; else equal ones of several ranks have to be connected.
    """
    members = window.members[np.isin(window.members["rank"], np.asarray(ranks))]
    inside = dict[int, list[int]]()
    for comm_id in np.unique(members["comm_id"]).tolist():
        of = members[members["comm_id"] == comm_id]
        if len(of) > 1 and int(of["n_ranks"][0]) == len(of):
            inside[comm_id] = of["rank"].tolist()
    whole = [comm_id for comm_id, held in inside.items() if len(held) == len(ranks)]
    if whole or not inside:
        return whole if whole else (None if not len(members) else [])
    return sorted(inside) if _are_joined(inside, len(ranks)) else []


def _are_joined(inside: dict[int, list[int]], n_ranks: int) -> bool:
    """Whether one can get from any rank to any other through these communicators."""
    rest = list(inside.values())
    reached = set(rest.pop())
    while joined := [held for held in rest if reached & set(held)]:
        rest = [held for held in rest if not reached & set(held)]
        reached.update(*joined)
    return len(reached) == n_ranks


def _in_steps(share: float) -> str:
    if share == 0.0:
        return "in no step"
    return f"only in {share:.0%} of the steps" if share >= 0.005 else "in hardly any step"
