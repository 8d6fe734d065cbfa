"""The suite `injections` itself: seven faults, each of which the scorer knows, live and in the simulator."""

from __future__ import annotations

from nccl_instrument.simulate.faults import KINDS
from tests.eval.injections import PAPER, SIMULATED
from tests.eval.injections_live import INJECTIONS
from tests.eval.scoring import FAULTS


def test_the_papers_seven_are_known_to_the_scorer_in_both_worlds() -> None:
    assert len(INJECTIONS) == 7
    assert set(SIMULATED) == set(INJECTIONS) <= set(FAULTS)
    assert set(SIMULATED.values()) <= set(KINDS)
    assert all(FAULTS[live] == FAULTS[simulated] for live, simulated in SIMULATED.items())


def test_the_simulated_part_has_the_papers_machines() -> None:
    assert (PAPER.n_ranks, PAPER.n_nodes, PAPER.n_nics_per_node) == (32, 4, 4)
