"""Which attempt a batch belongs to, decided from what it declares."""

from __future__ import annotations

import pytest

from ingest.jobs.attempts import Declared, KnownAttempt, choose_attempt, is_taken_over

OLD = frozenset({(100, 1), (101, 1)})
NEW = frozenset({(200, 2), (201, 2)})


def declared(processes: frozenset[tuple[int, int]] = NEW, restart: int = -1, world: int = 0) -> Declared:
    return Declared(restart, world, processes, frozenset(pid for pid, _ in processes))


def known(
    id: int = 1, restart: int = -1, world: int = 0, processes: frozenset = OLD, over: bool = False
) -> KnownAttempt:
    return KnownAttempt(id, restart, world, processes, over)


def test_the_first_batch_of_a_job_starts_an_attempt() -> None:
    assert choose_attempt(declared(), []) is None
    assert choose_attempt(Declared(), []) is None


def test_processes_that_are_known_decide_whatever_else_is_said() -> None:
    attempts = [known(2, restart=1, processes=NEW), known(1, restart=0, over=True)]
    assert choose_attempt(declared(OLD, restart=7, world=99), attempts) == 1
    assert choose_attempt(declared(NEW), attempts) == 2


def test_a_higher_restart_count_starts_an_attempt() -> None:
    assert choose_attempt(declared(restart=1), [known(restart=0)]) is None


def test_the_same_restart_count_on_a_node_that_joins_is_the_same_attempt() -> None:
    assert choose_attempt(declared(restart=0), [known(restart=0, processes=frozenset())]) == 1


def test_a_late_batch_of_an_earlier_restart_goes_back_to_it() -> None:
    late = declared(frozenset({(90, 0)}), restart=0)
    assert choose_attempt(late, [known(2, restart=1, processes=NEW), known(1, restart=0)]) == 1


def test_a_restart_count_that_starts_over_with_younger_processes_is_a_new_start() -> None:
    assert choose_attempt(declared(restart=0), [known(restart=3)]) is None


def test_another_world_size_starts_an_attempt() -> None:
    assert choose_attempt(declared(world=16), [known(world=8)]) is None
    assert choose_attempt(declared(world=8), [known(world=8)]) == 1
    assert choose_attempt(declared(world=8), [known(world=0)]) == 1


def test_a_node_of_a_step_that_runs_beside_the_newest_goes_to_its_own_attempt() -> None:
    newest = known(2, world=4, processes=NEW)
    beside = KnownAttempt(1, world_size=8, over=True, lives=True)
    joining = frozenset({(300, 3)})
    assert choose_attempt(declared(joining, world=8), [newest, beside]) == 1
    assert choose_attempt(declared(joining, world=4), [newest, beside]) == 2
    assert choose_attempt(declared(joining, world=16), [newest, beside]) is None
    assert choose_attempt(declared(joining, world=8, restart=1), [newest, beside]) is None


def test_processes_as_many_as_an_attempt_that_no_longer_lives_are_a_new_start() -> None:
    gone = KnownAttempt(1, world_size=8, over=True)
    assert choose_attempt(declared(world=8), [known(2, world=4), gone]) is None


def test_new_processes_after_a_long_silence_start_an_attempt() -> None:
    assert choose_attempt(declared(), [known(over=True)]) is None


def test_a_batch_without_comm_rows_follows_its_pids_else_the_newest_attempt() -> None:
    attempts = [known(2, processes=NEW), known(1)]
    assert choose_attempt(Declared(pids=frozenset({100})), attempts) == 1
    assert choose_attempt(Declared(pids=frozenset({200})), attempts) == 2
    assert choose_attempt(Declared(pids=frozenset({999})), attempts) == 2
    assert choose_attempt(Declared(), attempts) == 2


@pytest.mark.parametrize(("n_replaced", "n_ranks", "taken"), [(0, 8, False), (4, 8, False), (5, 8, True), (1, 1, True)])
def test_most_ranks_in_other_processes_make_another_attempt(n_replaced: int, n_ranks: int, taken: bool) -> None:
    assert is_taken_over(n_replaced, n_ranks) is taken
