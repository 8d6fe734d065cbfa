"""A job tiled from copies of a simulated part is one job: every part is there, and the fault of each is found."""

from __future__ import annotations

import numpy as np

from nccl_instrument.simulate.faults import make_fault
from nccl_instrument.wire import decode_batch
from rca.diagnose import diagnose
from rca.normal import ALL, Normal
from rca.triggers import look
from tests.bench.rca_jobs import Case, of_job, tiled
from tests.nccl_instrument.simulate.jobs import EIGHT, run, window_of

PARTS, VICTIM = 3, 5
CASE = Case(EIGHT.n_ranks * PARTS, "nic_down", EIGHT, PARTS, 3.0, 7.0, 0.2)
USUAL = Normal(intervals={ALL: {100: 1000}})


def test_each_part_of_a_tiled_job_has_its_own_ranks_and_its_own_culprit() -> None:
    nic_down = make_fault("nic_down", EIGHT, 3.0, None, VICTIM, None, 1)
    window = window_of([one for sent in run(EIGHT, nic_down, seconds=7.0) for one in tiled(sent, CASE)])
    assert len(window.nodes) == EIGHT.n_nodes * PARTS
    assert window.ranks["rank"].tolist() == list(range(EIGHT.n_ranks * PARTS))
    ids, sizes = np.unique(window.members["comm_id"], return_counts=True)
    assert sizes.max() == EIGHT.n_ranks * PARTS  # the world; every other communicator is there PARTS times
    assert len(ids) == 1 + (len(EIGHT.names) - 1) * PARTS
    findings = diagnose(window, look(window, USUAL).symptoms[0]).findings
    assert {rank for finding in findings for rank in finding.culprits} == {
        VICTIM + part * EIGHT.n_ranks for part in range(PARTS)
    }


def test_copies_of_a_job_differ_in_name_alone() -> None:
    sent = run(EIGHT, seconds=1.0)[0]
    first, second = (decode_batch(of_job(sent, job)[1]) for job in (0, 1))
    assert (first.job, second.job) == ("simulated-00", "simulated-01") and first.boot_id != second.boot_id
    assert all((first.rows(name) == second.rows(name)).all() for name in first.tables)
