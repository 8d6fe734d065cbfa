"""Ranks that left their habit, that ended, or that sent nothing: who of them is to blame, and when nobody can tell."""

from __future__ import annotations

import pytest

from rca.findings import FaultKind, Finding, Grade
from rca.flight_recorder.analysis import findings_of, waiting_of
from rca.flight_recorder.habit import deviations
from rca.flight_recorder.sandbox import read_dumps
from tests.rca.flight_recorder.test_analysis import dump

Op = tuple[str, int, str, bool]
IN_AN_OP = b"\nended in an op by RuntimeError: Connection closed by peer"
OUTSIDE = b"\nended outside any op by ValueError: loss is not finite"
STEP = ("tp", "tp", "tp", "dp", "world")


def trained(*groups: str, steps: int = 6) -> list[Op]:
    """So many steps, all over, and then ops of `groups`, the last of which does not end."""
    numbers = dict.fromkeys((*STEP, *groups), 0)
    found: list[Op] = []
    for group in [*STEP * steps, *groups]:
        numbers[group] += 1
        found.append((group, numbers[group], "all_reduce", True))
    return [*found[:-1], (*found[-1][:3], False)]


def best(*dumps: tuple[str, bytes], silent: dict[int, str] | None = None) -> Finding:
    return findings_of(waiting_of(read_dumps(list(dumps)), None, silent))[0]


def test_an_op_left_out_that_a_later_one_made_up_for_is_still_missing() -> None:
    went_on = dump(1, *trained("tp", "tp", "dp", "world"), ranks="[0, 1]")
    held = dump(0, *trained("tp", "tp", "tp"), ranks="[0, 1]")
    found = best(held, went_on)
    assert (found.kind, found.culprits) == (FaultKind.MISMATCH, (1,))
    assert "left out op 21 of tp" in found.sentence


def test_two_groups_of_the_same_members_in_another_order_are_both_sides_fault() -> None:
    one, other = trained("tp", "tp", "tp", "dp"), trained("tp", "tp", "tp", "world")
    found = best(dump(0, *one, ranks="[0, 1]"), dump(1, *other, ranks="[0, 1]"))
    assert (found.kind, found.culprits) == (FaultKind.DEADLOCK, (0, 1))


def test_what_all_who_entered_it_do_for_the_first_time_is_nobodys_deviation() -> None:
    rare = [dump(rank, *trained("tp", "tp", "tp", "save"), ranks="[0, 1]") for rank in range(2)]
    assert deviations(read_dumps(rare), (0, 1)) == []
    alone = [dump(0, *trained("tp", "tp", "tp", "dp"), ranks="[0, 1]"), rare[1]]
    assert [one.rank for one in deviations(read_dumps(alone), (0, 1))] == [1]


def test_too_short_a_history_says_nothing() -> None:
    dumps = [dump(rank, *trained("dp", steps=1), ranks="[0, 1]") for rank in range(2)]
    assert deviations(read_dumps(dumps), (0, 1)) == []


def ended(rank: int, ending: bytes, *groups: str, name: str = "all_reduce") -> tuple[str, bytes]:
    """A program that died: gloo calls the op that raised retired."""
    ops = trained(*groups)
    file, raw = dump(rank, *ops[:-1], (*ops[-1][:2], name, True), ranks="[]")
    return file, raw + ending


def test_of_programs_that_died_in_an_op_the_one_that_entered_another_is_named() -> None:
    others = [ended(rank, IN_AN_OP, "tp") for rank in (0, 1)]
    found = best(*others, ended(2, IN_AN_OP, "tp", name="broadcast"), silent={3: "the process is gone"})
    assert (found.kind, found.culprits) == (FaultKind.MISMATCH, (2,))


def test_one_that_died_alone_in_an_op_that_was_not_due_is_named_before_one_that_left_nothing() -> None:
    found = best(ended(0, IN_AN_OP, "tp", name="broadcast"), silent={1: "the process is gone"})
    assert (found.kind, found.culprits) == (FaultKind.MISMATCH, (0,))


def test_one_whose_own_code_raised_is_named_with_its_error() -> None:
    others = [ended(rank, IN_AN_OP, "tp", "tp") for rank in (0, 1)]
    found = best(*others, ended(2, OUTSIDE, "tp"))
    assert (found.culprits, found.grade) == ((2,), Grade.STRONG)
    assert "ended by ValueError: loss is not finite" in found.sentence


def test_one_that_was_killed_is_said_to_have_ended_without_a_word() -> None:
    others = [ended(rank, IN_AN_OP, "tp", "tp") for rank in (0, 1)]
    found = best(*others, dump(2, *trained("tp")[:-1], ranks="[]"), silent={2: "the process is gone"})
    assert (found.culprits, found.grade) == ((2,), Grade.MODERATE)
    assert "Rank 2 ended without a word" in found.sentence


@pytest.mark.parametrize("why", ["the process is gone", "no answer within the time; tried its recorder thread"])
def test_the_one_rank_that_sends_nothing_is_who_the_others_wait_for(why: str) -> None:
    waiting = [dump(rank, *trained("tp"), ranks="[]") for rank in range(3)]
    found = best(*waiting, silent={3: why})
    assert (found.culprits, found.grade) == ((3,), Grade.MODERATE)
    two = best(*waiting, silent={3: why, 4: why})
    assert two.culprits == ()
    assert [subject.ranks for subject in two.tied] == [(3,), (4,)]


def test_where_members_are_known_a_silent_outsider_is_not_blamed() -> None:
    waiting = [dump(rank, *trained("tp"), ranks="[0, 1]") for rank in range(2)]
    found = best(*waiting, silent={7: "the process is gone"})
    assert (found.culprits, found.subject.kind) == ((), "communicator")


def test_one_that_is_held_at_once_in_another_group_left_it_out_or_wants_it_later() -> None:
    usual, once = trained("tp", "tp", "tp", "dp", "world"), [("pair", 1, "all_reduce", True)]
    others = [dump(0, *usual, ranks="[]"), dump(1, *once, *usual, ranks="[]")]
    found = best(*others, dump(2, *once, *usual[:-1], ("pair", 2, "all_reduce", False), ranks="[]"))
    assert (found.kind, found.culprits) == (FaultKind.MISMATCH, (2,))
    assert "entered op 2 of pair when op 7 of world was due" in found.sentence
