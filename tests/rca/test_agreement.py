"""What one diagnosis shows in several places agrees: verdicts with evidence, the path's ops with the flows shown."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from ingest.window import Window
from nccl_instrument.tables import PORT_STATES, RECEIVE, SEND
from rca.diagnose import diagnose
from rca.findings import Component, Condition, Diagnosis, Grade, State
from tests.rca.test_hang import CASES, diagnosis_of
from tests.rca.test_transport import SYMPTOM
from tests.windows import make_window


def paper_pair(port: str) -> Window:
    """§5.3's pair on one link, with losses the other way too: 0 → 1 has ①=②>③ and ①=②=③, 1 → 0 has ①>②>③."""
    window = make_window(2, tp=1, pp=1, ranks_per_node=1, nic_down=1, ports_known=False)
    flow, nic = window.rows("flow").copy(), window.rows("nic").copy()
    to_1 = (flow["comm_rank"] == 0) == (flow["direction"] == SEND)
    sends, takes = flow["direction"] == SEND, flow["direction"] == RECEIVE
    flow["counters"][sends & to_1], flow["counters"][takes & to_1] = (8, 6, 6, 4), (8, 4, 4, 4)
    flow["counters"][sends & ~to_1], flow["counters"][takes & ~to_1] = (8, 6, 5, 4), (8, 4, 4, 4)
    flow["total_chunks"] = 16
    nic["port_state"] = PORT_STATES.index(port)
    return replace(window, tables={**window.tables, "flow": flow, "nic": nic})


@pytest.mark.parametrize(("port", "culprits"), [("up", (1,)), ("unknown", ())])
def test_the_papers_pair_points_to_its_receiver(port: str, culprits: tuple[int, ...]) -> None:
    found = diagnose(paper_pair(port), SYMPTOM)
    best = found.findings[0]
    assert not {0, 1} & {*found.victims} and found.suspects == {0, 1}
    assert (best.subject.ranks, best.culprits, best.grade) == ((1,), culprits, Grade.WEAK)
    assert [tied.ranks for tied in best.tied] == [(0,)]
    assert "rank 1" in best.sentence


def supporting(one: Condition, culprit: int, component: Component) -> bool:
    """Whether the reading that is marked, if one is, blames the culprit and a part that can be it."""
    if one.verdict in ("overruled", "undecided"):
        return True
    cause = one.local_cause if one.verdict == "local" else one.remote_cause
    blamed = one.rank if one.verdict == "local" else one.peer_rank
    is_network = "NIC" in cause and one.verdict == "local"
    return blamed == culprit and "GPU" not in cause and (not is_network or component is Component.NIC)


@pytest.mark.parametrize("transport", ["IB", "Socket"])
@pytest.mark.parametrize("fault", ["nic_down", "frozen", "killed", "proxy_asleep"])
def test_marked_readings_support_the_finding(fault: str, transport: str) -> None:
    best = diagnosis_of(**{fault: 4}, transport=transport).findings[0]
    is_unsure = (fault, transport) == ("proxy_asleep", "Socket")  # a socket takes what nobody asked for
    assert best.grade is (Grade.MODERATE if is_unsure else Grade.STRONG)
    if not is_unsure:
        assert best.conditions
        assert [one for one in best.conditions if not supporting(one, 4, best.component)] == []


def test_a_dead_nic_is_the_local_cause_of_its_own_sends() -> None:
    at_nic = {State.NOT_TRANSMITTED, State.NOT_DELIVERED}
    own = [one for one in diagnosis_of(nic_down=3).findings[0].conditions if one.rank == 3 and one.direction == "send"]
    stalled = [one for one in own if one.state in at_nic]
    assert stalled and {one.verdict for one in stalled} == {"local"}


def shown_ops(found: Diagnosis) -> dict[tuple[str, int, int], set[int]]:
    shown: dict[tuple[str, int, int], set[int]] = {}
    for one in found.findings[0].evidence:
        match = re.match(r"(\S+) op (\d+) channel \d+, rank (\d+) to (\d+)", one.what)
        if match:
            shown.setdefault((match[1], int(match[3]), int(match[4])), set()).add(int(match[2]))
    return shown


@pytest.mark.parametrize("rank", [1, 4, 6])
@pytest.mark.parametrize(("fault", "component", "kind"), CASES)
def test_path_and_evidence_show_one_op_per_connection(fault: str, component: str, kind: str, rank: int) -> None:
    found = diagnosis_of(**{fault: rank}, seed=rank)
    shown = shown_ops(found)
    assert all(len(ops) == 1 for ops in shown.values())
    for edge in found.path:
        name = found.communicators[str(edge.comm_id)]
        ways = {"sent nothing": (edge.waits_for, edge.waiter), "posts no": (edge.waiter, edge.waits_for)}
        for words, (source, target) in ways.items():
            if words in edge.why and (name, source, target) in shown:
                assert shown[name, source, target] == {edge.op}


def test_reasons_on_the_path_name_their_subject() -> None:
    for fault in ("nic_down", "frozen", "stuck_before", "proxy_asleep"):
        for edge in diagnosis_of(**{fault: 3}).path:
            assert not edge.why.startswith("it")
            assert f"rank {edge.waits_for}" in edge.why or "them" in edge.why or "inside the node" in edge.why


@pytest.mark.parametrize(
    ("fault", "commands"),
    [
        ("nic_down", ["`ip -s link show nic1`", "`ibstat`", "drain node1"]),
        ("frozen", ["`cat /proc/1003/status`", "`kill -CONT 1003`"]),
        ("killed", ["exit code", "dmesg", "OOM"]),
        ("stuck_before", ["`py-spy dump --pid 1003`"]),
        ("proxy_asleep", ["`top -H -p 1003`", "gdb -p 1003"]),
        ("gpu_hung", ["nvidia-smi"]),
    ],
)
def test_advice_has_the_commands_and_says_what_becomes_of_the_job(fault: str, commands: list[str]) -> None:
    advice = diagnosis_of(**{fault: 3}).findings[0].advice
    assert all(command in advice for command in commands)
    assert "job" in advice and "node1" in advice and "\n" in advice


def test_no_command_of_a_silent_node_is_left_blank() -> None:
    advice = diagnosis_of(frozen=3, silent=[1]).findings[0].advice
    assert "`ping -c 3 node1`" in advice and "{" not in advice


def test_a_paused_job_has_nothing_to_agree_on() -> None:
    assert np.size(diagnosis_of(paused=True).findings) == 0
