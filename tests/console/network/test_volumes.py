"""What ops moved against what Appendix B expects of them: simulated jobs agree, and a wrong report of the library is seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from console.network.volumes import volumes_of
from ingest.window import Window
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from nccl_instrument.tables import ALGOS, FUNC_SEND, PROTOS
from rca.flows.pictures import groups_of
from tests.nccl_instrument.simulate.jobs import run, window_of

RINGS = Layout(tp=2, pp=1, dp=4, ranks_per_node=2)
PIPELINE = Layout(tp=1, pp=4, dp=2, ranks_per_node=1)


@pytest.fixture(scope="module", params=[RINGS, PIPELINE], ids=["rings", "pipeline"])
def window(request: pytest.FixtureRequest) -> Window:
    return window_of(run(request.param, seconds=5.0, physics=replace(TESTBED, traffic_rows=10**6)))


def test_every_op_of_a_simulated_job_moves_what_is_expected_of_it(window: Window) -> None:
    found = [volumes_of(window, group.comm_id) for group in groups_of(window)]
    assert found and all(one.n_compared > 10 and one.n_other == 0 and not one.says for one in found)


def changed(window: Window, comm_id: int, **columns: int) -> Window:
    ops = window.rows("op").copy()
    for name, value in columns.items():
        ops[name][ops["comm_id"] == np.uint64(comm_id)] = value
    return replace(window, tables={**window.tables, "op": ops})


@pytest.mark.parametrize(
    "columns", [{"proto": PROTOS.index("LL")}, {"algo": ALGOS.index("TREE")}, {"channels": 3}], ids=str
)
def test_a_protocol_algorithm_or_channel_that_was_not_is_told_of(window: Window, columns: dict[str, int]) -> None:
    collective = [
        group.comm_id
        for group in groups_of(window)
        if not (window.rows("op")["func"][window.rows("op")["comm_id"] == group.comm_id] == FUNC_SEND).any()
    ]
    found = [volumes_of(changed(window, comm_id, **columns), comm_id) for comm_id in collective]
    assert any(one.n_other and "moved another volume than expected" in one.says for one in found)


def test_an_algorithm_that_is_not_reported_is_not_compared(window: Window) -> None:
    comm_id = groups_of(window)[0].comm_id
    found = volumes_of(changed(window, comm_id, algo=0, proto=0), comm_id)
    is_p2p = (window.rows("op")["func"][window.rows("op")["comm_id"] == comm_id] == FUNC_SEND).any()
    assert found.n_other == 0 and (is_p2p or (found.n_compared == 0 and found.n_unknown > 0))
