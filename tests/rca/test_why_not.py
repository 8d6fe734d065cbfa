"""Why not rank 12? Every rank that is not blamed is cleared by what it did itself, and the obvious suspects unasked."""

from __future__ import annotations

import re
from functools import cache

import pytest

from ingest.window import Window
from nccl_instrument.simulate.layout import Layout
from rca.diagnose import diagnose
from rca.findings import Diagnosis, Symptom, SymptomKind, diagnosis_from_json, to_json
from rca.triggers.look import look
from rca.triggers.normal import Normal
from rca.why_not import ALTERNATIVES_MAX, why_not
from tests.nccl_instrument.simulate.jobs import window_after
from tests.rca import test_recorded, test_slowdown
from tests.windows import make_window

HANGS = sorted(path.stem for path in test_recorded.FOLDER.glob("*.npz"))
SLOW = sorted(test_slowdown.TRUTH)


@cache
def hang(name: str) -> tuple[Window, Diagnosis]:
    window = test_recorded.load_recorded(test_recorded.FOLDER / f"{name}.npz")
    return window, diagnose(window, look(window, test_recorded.USUAL).symptoms[0])


@cache
def slow(name: str) -> tuple[Window, Diagnosis]:
    window = test_slowdown.recorded(name)
    return window, test_slowdown.diagnosed(window)


def asked(case: tuple[Window, Diagnosis], rank: int) -> str:
    window, found = case
    return why_not(window, found.symptom, found, rank).why_not


@pytest.mark.parametrize("name", HANGS)
def test_every_victim_of_a_hang_waits_for_a_rank_that_is_not_itself(name: str) -> None:
    window, found = hang(name)
    for rank in found.victims:
        said = asked((window, found), rank)
        assert said.startswith("It waits for rank "), said
        assert not said.startswith(f"It waits for rank {rank} ")
    for rank in found.culprits:
        assert asked((window, found), rank).startswith("It is blamed")


@pytest.mark.parametrize("name", HANGS)
def test_the_way_of_every_victim_ends_at_who_is_blamed_and_not_at_another_victim(name: str) -> None:
    window, found = hang(name)
    ways = [asked((window, found), rank).partition(" steps on the way to ")[2] for rank in found.victims]
    ends = {re.findall(r"\d+", way)[0] for way in ways if way}
    assert ends <= set(map(str, found.culprits)), ways


def test_a_victim_two_steps_away_is_told_the_op_the_communicator_and_the_way() -> None:
    said = asked(hang("frozen_6"), 0)
    assert said == "It waits for rank 4 in op 85 of pp_0: rank 4 has not entered the op, 2 steps on the way to rank 6."


def test_a_victim_that_has_passed_on_all_it_had_is_said_to_have() -> None:
    window, found = hang("frozen_6")
    one = why_not(window, found.symptom, found, 3)
    assert "All that its GPU has made ready has been sent and has arrived." in one.why_not
    assert {fact.what for fact in one.evidence} >= {"process state", "last NCCL callback"}
    assert {fact.rank for fact in one.evidence} == {3}


def test_ranks_that_do_not_exist_or_never_spoke_are_not_guessed_about() -> None:
    window, found = hang("frozen_6")
    assert asked((window, found), 8) == "There is no such rank: the job has 8."
    assert asked((window, found), -1).startswith("There is no such rank")
    silent = make_window(frozen=3, without_nodes=[0])
    assert "not known" in asked((silent, found), 0)


@pytest.mark.parametrize("name", HANGS)
def test_the_obvious_suspects_of_a_hang_are_cleared_unasked(name: str) -> None:
    found = hang(name)[1]
    assert 1 <= len(found.alternatives) <= ALTERNATIVES_MAX
    for one in found.alternatives:
        assert one.subject != found.findings[0].subject and one.why_not
    assert diagnosis_from_json(to_json(found)) == found


def test_who_stopped_before_the_culprit_is_cleared_though_it_was_first() -> None:
    window = window_after("different_op", Layout(tp=4, pp=1, dp=4, ranks_per_node=4), 6, at_s=2.0, seconds=13.5)
    found = diagnose(window, look(window, Normal()).symptoms[0])
    first = next(one for one in found.alternatives if "first to stop" in one.why_not)
    assert not set(first.subject.ranks) & set(found.culprits)
    assert "; but it waits for rank" in first.why_not


def test_ties_come_first_and_are_not_cleared() -> None:
    found = hang("proxy_asleep_0_sockets")[1]
    assert found.findings[0].tied
    assert found.alternatives[0].subject == found.findings[0].tied[0]
    assert found.alternatives[0].why_not.startswith("It may be the one")


@pytest.mark.parametrize("name", [name for name in SLOW if test_slowdown.TRUTH[name][0]])
def test_every_victim_of_a_slowdown_inherits_or_is_slow_in_too_few_places(name: str) -> None:
    window, found = slow(name)
    for rank in found.victims:
        said = asked((window, found), rank)
        is_cleared = "inherited" in said or "only in" in said or "others of its kind or node" in said
        assert is_cleared, (rank, said)
    for rank in found.culprits:
        assert asked((window, found), rank).startswith("It is blamed")


def test_a_slow_gpu_is_told_from_its_nic_which_is_at_its_usual_rate() -> None:
    found = slow("slow_copies_2")[1]
    nic = next(one for one in found.alternatives if one.subject.kind == "nic")
    assert nic.subject.ranks == (2,)
    assert nic.why_not.startswith("What it sends stays on the wire as long as usual")


def test_a_slow_nic_is_told_from_its_gpu() -> None:
    parts = {one.subject.name for one in slow("nic_limit_4")[1].alternatives}
    assert {"copy of rank 4", "compute of rank 4"} <= parts


@pytest.mark.parametrize("name", ["all_compute", "all_links"])
def test_where_everybody_is_slow_no_rank_stands_out(name: str) -> None:
    window, found = slow(name)
    for rank in range(8):
        assert "blamed" not in asked((window, found), rank)
    assert all(one.subject.ranks for one in found.alternatives)


def test_without_findings_nobody_needs_to_be_cleared() -> None:
    window = make_window()
    found = diagnose(window, Symptom(SymptomKind.SILENCE, "job", 1, 1, 2, 0, (), ""))
    assert (found.findings, found.alternatives) == ((), ())
    assert all("blamed" not in asked((window, found), rank) for rank in range(8))
