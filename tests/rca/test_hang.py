"""The hang rule, fault by fault: who started it, which part, how sure, and who only waits."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

from ingest.window import Window, load_window, save_window
from nccl_instrument.tables import RECEIVE, RECEIVED
from rca.diagnose import diagnose
from rca.findings import Component, Diagnosis, FaultKind, Grade, State, Symptom, SymptomKind
from rca.ranks import PORT_DOWN
from tests.windows import make_window

STOP_COMPUTE, STOP_NETWORK = FaultKind.COMPUTATION_FAIL_STOP, FaultKind.COMMUNICATION_FAIL_STOP
SLOW = FaultKind.COMPUTATION_FAIL_SLOW
CASES = [
    ("nic_down", Component.NIC, STOP_NETWORK),
    ("frozen", Component.PROCESS, STOP_COMPUTE),
    ("killed", Component.PROCESS, STOP_COMPUTE),
    ("stuck_before", Component.SOFTWARE, STOP_COMPUTE),
    ("proxy_asleep", Component.PROXY, SLOW),
]


def diagnosis_of(**scenario) -> Diagnosis:  # type: ignore[no-untyped-def]
    return diagnosed(make_window(**scenario))


def diagnosed(window: Window) -> Diagnosis:
    symptom = Symptom(SymptomKind.FAILURE, "job", 1, window.end_ns - 10**10, window.end_ns, 0, (), "No op completed.")
    return diagnose(window, symptom)


def test_a_healthy_job_blames_nobody() -> None:
    assert diagnosis_of().culprits == ()


def test_a_job_between_ops_blames_nobody() -> None:
    found = diagnosis_of(paused=True)
    assert (found.findings, found.victims, found.path) == ((), (), ())


@pytest.mark.parametrize("victim", [0, 3, 6])
@pytest.mark.parametrize(("fault", "component", "kind"), CASES)
def test_the_rank_and_its_part_are_named(fault: str, component: Component, kind: FaultKind, victim: int) -> None:
    found = diagnosis_of(**{fault: victim}, seed=victim, at_ms=500 + 37 * victim)
    best = found.findings[0]
    assert (best.culprits, best.component, best.kind) == ((victim,), component, kind)
    assert best.grade is Grade.STRONG
    assert victim not in found.victims
    assert len(found.victims) >= 4


@pytest.mark.parametrize("victim", range(8))
def test_data_lost_with_the_connections_of_a_killed_rank_blames_no_peer(victim: int) -> None:
    window = make_window(killed=victim, seed=victim, at_ms=561)
    flow = window.rows("flow").copy()
    rank_of = {(int(one["comm_id"]), int(one["comm_rank"])): int(one["rank"]) for one in window.members}
    from_victim = [rank_of.get((int(row["comm_id"]), int(row["peer"]))) == victim for row in flow]
    is_reset = np.array(from_victim) & (flow["direction"] == RECEIVE) & (flow["counters"][:, RECEIVED] > 0)
    flow["counters"][is_reset, RECEIVED:] -= np.minimum(flow["counters"][is_reset, RECEIVED:], 1)
    lost = dataclasses.replace(window, tables={**window.tables, "flow": flow})
    symptom = Symptom(SymptomKind.FAILURE, "job", 1, window.end_ns - 10**10, window.end_ns, 0, (), "No op completed.")
    best = diagnose(lost, symptom).findings[0]
    assert (best.culprits, best.component) == ((victim,), Component.PROCESS)


@pytest.mark.parametrize(("fault", "component"), [("frozen", Component.PROCESS), ("stuck_before", Component.SOFTWARE)])
def test_sockets_do_not_change_who_is_named(fault: str, component: Component) -> None:
    best = diagnosis_of(**{fault: 5}, transport="Socket").findings[0]
    assert (best.culprits, best.component) == ((5,), component)


def test_a_nic_that_is_down_is_named_with_all_ranks_that_use_it() -> None:
    best = diagnosis_of(nic_down=3, nics_per_node=1).findings[0]
    assert (best.culprits, best.subject.kind, best.subject.name) == ((2, 3), "nic", "nic0 of node1")


@pytest.mark.parametrize("victim", [1, 4])
def test_a_nic_that_went_down_is_named_though_nobody_says_which_rank_uses_it(victim: int) -> None:
    best = diagnosis_of(nic_down=victim, nics_known=False).findings[0]
    assert (best.culprits, best.component, best.grade) == ((victim,), Component.NIC, Grade.MODERATE)


@pytest.mark.parametrize(("sent", "is_nic"), [(0, False), (2**64 - 1, False), (10**9, True)])
@pytest.mark.parametrize("transport", ["IB", "Socket"])
def test_the_only_port_that_is_listed_is_the_ranks_own_if_it_was_ever_in_use(
    transport: str, sent: int, is_nic: bool
) -> None:
    """A machine may list a card that was never connected, while the job uses what is not listed."""
    window = make_window(stuck_before=5, transport=transport, nics_per_node=1, nics_known=False)
    nic = window.rows("nic").copy()
    nic["port_state"], nic["tx_bytes"] = PORT_DOWN, sent
    cut = dataclasses.replace(window, tables={**window.tables, "nic": nic})
    symptom = Symptom(SymptomKind.FAILURE, "job", 1, window.end_ns - 10**10, window.end_ns, 0, (), "No op completed.")
    found = diagnose(cut, symptom).findings
    assert any(one.component is Component.NIC for one in found) == is_nic
    assert is_nic or (found[0].culprits, found[0].component) == ((5,), Component.SOFTWARE)


@pytest.mark.parametrize(("fault", "seconds", "grade"), [
    ("stuck_before", 3, Grade.MODERATE), ("stuck_before", 10, Grade.STRONG), ("frozen", 3, Grade.STRONG),
])  # fmt: skip
def test_who_has_not_entered_an_op_may_be_late_for_ten_seconds(fault: str, seconds: int, grade: Grade) -> None:
    """A pause of one rank looks the same, and a strong name wakes people at once."""
    window = make_window(**{fault: 5}, stalled_s=12.0)
    at_ns = window.end_ns - seconds * 10**9
    best = diagnose(window, Symptom(SymptomKind.FAILURE, "job", 1, at_ns, window.end_ns, 0, (), "")).findings[0]
    assert (best.culprits, best.grade) == ((5,), grade)


def test_with_unknown_ports_only_the_link_is_named_and_nobody_blamed() -> None:
    best = diagnosis_of(ranks=4, nic_down=3, tp=1, pp=1, ranks_per_node=2, ports_known=False, seed=2).findings[0]
    assert best.component is Component.NIC
    assert best.culprits in ((), (3,))
    assert best.culprits or 3 in {rank for tied in best.tied for rank in tied.ranks}


def test_the_conditions_of_a_dead_nic_are_on_the_finding() -> None:
    best = diagnosis_of(nic_down=3).findings[0]
    states = {condition.state for condition in best.conditions if condition.direction == "send"}
    assert states & {State.NOT_TRANSMITTED, State.NOT_DELIVERED}


def test_a_gpu_that_hangs_is_a_tie_with_the_mate_on_its_node() -> None:
    best = diagnosis_of(gpu_hung=6).findings[0]
    assert (best.component, best.subject.kind) == (Component.PROCESS, "gpu" if best.culprits else "node")
    assert 6 in best.culprits or 6 in {rank for tied in best.tied for rank in tied.ranks}
    assert set(best.subject.ranks) <= {6, 7}


def test_a_gpu_that_hangs_alone_on_its_node_is_named() -> None:
    best = diagnosis_of(ranks=4, tp=1, pp=1, ranks_per_node=1, gpu_hung=2).findings[0]
    assert (best.culprits, best.component, best.kind) == ((2,), Component.PROCESS, STOP_COMPUTE)
    assert best.subject.kind == "gpu"


def test_the_path_leads_from_every_victim_to_the_culprit() -> None:
    found = diagnosis_of(frozen=3)
    following = {edge.waiter: edge.waits_for for edge in found.path}
    assert set(following) == set(found.victims)
    for victim in found.victims:
        seen = [victim]
        while seen[-1] in following and len(seen) < 20:
            seen.append(following[seen[-1]])
        assert seen[-1] == 3


def test_losing_the_culprits_data_lowers_the_grade_and_says_so() -> None:
    found = diagnosis_of(stuck_before=3, lost_batches=[1])
    assert found.findings[0].grade is Grade.MODERATE
    assert "node1" in found.downgraded[0]


def test_stored_data_of_the_culprit_that_cannot_be_read_lowers_the_grade_and_is_said(tmp_path: Path) -> None:
    save_window(tmp_path / "w.npz", dataclasses.replace(make_window(stuck_before=3), unreadable={"node1": 2}))
    window = load_window(tmp_path / "w.npz")
    found = diagnosed(window)
    assert found.findings[0].grade is Grade.MODERATE
    assert "node1" in found.downgraded[0]
    assert any("2 table groups of node1" in sentence for sentence in found.missing)


def test_losses_of_an_unrelated_node_lower_nothing() -> None:
    found = diagnosis_of(frozen=3, lost_batches=[3])
    assert (found.findings[0].culprits, found.findings[0].grade) == ((3,), Grade.STRONG)


def test_ranks_that_never_reported_are_said_to_be_missing() -> None:
    found = diagnosis_of(frozen=3, without_nodes=[3])
    assert found.culprits == (3,)
    assert any("2 of 8 ranks never reported" in sentence for sentence in found.missing)


def test_a_silent_node_that_the_others_wait_for_is_named_as_a_node() -> None:
    best = diagnosis_of(frozen=3, silent=[1]).findings[0]
    assert best.component is Component.NODE
    assert set(best.culprits) <= {2, 3}


@pytest.mark.parametrize(
    "layout",
    [
        {"ranks": 4, "tp": 1, "pp": 1, "ranks_per_node": 1},
        {"ranks": 8, "tp": 1, "pp": 2, "ranks_per_node": 1},
        {"ranks": 8, "tp": 1, "pp": 1, "ranks_per_node": 4},
        {"ranks": 8, "tp": 4, "pp": 2, "ranks_per_node": 4},
        {"ranks": 12, "tp": 2, "pp": 3, "ranks_per_node": 4},
    ],
    ids=str,
)
@pytest.mark.parametrize(("fault", "component", "kind"), CASES)
def test_any_layout(layout: dict, fault: str, component: Component, kind: FaultKind) -> None:  # type: ignore[type-arg]
    best = diagnosis_of(**layout, **{fault: 3}, nics_per_node=layout["ranks_per_node"]).findings[0]
    assert (best.culprits, best.component, best.kind) == ((3,), component, kind)


def without_comm(window: Window, rank: int, comm_id: int) -> Window:
    """The window in which a rank tells nothing of one communicator, and all it tells of the others."""
    tables = {
        name: rows[~((rows["rank"] == rank) & (rows["comm_id"] == comm_id))]
        if {"rank", "comm_id"} <= set(rows.dtype.names or ())
        else rows
        for name, rows in window.tables.items()
    }
    return dataclasses.replace(window, tables=tables)


@pytest.mark.parametrize("transport", ["IB", "Socket"])
@pytest.mark.parametrize("fault", ["nic_down", "frozen", "killed", "stuck_before", "proxy_asleep", "gpu_hung"])
def test_who_tells_nothing_of_one_communicator_is_not_said_to_have_entered_nothing_there(
    fault: str, transport: str
) -> None:
    window = make_window(**{fault: 3}, seed=1, at_ms=537, transport=transport)  # type: ignore[arg-type]
    for rank in (0, 2, 5):
        for comm_id in window.members["comm_id"][window.members["rank"] == rank].tolist():
            found = diagnosed(without_comm(window, rank, comm_id)).findings
            assert {other for one in found for other in one.culprits if one.grade is not Grade.WEAK} <= {3}, (
                rank,
                comm_id,
            )


def test_who_holds_up_others_and_may_wait_where_it_tells_nothing_is_unknown() -> None:
    window = make_window(stuck_before=3)
    for comm_id in window.members["comm_id"][window.members["rank"] == 3].tolist():
        window = without_comm(window, 3, comm_id)
    best = diagnosed(window).findings[0]
    assert (best.culprits, best.component, best.grade, best.subject.ranks) == ((), Component.UNKNOWN, Grade.WEAK, (3,))
    assert "nothing is known of it in" in best.sentence and "where it may wait" in best.sentence


@pytest.mark.parametrize("fault", ["stuck_before", "proxy_asleep", "frozen", "killed"])
def test_without_rows_of_processes_none_is_said_to_live_and_no_part_is_sure(fault: str) -> None:
    window = make_window(**{fault: 3})  # type: ignore[arg-type]
    tables = {name: rows for name, rows in window.tables.items() if name != "process"}
    best = diagnosed(dataclasses.replace(window, tables=tables)).findings[0]
    assert (best.culprits, best.grade) == ((3,), Grade.MODERATE)
    assert "whether its process lives is not known" in best.sentence and "process lives;" not in best.sentence
