"""What the simulated training loops record: a rank's delay is its own where it arises, and everybody's where they wait."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest

from nccl_instrument.simulate.faults import Fault, Scenario, make_fault
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import Physics, cluster_physics
from nccl_instrument.stage_schema import BACKWARD, CALLBACKS, DATA, FORWARD, FORWARD_BACKWARD, OPTIMIZER
from nccl_instrument.wire import Rows, decode_batch

DP = Layout(tp=1, pp=1, dp=4, ranks_per_node=2)
QUICK = dataclasses.replace(
    cluster_physics(DP),
    n_microbatches=1,
    forward_ms=40.0,
    backward_ms=80.0,
    optimizer_ms=10.0,
    step_gap_ms=4.0,
    n_layers=8,
    ahead=1,
)
VICTIM = 2


def tables(
    fault: Fault | None = None, layout: Layout = DP, physics: Physics = QUICK, **settings: object
) -> dict[str, Rows]:
    """Everything the agents send in six seconds."""
    scenario = Scenario((fault,) if fault else ())
    job = SimulatedJob(JobSettings(layout, physics, scenario, **settings))  # type: ignore[arg-type]
    batches = [decode_batch(sent.encoded) for cut in job.batches(6) for sent in cut]
    job.close()
    return {name: np.concatenate([one.rows(name) for one in batches]) for name in ("stage", "schema", "recorder")}


def medians_ms(found: dict[str, Rows], stage: str) -> npt.NDArray[np.float64]:
    """(R,) of the steps behind the first."""
    names = [name.decode() for name in found["schema"]["name"]]
    at = int(found["schema"]["position"][names.index(stage)])
    rows = found["stage"][found["stage"]["step"] > 0]
    ranks = np.unique(rows["global_rank"])
    return np.array([np.median(rows["durations_ns"][rows["global_rank"] == rank, at]) / 1e6 for rank in ranks])


def fault(name: str, amount: float) -> Fault:
    return make_fault(name, DP, 0.0, victim=VICTIM, amount=amount)


def others(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    return np.delete(values, VICTIM)


def test_every_step_of_every_rank_is_told_once_and_its_stages_are_its_time() -> None:
    found = tables()
    rows = found["stage"]
    for rank in range(4):
        mine = rows[rows["global_rank"] == rank]
        assert mine["step"].tolist() == list(range(len(mine))) and len(mine) > 20
        lasted = mine["durations_ns"].sum(axis=1)
        assert np.allclose(np.diff(mine["ended_ns"])[1:], lasted[2:], rtol=1e-5)  # the node's clock drifts a little
    assert set(found["recorder"]["global_rank"].tolist()) == {0, 1, 2, 3}


def test_a_healthy_step_is_where_its_compute_is() -> None:
    found = tables()
    assert np.allclose(medians_ms(found, DATA), 4, atol=1.5)
    assert np.allclose(medians_ms(found, FORWARD), 40, rtol=0.2)
    assert (medians_ms(found, BACKWARD) > 75).all()
    assert (medians_ms(found, CALLBACKS) == 0).all()


def test_late_batches_of_one_rank_are_backward_of_the_others() -> None:
    found, usual = tables(fault("data_slow", 0.12)), tables()
    assert np.argmax(medians_ms(found, DATA)) == VICTIM
    assert medians_ms(found, DATA)[VICTIM] == pytest.approx(124, abs=2)
    waited = others(medians_ms(found, BACKWARD) - medians_ms(usual, BACKWARD))
    assert np.allclose(waited, 120, atol=6)
    assert abs(medians_ms(found, BACKWARD)[VICTIM] - medians_ms(usual, BACKWARD)[VICTIM]) < 6


def test_work_between_steps_that_is_not_data_is_callbacks() -> None:
    found = tables(fault("heavy_master", 0.1))
    assert medians_ms(found, CALLBACKS)[VICTIM] == pytest.approx(100, abs=1)
    assert (others(medians_ms(found, CALLBACKS)) == 0).all()


def test_a_slow_gpu_is_seen_in_its_own_forward_and_in_the_backward_of_the_others() -> None:
    found, usual = tables(fault("gpu_slow", 2.0)), tables()
    assert medians_ms(found, FORWARD)[VICTIM] > 1.7 * medians_ms(usual, FORWARD)[VICTIM]
    assert np.allclose(others(medians_ms(found, FORWARD)), others(medians_ms(usual, FORWARD)), rtol=0.1)
    assert (others(medians_ms(found, BACKWARD)) > 1.4 * others(medians_ms(usual, BACKWARD))).all()


def test_a_host_that_runs_ahead_sees_its_forward_in_the_backward() -> None:
    found = tables(physics=dataclasses.replace(QUICK, ahead=1_000_000))
    assert (medians_ms(found, FORWARD) < 5).all() and (medians_ms(found, BACKWARD) > 110).all()


def test_forward_and_backward_in_turn_are_one_stage() -> None:
    layout = Layout(tp=1, pp=2, dp=2, ranks_per_node=2)
    found = tables(layout=layout, physics=dataclasses.replace(QUICK, n_microbatches=4))
    names = {name.decode() for name in found["schema"]["name"]}
    assert FORWARD_BACKWARD in names and FORWARD not in names and OPTIMIZER in names
    assert (medians_ms(found, FORWARD_BACKWARD) > 4 * 110).all()


def test_a_loop_without_a_recorder_says_nothing() -> None:
    assert all(len(rows) == 0 for rows in tables(records_stages=False).values())


def test_steps_wait_for_an_agent_that_is_away() -> None:
    found = tables(make_fault("agent_restart", DP, 1.2, victim=1, amount=2))
    for rank in range(4):
        mine = found["stage"][found["stage"]["global_rank"] == rank]
        assert mine["step"].tolist() == list(range(len(mine)))
