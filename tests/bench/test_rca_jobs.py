"""A job tiled from copies of a simulated part is one job: every part is there, and the fault of each is found."""

from __future__ import annotations

import numpy as np

from nccl_instrument.simulate.faults import make_fault
from nccl_instrument.wire import decode_batch
from rca.diagnose import diagnose
from rca.triggers.look import look
from rca.triggers.normal import ALL, Normal
from tests.bench.rca_jobs import Case, of_job, tiled
from tests.bench.rca_tiled import tiled_window
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


def test_a_window_laid_out_several_times_is_that_of_the_tiled_job() -> None:
    nic_down = make_fault("nic_down", EIGHT, 3.0, None, VICTIM, None, 1)
    sent = run(EIGHT, nic_down, seconds=7.0)
    found = tiled_window(window_of(sent), PARTS)
    expected = window_of([one for each in sent for one in tiled(each, CASE)])
    assert np.sort(found.members, order=("comm_id", "comm_rank")).tolist() == expected.members.tolist()
    assert {name: len(rows) for name, rows in found.tables.items()} == {
        name: len(rows) for name, rows in expected.tables.items()
    }
    told = [diagnose(window, look(window, USUAL).symptoms[0]).findings for window in (found, expected)]
    named = [{(one.rule, one.grade, one.culprits) for one in findings} for findings in told]
    assert named[0] == named[1] and len(named[0]) == PARTS  # whose fault comes first of equal ones may differ


def test_copies_of_a_job_differ_in_name_alone() -> None:
    sent = run(EIGHT, seconds=1.0)[0]
    first, second = (decode_batch(of_job(sent, job)[1]) for job in (0, 1))
    assert (first.job, second.job) == ("simulated-00", "simulated-01") and first.boot_id != second.boot_id
    assert all((first.rows(name) == second.rows(name)).all() for name in first.tables)
