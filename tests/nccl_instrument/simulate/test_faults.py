"""Every fault leaves the marks its mechanism leaves, at its victim, and no others; the truth says who it was."""

from __future__ import annotations

import dataclasses
from functools import cache

import numpy as np
import pytest

from nccl_instrument.simulate.engine import OP
from nccl_instrument.simulate.faults import KINDS, FaultError, Scenario, make_fault, truth
from nccl_instrument.simulate.job import JobSettings, SimulatedJob
from nccl_instrument.simulate.layout import Layout
from nccl_instrument.simulate.physics import TESTBED
from nccl_instrument.tables import FUNCS
from nccl_instrument.wire import Rows
from rca.findings import Component, FaultKind
from tests.nccl_instrument.simulate.jobs import EIGHT, EXPERTS

VICTIM = 3
START_NS = 5 * 10**9


@dataclasses.dataclass(frozen=True)
class Seen:
    """Completion records of the ops enqueued after the fault, flows at every 100 ms, steps done at the end."""

    ops: Rows
    flows: Rows
    steps: np.ndarray

    def step_ms(self) -> np.ndarray:
        world = self.ops[(self.ops["group"] == 0) & (self.ops["func"] == FUNCS.index("AllReduce"))]
        return np.diff(np.sort(world["done_ns"][world["rank"] == 0])) / 1e6

    def by_rank(self, func: str, what: np.ndarray) -> np.ndarray:
        """Median per rank of a quantity of the ops of one function."""
        of_func = self.ops["func"] == FUNCS.index(func)
        ranks = np.unique(self.ops["rank"])
        return np.array([np.median(what[of_func & (self.ops["rank"] == rank)]) for rank in ranks])

    def sends(self, larger: int, smaller: int) -> np.ndarray:
        """Per rank: sweeps that saw one counter of a sending flow ahead of another."""
        flows = self.flows[self.flows["direction"] == 0]
        ahead = flows["counters"][:, larger] > flows["counters"][:, smaller]
        return np.bincount(flows["rank"][ahead], minlength=len(self.steps))


@cache
def seen(name: str = "", amount: float | None = None, layout: Layout = EIGHT, seconds: int = 11) -> Seen:
    faults = (make_fault(name, layout, 4, victim=_victim(name), amount=amount),) if name else ()
    job = SimulatedJob(JobSettings(layout, TESTBED, Scenario(faults)))
    ranks, flows = np.arange(layout.n_ranks, dtype=np.int32), []
    for tick in range(10, seconds * 10):
        job.engine.run(tick * 10**8)
        flows.append(job.engine.flows(ranks).copy())
    ops = job.engine.finished()
    steps = job.engine.processes(ranks)["iteration"]
    job.close()
    return Seen(ops[(ops["enqueued_ns"] > START_NS) & (ops["done_ns"] > 0)], np.concatenate(flows[45:]), steps)


def _victim(name: str) -> int:
    return 1 if KINDS[name].target == "node" else VICTIM


def waits(ops: Rows, name: str) -> np.ndarray:
    """The sending flows' part."""
    return ops[name] - ops[f"receive_{name}"]


@pytest.mark.parametrize(
    ("name", "amount", "least", "most"),
    [
        ("nic_limited", 0.3, 1.8, 4), ("background_traffic", 0.65, 1.5, 3), ("nic_pcie_slow", 0.4, 1.5, 4),
        ("cross_numa", 0.7, 1.2, 3), ("gpu_pcie_slow", 3, 1.4, 3), ("gpu_slow", 2, 1.08, 2), ("gpus_slow", 2, 1.2, 2),
        ("background_compute", 0.7, 1.2, 3), ("cpu_contention", 0.9, 2, 10), ("links_slow", 0.5, 1.5, 2),
        ("overlap", 0.2, 1.0, 1.1), ("pcie_contended", 0.4, 1.5, 4), ("misaligned", 2.5, 1.5, 4),
    ],
)  # fmt: skip
def test_a_slow_part_slows_the_step(name: str, amount: float, least: float, most: float) -> None:
    ratio = np.median(seen(name, amount).step_ms()) / np.median(seen().step_ms())
    assert least <= ratio <= most


def test_a_limited_nic_holds_its_slices_longest() -> None:
    found = seen("nic_limited", 0.3)
    net = found.by_rank("ReduceScatter", waits(found.ops, "net_wait_ns"))
    assert net.argmax() in (1, 3), "the NIC itself, or the rank that sends to it"
    assert found.sends(2, 3)[VICTIM] > 2 * np.median(found.sends(2, 3))


def test_traffic_on_links_is_seen_after_the_nic_took_the_slice() -> None:
    found = seen("background_traffic", 0.65)
    net = found.by_rank("ReduceScatter", waits(found.ops, "net_wait_ns"))
    assert set(np.argsort(net)[-2:]) == {1, 3}, "both ends"
    assert net[3] > 2 * np.median(net)


def port_bytes_per_s(name: str, amount: float) -> np.ndarray:
    """(NICs, 2) what each port counted in, and out, for two seconds of the fault."""
    fault = make_fault(name, EIGHT, 4, victim=VICTIM, amount=amount)
    job = SimulatedJob(JobSettings(EIGHT, TESTBED, Scenario((fault,))))
    counted = []
    for now_ns in (6 * 10**9, 8 * 10**9):
        job.engine.run(now_ns)
        counted.append(job.engine.nics()[0][:, :2].astype(np.float64))
    job.close()
    return (counted[1] - counted[0]) / 2


@pytest.mark.parametrize("amount", [0.5, 0.8])
def test_ports_count_the_traffic_of_others_and_only_the_two_that_carry_it(amount: float) -> None:
    counted = port_bytes_per_s("background_traffic", amount) / TESTBED.link_bytes_per_s
    takes = counted >= amount
    assert takes.all(axis=1).tolist() == [False, True, False, True, False, False, False, False]
    assert counted.max() <= 1.02 and counted[~takes].max() < 0.5


def test_ports_of_a_limited_nic_count_no_more_than_what_the_job_sends() -> None:
    counted = port_bytes_per_s("nic_limited", 0.3) / TESTBED.link_bytes_per_s
    assert counted.max() < 0.35


def test_the_ports_wait_that_send_to_a_slow_nic_and_its_own_does_not() -> None:
    fault = make_fault("nic_limited", EIGHT, 4, victim=VICTIM, amount=0.3)
    job = SimulatedJob(JobSettings(EIGHT, TESTBED, Scenario((fault,))))
    waited_ns = [np.zeros(EIGHT.n_nics, np.int64)]
    for now_ns in range(2 * 10**7, 8 * 10**9, 2 * 10**7):
        job.engine.run(now_ns)
        waited_ns.append(job.engine.nics()[0][:, 2].astype(np.int64))
    job.close()
    senders = np.flatnonzero(waited_ns[-1] > 0.1 * 4e9)
    assert len(senders) and waited_ns[-1][VICTIM] < 0.1 * waited_ns[-1][senders].min()
    grown = np.diff(waited_ns, axis=0)
    assert grown.min() >= 0 and grown.max() <= 2 * 10**7, "no longer than the time that passed"


def test_slow_copies_come_after_the_data_and_before_the_network() -> None:
    found = seen("gpu_pcie_slow", 3.0)
    consuming = found.by_rank("ReduceScatter", found.ops["receive_gpu_wait_ns"])
    assert consuming.argmax() == VICTIM
    net = found.by_rank("ReduceScatter", waits(found.ops, "net_wait_ns"))
    assert net[VICTIM] <= np.median(net)


def test_slow_compute_comes_late_and_is_normal_inside_the_op() -> None:
    found, usual = seen("gpu_slow", 2.0), seen()
    actual = waits(found.ops, "net_wait_ns")
    assert (
        found.by_rank("ReduceScatter", actual)[VICTIM]
        < 1.3 * usual.by_rank("ReduceScatter", waits(usual.ops, "net_wait_ns")).max()
    )
    waiting = found.by_rank("ReduceScatter", found.ops["receive_peer_wait_ns"])
    peer = 1  # the other member of its data-parallel group
    assert found.by_rank("ReduceScatter", found.ops["last_transfer_ns"] - found.ops["first_transfer_ns"])[peer] > (
        1.3 * usual.by_rank("ReduceScatter", usual.ops["last_transfer_ns"] - usual.ops["first_transfer_ns"])[peer]
    )
    assert waiting.min() > 0


def test_a_starved_proxy_makes_ops_long_without_slower_transfers() -> None:
    found, usual = seen("cpu_contention", 0.9), seen()
    lasting = found.by_rank("ReduceScatter", found.ops["last_transfer_ns"] - found.ops["first_transfer_ns"])
    assert lasting[[2, 3]].min() > 3 * np.median(
        usual.by_rank("ReduceScatter", usual.ops["last_transfer_ns"] - usual.ops["first_transfer_ns"])
    )


def test_a_proxy_that_sleeps_now_and_then_makes_single_steps_a_second_longer() -> None:
    steps = seen("proxy_sleeps", 1.0, seconds=24).step_ms()
    assert np.median(steps) == pytest.approx(np.median(seen().step_ms()), rel=0.05)
    assert 1000 < steps.max() < 3500
    assert 1 <= (steps > 900).sum() <= 8


def test_hot_experts_get_the_most_tokens_and_hold_up_the_step() -> None:
    found = seen("hot_expert", 3.0, EXPERTS)
    received = found.by_rank("Recv", found.ops["bytes"])
    means = [
        found.ops["bytes"][(found.ops["func"] == FUNCS.index("Recv")) & (found.ops["rank"] == r)].mean()
        for r in range(8)
    ]
    assert len(received) == 8
    assert np.argmax(means) == VICTIM
    assert means[VICTIM] > 1.3 * np.median(means)
    assert np.median(found.step_ms()) > 1.1 * np.median(seen("", None, EXPERTS).step_ms())


def test_a_whole_job_slowed_looks_the_same_on_every_rank() -> None:
    found = seen("links_slow", 0.5)
    for name in ("net_wait_ns", "gpu_wait_ns"):
        per_rank = found.by_rank("ReduceScatter", waits(found.ops, name))
        assert per_rank[:4].max() < 1.1 * per_rank[:4].min(), "the ranks of a stage"


@pytest.mark.parametrize("name", ["nic_down", "rank_frozen", "rank_killed", "gpu_error", "stuck_before", "proxy_stuck",
                                  "different_op", "different_order"])  # fmt: skip
def test_a_fail_stop_stops_everybody(name: str) -> None:
    assert np.ptp(seen(name).steps) <= 1
    assert seen(name).steps.max() < seen().steps.max() / 1.5


@pytest.mark.parametrize("name", ["different_op", "different_size"])
def test_a_mismatch_stops_a_job_that_reduces_by_rings_of_all_reduces(name: str) -> None:
    fault = make_fault(name, EIGHT, 1, victim=VICTIM)
    job = SimulatedJob(JobSettings(EIGHT, dataclasses.replace(TESTBED, dp_reduce="ring"), Scenario((fault,))))
    job.engine.run(3 * 10**9)
    stopped = job.engine.processes(np.arange(8, dtype=np.int32))["iteration"].copy()
    job.engine.run(6 * 10**9)
    assert (job.engine.processes(np.arange(8, dtype=np.int32))["iteration"] == stopped).all()
    job.close()


@pytest.mark.parametrize("name", ["nic_down", "rank_frozen", "stuck_before", "proxy_stuck"])
def test_what_is_healed_goes_on(name: str) -> None:
    fault = make_fault(name, EIGHT, 2, 4, victim=VICTIM)
    job = SimulatedJob(JobSettings(EIGHT, TESTBED, Scenario((fault,))))
    ranks = np.arange(8, dtype=np.int32)
    job.engine.run(4 * 10**9)
    stopped = job.engine.processes(ranks)["iteration"]
    job.engine.run(8 * 10**9)
    after = job.engine.processes(ranks)["iteration"]
    job.close()
    assert (after - stopped).min() > 15


def test_all_ranks_recompile_before_one_step_though_some_have_begun_the_next() -> None:
    job = SimulatedJob(JobSettings(EIGHT, TESTBED))
    ranks, now_ns = np.arange(8, dtype=np.int32), 2 * 10**9
    while np.ptp(job.engine.processes(ranks)["iteration"]) == 0:
        now_ns += 10**5
        job.engine.run(now_ns)
    job.befall(make_fault("recompile", EIGHT, (now_ns + 1000) / 1e9, amount=2.0))
    job.engine.run(9 * 10**9)
    ops = job.engine.finished()
    job.close()
    for rank in range(8):
        ends = np.sort(ops["done_ns"][(ops["rank"] == rank) & (ops["done_ns"] > 0)])
        assert (np.diff(ends) > 10**9).sum() == 1


@pytest.mark.parametrize("name", KINDS)
def test_the_truth_uses_the_words_of_the_diagnosis(name: str) -> None:
    layout = EXPERTS if name == "hot_expert" else EIGHT
    told = truth(make_fault(name, layout, 1), layout, 0)
    if KINDS[name].is_healthy:
        assert (told["component"], told["kind"], told["ranks"]) == ("none", "healthy", [])
    else:
        assert Component(told["component"]) and FaultKind(told["kind"])
        assert told["ranks"] or KINDS[name].target == "job"


def test_a_nic_counts_all_ranks_that_use_it_and_a_link_both_its_ends() -> None:
    shared = dataclasses.replace(EIGHT, nics_per_node=1)
    assert make_fault("nic_down", shared, 1, victim=5).ranks == (4, 5)
    traffic = make_fault("background_traffic", EIGHT, 1, victim=5)
    assert traffic.ranks == (5, 7)
    assert len(traffic.nodes) == 2


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ({"name": "gremlins"}, "there is no fault"),
        ({"name": "nic_down", "victim": 8}, "there are 0 to 7"),
        ({"name": "node_silent", "victim": 4}, "no node 4"),
        ({"name": "nic_limited", "amount": 1.5}, "between 0 and 1"),
        ({"name": "gpu_slow", "amount": -1.0}, "above 0"),
        ({"name": "hot_expert"}, "give --ep"),
        ({"name": "nic_down", "end_s": 0.5}, "end before"),
    ],
)
def test_a_senseless_fault_is_refused(words: dict[str, object], reason: str) -> None:
    with pytest.raises(FaultError, match=f"(?i){reason}"):
        make_fault(**{"layout": EIGHT, "start_s": 1.0, **words})  # type: ignore[arg-type]


def test_the_engine_keeps_op_records_as_python_reads_them() -> None:
    assert seen().ops.dtype == OP


def test_misaligned_buffers_slow_their_rank_and_not_the_other_user_of_its_nic() -> None:
    """A NIC that two ranks share: both wait for it, but only what moves to or from the rank costs more."""
    shared = dataclasses.replace(EIGHT, nics_per_node=1)
    found, limited = seen("misaligned", 3.0, shared), seen("nic_limited", 1 / 3, shared)
    assert np.median(seen(layout=shared).step_ms()) < np.median(found.step_ms()) < np.median(limited.step_ms())


def test_an_error_in_the_main_thread_ends_the_process_after_what_the_gpu_was_given() -> None:
    job = SimulatedJob(JobSettings(EIGHT, TESTBED, Scenario((make_fault("cuda_error", EIGHT, 2, victim=VICTIM),))))
    ranks = np.arange(8, dtype=np.int32)
    job.engine.run(int(2.05e9))
    enqueued = job.engine.progress(ranks[VICTIM : VICTIM + 1])["n_enqueued"]
    job.engine.run(int(3.9e9))
    assert (job.engine.progress(ranks[VICTIM : VICTIM + 1])["n_enqueued"] == enqueued).all()
    assert not job.engine.processes(ranks)["is_killed"].any()
    job.engine.run(int(4.1e9))
    killed = job.engine.processes(ranks)["is_killed"]
    job.close()
    assert np.flatnonzero(killed).tolist() == [VICTIM]
