"""The layout of a job as its ops show it: which kind of parallelism each communicator serves, and whether others agree.

Figure 5's tree (parallelism.py) is asked of the ops of a window. What the communicators say of themselves is put beside it: the
framework's names, and the coordinates the launcher gave its ranks. Where these say something else both are shown; nothing is
settled in silence, since the tree may be wrong where a framework does what others do not (Pulse §5.2).
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from ingest.window import Window
from nccl_instrument.flows.expected import ring_volume
from nccl_instrument.tables import FUNC_SEND, FUNCS
from rca.flows.calls import Calls, calls_of, launches_of_sends
from rca.flows.parallelism import GroupTraffic, Parallelism, parallelism_of
from rca.keys import Index, Ints, Keys, Mask, Rows, is_p2p, mix
from rca.settings import DEFAULT
from rca.slow.iterations import iterations_of
from rca.slow.streams import Floats

AXES: Final = {"tp": Parallelism.TENSOR, "pp": Parallelism.PIPELINE, "dp": Parallelism.DATA, "ep": Parallelism.EXPERT}
NAMES: Final = (
    (re.compile(r"(^|[^a-z])(ep|expert|moe)([^a-z]|$)"), Parallelism.EXPERT),
    (re.compile(r"(^|[^a-z])(e?dp|data|fsdp|zero|expert_data)([^a-z]|$)"), Parallelism.DATA),
    (re.compile(r"(^|[^a-z])(tp|tensor|mp)([^a-z]|$)"), Parallelism.TENSOR),
    (re.compile(r"(^|[^a-z])(pp|pipe|pipeline)([^a-z]|$)"), Parallelism.PIPELINE),
)
"""Words in the names frameworks give their groups."""
ALL_TO_ALL: Final = FUNCS.index("AlltoAll")
RINGS: Final = ("AllReduce", "AllGather", "ReduceScatter")
EVEN_SIZES: Final = 4
"""Of the sends of a group whose sizes nobody's routing makes: a layer's, there and back."""
OPS_MAX: Final = 400_000
"""Newest ops that are read: more say the same again."""


@dataclass(frozen=True, slots=True)
class GroupLayout:
    """A communicator. ranks: known global ranks, by place. parallelism: by its ops. evidence: what its name and its ranks'
    coordinates allow, () when they say nothing. disagreement: a sentence, "" when they agree or are silent.
    """

    comm_id: int
    name: str
    n_ranks: int
    ranks: tuple[int, ...]
    parallelism: Parallelism
    evidence: tuple[Parallelism, ...]
    disagreement: str


def layout_of(window: Window) -> tuple[GroupLayout, ...]:
    """The communicators of a window that have ops in it, largest first."""
    found = parallelism_in(window)
    members = window.members[np.argsort(window.members["comm_rank"], kind="stable")]
    groups = []
    for comm_id, which in found.items():
        mine = members[members["comm_id"] == np.uint64(comm_id)]
        ranks = tuple(int(rank) for rank in mine["rank"] if rank >= 0)
        name, n_ranks = (str(mine["name"][0]), int(mine["n_ranks"][0])) if len(mine) else ("", len(ranks))
        evidence = _evidence(window, name, ranks)
        groups.append(GroupLayout(comm_id, name, n_ranks, ranks, which, evidence, _disagreement(which, evidence)))
    return tuple(sorted(groups, key=lambda one: (-one.n_ranks, one.name, one.comm_id)))


def parallelism_in(window: Window) -> dict[int, Parallelism]:
    """Communicator → what it serves, of those that have ops in the window."""
    told = {str(one.name): one for one in groups_in(window)}
    return {int(name): which for name, which in parallelism_of(list(told.values())).items()}


def groups_in(window: Window) -> list[GroupTraffic]:
    """What each communicator moves in an average iteration, by its ops; its name is the number, in decimals."""
    ops = window.rows("op")
    ops = ops[ops["rank"] >= 0]
    if len(ops) > OPS_MAX:
        ops = ops[np.argsort(ops["enqueued_ns"], kind="stable")[-OPS_MAX:]]
    if not len(ops):
        return []
    n_iterations = _iterations(window, ops)
    length_ns = float(np.ptp(ops["enqueued_ns"])) / n_iterations
    sends = is_p2p(ops)
    comms, of = np.unique(ops["comm_id"], return_inverse=True)
    per_rank = _ranks_seen(ops, of, len(comms)) * n_iterations
    size = _on_the_wire(window, ops, comms, of)
    collective, p2p = (np.bincount(of, size * those, len(comms)) / per_rank for those in (~sends, sends))
    times = np.bincount(of, ~sends, len(comms)) / per_rank
    groups = [
        _group(
            window,
            ops,
            sends,
            of == at,
            int(comm),
            (float(collective[at]), float(times[at]), float(p2p[at])),
            length_ns,
        )
        for at, comm in enumerate(comms)
    ]
    called = _calls(ops, n_iterations)
    return [replace(one, calls=called.get(int(one.name))) for one in groups]


def _calls(ops: Rows, n_iterations: float) -> dict[int, Calls]:
    """Communicator → how its collectives come, by its first member that has any."""
    shared = ops[~is_p2p(ops) & (ops["func"] != ALL_TO_ALL)]
    _, first = np.unique(mix(shared["comm_id"], shared["comm_rank"]), return_index=True)
    order = np.lexsort((shared["comm_rank"][first], shared["comm_id"][first]))
    members = first[order]
    members = members[np.r_[True, np.diff(shared["comm_id"][members]) != 0]] if len(members) else members
    by_rank = np.argsort(ops["rank"], kind="stable")
    ranks, starts = np.unique(ops["rank"][by_rank], return_index=True)
    bounds = dict(zip(ranks.tolist(), zip(starts.tolist(), [*starts[1:].tolist(), len(ops)], strict=True), strict=True))
    found: dict[int, Calls] = {}
    sends = dict[int, dict[str, Ints]]()
    for comm_id, rank in zip(shared["comm_id"][members].tolist(), shared["rank"][members].tolist(), strict=True):
        begin, end = bounds[rank]
        mine = ops[by_rank[begin:end]]
        if rank not in sends:
            sends[rank] = launches_of_sends(mine)
        own = mine[(mine["comm_id"] == np.uint64(comm_id)) & ~is_p2p(mine)]
        found[int(comm_id)] = calls_of(own, sends[rank], n_iterations)
    return found


def _on_the_wire(window: Window, ops: Rows, comms: Keys, of: Ints) -> Floats:
    """(n,) bytes that each op moves, as on a ring (Appendix B): calls count what a rank gives or gets, not what it passes on."""
    members = window.members
    at = Index(mix(members["comm_id"])).find(mix(comms))
    n_ranks = np.where(at >= 0, members["n_ranks"][at] if len(members) else 1, 1)[of]
    found = ops["bytes"].astype(np.float64)
    for name in RINGS:
        mine = (ops["func"] == FUNCS.index(name)) & (n_ranks > 1)
        times = {int(n): ring_volume(name, 1_000_000, int(n)) / 1e6 for n in np.unique(n_ranks[mine])}
        found[mine] *= np.array([times[int(n)] for n in n_ranks[mine]])
    return found


def _group(
    window: Window, ops: Rows, sends: Mask, mine: Mask, comm_id: int, sums: tuple[float, float, float], length_ns: float
) -> GroupTraffic:
    members = window.members[window.members["comm_id"] == np.uint64(comm_id)]
    n_ranks = int(members["n_ranks"].max(initial=0)) or int(ops["comm_rank"][mine].max()) + 1
    ranks = frozenset(int(rank) for rank in members["rank"] if rank >= 0)
    alone = ops[mine & sends]
    if not len(alone) and (ops["func"][mine] == ALL_TO_ALL).any():  # one call, since NCCL 2.28
        pairs = frozenset((a, b) for a in range(n_ranks) for b in range(n_ranks) if a != b)
        return GroupTraffic(str(comm_id), n_ranks, 0.0, 0.0, max(sums[0], sums[2]), pairs, 1.0, ranks=ranks)
    is_send = alone["func"] == FUNC_SEND
    ends = np.where(is_send, (alone["comm_rank"], alone["peer"]), (alone["peer"], alone["comm_rank"])).T
    pairs = frozenset((int(a), int(b)) for a, b in np.unique(ends, axis=0)) if len(ends) else frozenset()
    shared = ops[mine & ~sends]
    sizes = max(len(np.unique(mix(shared["func"], shared["count"], shared["dtype"]))), 1)
    whole, gap = _whole_launches(alone, is_send, n_ranks), _longest_gap(shared, length_ns)
    is_even = 0 < len(np.unique(alone["bytes"])) <= EVEN_SIZES
    return GroupTraffic(str(comm_id), n_ranks, *sums, pairs, whole, gap, sums[1] / sizes, ranks, is_even=is_even)


def _whole_launches(alone: Rows, is_send: Mask, n_ranks: int) -> float:
    """Share of the launches of sends and receives that have all the others both ways."""
    if not len(alone):
        return 0.0
    order = np.lexsort((alone["enqueued_ns"], alone["rank"]))
    rank, at_ns = alone["rank"][order], alone["enqueued_ns"][order]
    begins = np.ones(len(order), bool)
    begins[1:] = (rank[1:] != rank[:-1]) | (np.diff(at_ns) > DEFAULT.group_ns)
    launch = np.cumsum(begins) - 1
    n = int(launch[-1]) + 1
    ways = [_distinct(launch[those], alone["peer"][order][those], n) for those in (is_send[order], ~is_send[order])]
    return float(((ways[0] >= n_ranks - 1) & (ways[1] >= n_ranks - 1)).mean())


def _distinct(group: Ints, values: Ints, n: int) -> Ints:
    """(n,) how many different values each group has."""
    first = np.unique(mix(group, values), return_index=True)[1]
    return np.bincount(group[first], minlength=n)


def _ranks_seen(ops: Rows, of: Ints, n: int) -> Ints:
    return np.maximum(_distinct(of, ops["rank"], n), 1)


def _iterations(window: Window, ops: Rows) -> float:
    """How many iterations these ops are of: by how they repeat, but no more than the rarest communicator was called, by that
    member of it of which most is known: of some ranks less may have come.
    """
    _, first, times = np.unique(mix(ops["rank"], ops["comm_id"]), return_index=True, return_counts=True)
    comms, of = np.unique(ops["comm_id"][first], return_inverse=True)
    calls = np.zeros(len(comms))
    np.maximum.at(calls, of, times)
    rarest, length_ns = float(calls.min()), iterations_of(window).length_ns
    return max(min(rarest, float(np.ptp(ops["enqueued_ns"])) / length_ns if length_ns > 0 else rarest), 1.0)


def _longest_gap(ops: Rows, length_ns: float) -> float:
    """The longest time between two ops of a rank, the median of ranks and iterations; NaN where nothing repeats."""
    if length_ns <= 0 or len(ops) < 2:
        return float("nan")
    at = np.where(ops["first_ready_ns"] > 0, ops["first_ready_ns"], ops["enqueued_ns"])
    order = np.lexsort((at, ops["rank"]))
    at, rank = at[order], ops["rank"][order]
    steps = np.where(rank[1:] == rank[:-1], np.diff(at), 0)
    turn = mix(rank[1:], (at[1:] - at.min()) // max(int(length_ns), 1))
    _, of = np.unique(turn, return_inverse=True)
    longest = np.zeros(int(of.max()) + 1)
    np.maximum.at(longest, of, steps.astype(np.float64))
    return float(np.median(longest[longest > 0]) / length_ns) if (longest > 0).any() else float("nan")


def _evidence(window: Window, name: str, ranks: tuple[int, ...]) -> tuple[Parallelism, ...]:
    """What a group's name, else its ranks' coordinates, allow it to serve."""
    named = [which for pattern, which in NAMES if pattern.search(name.lower())]
    if named:
        return (Parallelism.DATA,) if "edp" in name.lower() or "expert_data" in name.lower() else (named[0],)
    rows = window.ranks[np.isin(window.ranks["rank"], ranks)]
    if len(rows) < 2:
        return ()
    known = {axis: rows[axis] for axis in AXES if (rows[axis] >= 0).all()}
    differ = [axis for axis, places in known.items() if len(np.unique(places)) > 1]
    if set(differ) == {"dp", "ep"}:
        return (Parallelism.DATA, Parallelism.EXPERT)  # experts are spread over data-parallel places
    return (AXES[differ[0]],) if len(differ) == 1 else ()


def _disagreement(which: Parallelism, evidence: tuple[Parallelism, ...]) -> str:
    if not evidence or which in evidence or which is Parallelism.NONE:
        return ""
    said = " or ".join(one.value for one in evidence)
    return f"By its ops it serves {which.value}; its name or its ranks' coordinates say {said}."
