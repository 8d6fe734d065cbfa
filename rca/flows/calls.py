"""How a group's collectives come within an iteration, by what one of its members launched: gradients or activations.

Activations are exchanged in every layer of every microbatch, so before each send of a pipeline stage, and what is gathered is
scattered by the next call. Gradients come when the last microbatch is through; of sharded weights layer after layer is gathered
before anything is scattered. Volumes cannot tell: which of the two is larger depends on model and batch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nccl_instrument.tables import FUNC_RECV, FUNCS
from rca.keys import Ints, Rows, is_p2p
from rca.settings import DEFAULT

GATHER, SCATTER = FUNCS.index("AllGather"), FUNCS.index("ReduceScatter")
ALL_TO_ALL = FUNCS.index("AlltoAll")


@dataclass(frozen=True, slots=True)
class BeforeSends:
    """Of the launches of sends in another communicator of the same rank: before how large a share of them, since the launch
    before, came a collective of this group. n: launches in an iteration.
    """

    comm: str
    n: float
    share: float


@dataclass(frozen=True, slots=True)
class Calls:
    """In an average iteration. returned: scatters right after a gather; gather_run, scatter_run: most in a row."""

    n_gathers: float
    n_scatters: float
    returned: float
    gather_run: int
    scatter_run: int
    before: tuple[BeforeSends, ...] = ()


def calls_of(ops: Rows, sends: dict[str, Ints], n_iterations: float) -> Calls:
    """ops: collectives of one member of the group; sends: communicator → when the same rank launched sends, sorted, ns."""
    ops = ops[np.argsort(ops["enqueued_ns"], kind="stable")]
    func, at_ns = ops["func"], ops["enqueued_ns"]
    is_gather, is_scatter = func == GATHER, func == SCATTER
    returned = int((is_scatter[1:] & is_gather[:-1]).sum())
    return Calls(
        float(is_gather.sum()) / n_iterations, float(is_scatter.sum()) / n_iterations, returned / n_iterations,
        _longest_run(is_gather), _longest_run(is_scatter),
        tuple(_before(name, launches, at_ns, n_iterations) for name, launches in sends.items()),
    )  # fmt: skip


def launches_of_sends(ops: Rows) -> dict[str, Ints]:
    """Communicator → when this rank launched sends to others in it, sorted, ns; those of one group call are one launch."""
    mine = ops[(is_p2p(ops) & (ops["func"] != FUNC_RECV)) | (ops["func"] == ALL_TO_ALL)]
    found: dict[str, Ints] = {}
    for comm in np.unique(mine["comm_id"]).tolist():
        at_ns = np.sort(mine["enqueued_ns"][mine["comm_id"] == np.uint64(comm)])
        found[str(comm)] = at_ns[np.r_[True, np.diff(at_ns) > DEFAULT.group_ns]]
    return found


def _before(name: str, launches: Ints, at_ns: Ints, n_iterations: float) -> BeforeSends:
    """The first launch has none before it, and counts not."""
    n_before = np.searchsorted(at_ns, launches)
    share = float((np.diff(n_before) > 0).mean()) if len(launches) > 1 else 0.0
    return BeforeSends(name, len(launches) / n_iterations, share)


def _longest_run(is_so: np.ndarray) -> int:
    edges = np.flatnonzero(np.diff(np.r_[0, is_so.astype(np.int8), 0]))
    return int((edges[1::2] - edges[::2]).max(initial=0))
