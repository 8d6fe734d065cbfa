"""Algorithm 2's MinOp and MinData are the simplest cases of the graph, and agree with it there."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from rca.diagnose import diagnose
from rca.findings import Symptom, SymptomKind
from rca.hang.progress import Progress, state_of
from rca.hang.sinks import check_min_data
from rca.settings import DEFAULT
from tests.windows import make_window

SYMPTOM = Symptom(SymptomKind.FAILURE, "job", 1, 1, 2, 0, (), "")


def check_min_op(state: Progress) -> tuple[int, ...]:
    """The paper's own way: positions of those with the smallest op in a communicator where others are stuck further on.

    Ranks that are themselves stuck in an op elsewhere only wait; they are left out. Empty when all are in the same op.
    """
    fronts, members = state.fronts, state.members
    late: set[int] = set()
    for comm in np.unique(fronts.comm[fronts.is_front & ~fronts.p2p & (fronts.comm >= 0)]):
        part = members.of(int(comm))
        entered, at = members.entered[part], members.rank_at[part]
        if entered.min() < entered.max():
            late |= set(at[entered == entered.min()].tolist())
    stuck = set(fronts.at[fronts.is_front].tolist()) - set(np.flatnonzero(state.is_cut).tolist())
    return tuple(sorted(late - stuck))


@settings(max_examples=12, deadline=None)
@given(victim=st.integers(0, 7), seed=st.integers(0, 99), at_ms=st.integers(300, 700))
def test_min_op_is_the_rank_the_graph_ends_in(victim: int, seed: int, at_ms: int) -> None:
    window = make_window(stuck_before=victim, seed=seed, at_ms=at_ms)
    state = state_of(window, DEFAULT)
    assert state.ranks.names(np.array(check_min_op(state))) == (victim,)
    assert diagnose(window, SYMPTOM).culprits == (victim,)


@settings(max_examples=12, deadline=None)
@given(victim=st.integers(0, 3), seed=st.integers(0, 99), at_ms=st.integers(60, 400))
def test_min_data_is_the_rank_the_graph_ends_in(victim: int, seed: int, at_ms: int) -> None:
    """Four ranks, one per node, a GPU that hangs inside an op that all have entered: nobody is behind by an op."""
    window = make_window(4, tp=1, pp=1, ranks_per_node=1, gpu_hung=victim, seed=seed, at_ms=at_ms)
    state = state_of(window, DEFAULT)
    assert check_min_op(state) == ()
    blocking = state.fronts.is_front & state.fronts.has_begun
    ops = np.unique(np.stack([state.fronts.comm[blocking], state.fronts.op[blocking]], axis=1), axis=0)
    if len(ops) == 1 and set(state.fronts.at[blocking].tolist()) == set(range(4)):
        assert victim in check_min_data(state, tuple(range(4)), ops)
    assert diagnose(window, SYMPTOM).culprits == (victim,)


def test_nobody_has_the_smallest_op_while_all_are_in_the_same() -> None:
    assert check_min_op(state_of(make_window(paused=True), DEFAULT)) == ()
