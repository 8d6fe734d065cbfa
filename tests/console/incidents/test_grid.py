"""The topology grid: everybody is in it, nobody is healthy by default."""

from __future__ import annotations

import dataclasses
from collections import Counter

import numpy as np
import pytest

from console.incidents.pictures.grid import STATES, SUSPECTED, TABLES, Grid, make_grid
from ingest.window import Window
from rca.diagnose import diagnose
from rca.findings import Subject
from rca.settings import DEFAULT
from rca.triggers.look import look
from tests.windows import make_window

QUICK = dataclasses.replace(DEFAULT, delta_max_ns=DEFAULT.delta_min_ns)
AT = "2026-11-21T12:00:00.000Z"


def states(grid: Grid) -> list[str]:
    return [STATES[state] for state in grid.state]


def grid_of(window: Window) -> Grid:
    """The grid with the real diagnosis of what the real trigger saw, if anything."""
    symptoms = look(window, settings=QUICK).symptoms
    return make_grid(window, diagnose(window, symptoms[0]) if symptoms else None, AT)


def test_in_a_healthy_job_every_rank_is_ok() -> None:
    assert Counter(states(grid_of(make_window()))) == {"ok": 8}


def test_the_culprit_stands_out_from_those_who_wait() -> None:
    grid = grid_of(make_window(stuck_before=5))
    assert states(grid)[5] == "culprit"
    assert set(states(grid)) - {"culprit"} == {"waiting"}
    assert all(grid.note)


def test_ranks_of_a_tie_are_suspects_and_neither_well_nor_waiting() -> None:
    window = make_window(stuck_before=5)
    diagnosis = diagnose(window, look(window, settings=QUICK).symptoms[0])
    tied = tuple(Subject("rank", f"rank {rank}", (rank,)) for rank in (4, 5))
    finding = dataclasses.replace(diagnosis.findings[0], culprits=(), tied=tied)
    victims = tuple(rank for rank in diagnosis.victims if rank != 4)
    found = make_grid(window, dataclasses.replace(diagnosis, findings=(finding,), victims=victims), AT)
    assert Counter(states(found)) == {"suspect": 2, "waiting": 6}
    assert [found.note[rank] for rank in (4, 5)] == [SUSPECTED] * 2


def test_a_rank_that_stands_still_for_reasons_unknown_is_not_ok() -> None:
    window = make_window(stuck_before=5)
    diagnosis = diagnose(window, look(window, settings=QUICK).symptoms[0])
    assert 2 in diagnosis.victims
    partly = dataclasses.replace(diagnosis, victims=tuple(rank for rank in diagnosis.victims if rank != 2))
    assert states(make_grid(window, partly, AT))[2] == "unknown"
    going_on = window.rows("progress").copy()
    going_on["last_done_ns"][going_on["rank"] == 2] = window.end_ns
    moved = dataclasses.replace(window, tables={**window.tables, "progress": going_on})
    assert states(make_grid(moved, partly, AT))[2] == "ok"


def test_a_dead_process_that_nobody_blames_is_dead() -> None:
    window = make_window(killed=2)
    assert states(make_grid(window, None, AT))[2] == "dead"


def test_ranks_of_a_silent_node_are_silent() -> None:
    window = make_window(silent=[1])
    found = states(make_grid(window, None, AT))
    on_node = window.ranks["node"] == 1
    assert {found[rank] for rank in window.ranks["rank"][on_node]} == {"silent"}


def test_of_a_window_long_past_nobody_is_silent_because_nodes_have_sent_more_since() -> None:
    window = make_window()
    nodes = window.nodes.copy()
    nodes["watermark_ns"] += 600 * 10**9
    since = dataclasses.replace(window, nodes=nodes)
    assert set(states(make_grid(since, None, AT))) == {"ok"}
    rows = window.rows("process")
    gone = dataclasses.replace(since, tables={**since.tables, "process": rows[rows["rank"] != 2]})
    found = make_grid(gone, None, AT)
    assert (states(found)[2], found.note[2]) == ("unknown", "nothing is stored of that time")


def test_a_node_that_catches_up_is_not_silent() -> None:
    assert "silent" not in states(make_grid(make_window(silent=[1], catching_up=[1]), None, AT))


def test_ranks_never_seen_are_present_and_unknown() -> None:
    window = dataclasses.replace(make_window(), world_size=12)
    grid = make_grid(window, None, AT)
    assert grid.rank == list(range(12))
    assert states(grid)[8:] == ["unknown"] * 4
    assert grid.last_seen_ms_ago[8:] == [None] * 4
    assert grid.node[8:] == [-1] * 4


def test_ranks_whose_ops_stay_inside_their_node_are_not_visible() -> None:
    window = make_window()
    members = window.members.copy()
    members["n_nodes"] = 1
    assert set(states(make_grid(dataclasses.replace(window, members=members), None, AT))) == {"not_visible"}


def test_a_job_nobody_heard_of_has_an_empty_grid() -> None:
    window = make_window()
    nothing = dataclasses.replace(
        window, world_size=0, nodes=window.nodes[:0], ranks=window.ranks[:0], members=window.members[:0], tables={}
    )
    assert make_grid(nothing, None, AT).rank == []


@pytest.mark.parametrize("column", [field.name for field in dataclasses.fields(Grid)])
def test_every_column_has_one_place_per_rank(column: str) -> None:
    values = getattr(make_grid(make_window(), None, AT), column)
    if isinstance(values, list) and column not in ("nodes", "racks", "states"):
        assert len(values) == 8


def test_the_grid_needs_only_the_tables_it_names() -> None:
    window = make_window(killed=2)
    slim = dataclasses.replace(window, tables={name: window.rows(name) for name in TABLES})
    assert make_grid(slim, None, AT) == make_grid(window, None, AT)


def test_nodes_are_in_the_order_people_count_them() -> None:
    window = make_window(stuck_before=5)
    nodes, ranks = window.nodes.copy(), window.ranks.copy()
    nodes["name"] = ["node10", "node9", "node2", "node1"]
    grid = make_grid(dataclasses.replace(window, nodes=nodes, ranks=ranks), None, AT)
    assert grid.nodes == ["node1", "node2", "node9", "node10"]
    names = {int(rank): str(nodes["name"][node]) for rank, node in zip(ranks["rank"], ranks["node"], strict=True)}
    assert {rank: grid.nodes[grid.node[rank]] for rank in grid.rank} == names


def test_coordinates_are_the_windows_own() -> None:
    window = make_window()
    grid = make_grid(window, None, AT)
    order = np.argsort(window.ranks["rank"])
    assert grid.tp == window.ranks["tp"][order].tolist()
    assert grid.pp == window.ranks["pp"][order].tolist()


def test_once_a_job_is_no_longer_heard_nobody_of_it_is_known_to_be_well() -> None:
    window = make_window(stuck_before=5)
    assert Counter(states(make_grid(make_window(), None, AT, unheard_ns=540 * 10**9))) == {"silent": 8}
    assert Counter(states(make_grid(make_window(), None, AT, unheard_ns=10**9))) == {"ok": 8}, "the next batch is due"
    symptom = look(window, settings=QUICK).symptoms[0]
    blamed = make_grid(window, diagnose(window, symptom), AT, unheard_ns=540 * 10**9)
    assert states(blamed)[5] == "culprit"


def test_a_node_stands_in_the_rack_it_declares_and_in_none_that_it_does_not() -> None:
    window = make_window()
    declared = {str(window.nodes["name"][-1]): "r7", "a node of another job": "r9"}
    grid = make_grid(window, None, AT, racks=declared)
    assert grid.racks == ["r7" if name in declared else "" for name in grid.nodes]
    assert "r7" in grid.racks and "" in grid.racks
    assert set(make_grid(window, None, AT).racks) == {""}
