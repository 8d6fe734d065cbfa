"""A job that never begins: told after its time to start, with those who never came, and never where it is only slow to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest

from ingest.window import WINDOW_DTYPE, Window
from nccl_instrument.tables import SOURCE_RECORDER
from rca.diagnose import diagnose
from rca.findings import Grade, SymptomKind
from rca.settings import DEFAULT, SECOND_NS, settings_with
from rca.triggers.look import Look, look
from rca.triggers.normal import Normal
from rca.triggers.unstarted import never_arrived
from tests.windows import make_window

QUICK = settings_with({"start_s": 60})


def starting(for_s: float = 700, without: Collection[int] = (), **scenario: object) -> Window:
    """A job whose ranks have declared their communicators and done nothing since; `without` these ranks."""
    window = make_window(paused=True, **scenario)  # type: ignore[arg-type]
    tables = dict(window.tables)
    for name in ("op", "live_op", "flow"):
        tables[name] = np.zeros(0, WINDOW_DTYPE[name])
    for name in ("progress", "process"):
        tables[name] = tables[name][~np.isin(tables[name]["rank"], list(without))].copy()
    for name in ("n_enqueued", "n_done", "n_p2p_enqueued", "n_p2p_done", "last_enqueued_ns", "last_done_ns"):
        tables["progress"][name] = 0
    ranks = window.ranks[~np.isin(window.ranks["rank"], list(without))]
    nodes = window.nodes.copy()
    nodes["first_ns"] = int(tables["process"]["tick_ns"].max()) - int(for_s * SECOND_NS)
    nodes["n_ranks"] = np.bincount(ranks["node"], minlength=len(nodes))
    members = window.members[~np.isin(window.members["rank"], list(without))]
    return replace(window, nodes=nodes, ranks=ranks, members=members, tables=tables)


def kinds(seen: Look) -> list[SymptomKind]:
    return [symptom.kind for symptom in seen.symptoms]


def test_a_job_may_load_and_compile_before_its_first_op() -> None:
    assert kinds(look(starting(590), Normal())) == []
    assert kinds(look(starting(90), Normal(), QUICK)) == [SymptomKind.IDLE]


def test_the_time_to_start_counts_from_the_node_that_came_last() -> None:
    window = starting(700)
    nodes = window.nodes.copy()
    nodes["first_ns"][-1] += 200 * SECOND_NS
    assert kinds(look(replace(window, nodes=nodes), Normal())) == []


def test_who_reads_files_or_is_paused_is_not_told() -> None:
    seen = look(starting(io_bytes_per_s={2: 50_000_000}), Normal())
    assert kinds(seen) == [] and "rank 2 moves" in seen.excused
    assert kinds(look(starting(), Normal(), paused="Paused by rita until 20:00 UTC: new switch")) == []


@pytest.mark.parametrize("column", ["n_enqueued", "n_p2p_enqueued"])
def test_a_job_that_has_enqueued_anything_has_begun(column: str) -> None:
    window = starting()
    progress = window.rows("progress").copy()
    progress[column][3] = 1
    assert kinds(look(replace(window, tables={**window.tables, "progress": progress}), Normal())) == []


def test_a_job_that_ran_before_is_no_job_that_never_began() -> None:
    assert kinds(look(starting(), Normal(seen_ns=1))) == []


def test_a_job_of_which_no_op_would_be_seen_is_not_judged() -> None:
    window = starting()
    tables = {**window.tables, "progress": np.zeros(0, WINDOW_DTYPE["progress"])}
    assert kinds(look(replace(window, tables=tables), Normal())) == []


def test_nobody_is_judged_while_a_node_catches_up() -> None:
    assert kinds(look(starting(catching_up=[1]), Normal())) == []


def test_all_who_arrived_and_never_began_are_told_and_nobody_is_named() -> None:
    window = starting()
    symptom = look(window, Normal()).symptoms[0]
    assert symptom.sentence == "No op has ended on any of 8 ranks since the job was first heard, 700 s ago."
    found = diagnose(window, symptom)
    assert found.culprits == () and "before their first op" in found.findings[0].sentence


def test_a_rank_that_never_arrived_beside_others_of_its_node_is_named() -> None:
    window = starting(without=[5])
    symptom = look(window, Normal()).symptoms[0]
    assert symptom.sentence.endswith("Rank 5 never arrived.")
    found = diagnose(window, symptom)
    assert (found.findings[0].rule, found.culprits, found.findings[0].grade) == ("never_arrived", (5,), Grade.MODERATE)


def test_of_whole_nodes_it_is_weakly_sure_as_nobody_may_listen_there() -> None:
    window = starting(without=[4, 5])
    nodes = window.nodes.copy()
    nodes["n_ranks"][2], nodes["first_ns"][2] = 0, 0
    found = diagnose(window, look(replace(window, nodes=nodes), Normal()).symptoms[0])
    assert (found.culprits, found.findings[0].grade) == ((4, 5), Grade.WEAK)


def test_where_most_are_missing_nobody_is_named() -> None:
    window = starting(without=[3, 4, 5, 6, 7])
    assert never_arrived(window).tolist() == []
    assert diagnose(window, look(window, Normal()).symptoms[0]).culprits == ()


def test_a_rank_that_is_heard_and_never_declared_its_communicator_is_named() -> None:
    window = starting(ranks=16, tp=2, pp=2)
    sizes = window.members["n_ranks"]
    is_its = (window.members["rank"] == 6) & (sizes == sizes[(sizes > 2) & (sizes < 16)].max())
    assert is_its.any()
    window = replace(window, members=window.members[~is_its])
    assert diagnose(window, look(window, Normal()).symptoms[0]).culprits == (6,)


@pytest.mark.parametrize("declared", [2**31 - 1, 1000])
def test_an_impossible_world_costs_nothing(declared: int) -> None:
    window = starting(without=[5])
    members = window.members.copy()
    members["n_ranks"] = declared
    assert never_arrived(replace(window, world_size=declared, members=members)).tolist() == []


def test_ranks_that_count_and_never_finished_an_op_are_told_too() -> None:
    window = starting()
    status = np.zeros(8, WINDOW_DTYPE["status"])
    status["rank"], status["source"] = np.arange(8), SOURCE_RECORDER
    status["tick_ns"] = status["written_ns"] = window.rows("process")["tick_ns"].max()
    tables = {**window.tables, "status": status, "progress": np.zeros(0, WINDOW_DTYPE["progress"])}
    assert kinds(look(replace(window, tables=tables), Normal())) == [SymptomKind.IDLE]
    status["n_done"] = 1
    assert kinds(look(replace(window, tables=tables), Normal())) == []


def test_the_default_is_ten_minutes() -> None:
    assert DEFAULT.start_ns == 600 * SECOND_NS
