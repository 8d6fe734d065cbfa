"""The suite `kills` judges rightly: what is lost, doubled, out of order or unexplained is said."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.eval.kills import Recovery, by_part, counted_losses, lost_in
from tests.eval.kills_load import Load
from tests.eval.kills_parts import names_of
from tests.eval.kills_verify import Stored, timeline_faults

BOOT = ("job", b"boot")


def stored(rows: dict[int, int], *ranges: tuple[int, int]) -> Stored:
    return Stored(rows={BOOT: Counter(rows)}, received={BOOT: list(ranges)})


@pytest.mark.parametrize(
    ("rows", "ranges", "is_there"),
    [
        ({4: 1}, [(0, 9)], True),
        ({4: 2}, [(0, 9)], False),  # twice
        ({}, [(0, 9)], False),  # known as received, but gone
        ({4: 1}, [(0, 4), (5, 9)], False),  # there, but a resent one would be stored again
    ],
)
def test_a_batch_counts_when_its_number_is_known_and_its_row_is_there_once(
    rows: dict[int, int], ranges: list[tuple[int, int]], is_there: bool
) -> None:
    assert stored(rows, *ranges).has_once(BOOT, 4) == is_there


def test_holes_and_repeats_are_counted() -> None:
    found = stored({0: 1, 5: 3, 6: 2}, (0, 1), (5, 7), (10, 11))
    assert (found.holes(BOOT), found.repeated()) == (7, 3)


def entry(at: str, note: str) -> dict[str, Any]:
    return {"at": at, "note": note}


def test_a_timeline_keeps_every_act_once_and_in_order() -> None:
    kept = [entry("1", "ack"), entry("2", "detector's"), entry("3", "first"), entry("4", "second")]
    assert timeline_faults(kept, ["ack", "first", "second"]) == []
    assert timeline_faults(kept, ["ack", "second", "first"]) == ["the timeline has the acts in another order"]
    assert timeline_faults(kept[:3], ["ack", "first", "second"]) == ["the timeline lacks ['second']"]
    twice = timeline_faults([*kept, entry("5", "first")], ["ack", "first", "second"])
    assert "an act is in the timeline twice" in twice
    assert "the timeline's times run backwards" in timeline_faults(kept[::-1], [])


def test_a_part_that_never_came_back_is_not_hidden_by_those_that_did() -> None:
    table = by_part([Recovery("web", "web", 2.0, 3.0), Recovery("web", "web", None, None)])
    assert table["web"] == {"kills": 2, "never": 1, "worst_s": 2.0, "median_s": 2.0, "worst_from_kill_s": 3.0}


def test_one_part_may_be_several_processes() -> None:
    running = {"ingest": 1, "ingest-2": 2, "web": 3}
    assert names_of("ingest", running) == ["ingest", "ingest-2"]
    assert names_of("web", running) == ["web"]


def test_losses_are_summed_over_nodes() -> None:
    rows = [{"losses": {"spool_batches": 2}}, {"losses": {"spool_batches": 1, "late_sweeps": 4}}]
    assert counted_losses(rows) == {"spool_batches": 3, "late_sweeps": 4}


VERDICT: dict[str, Any] = {
    "kills": 3, "batches_lost": 0, "batches_repeated": 0, "incidents_lost": 0, "false_incidents": 0, "faults": 0,
    "worst_recovery_s": 4.2, "drained_s": 1.0,
}  # fmt: skip


@pytest.mark.parametrize(
    "fault",
    [
        {},
        {"batches_lost": 1},
        {"incidents_lost": 1},
        {"false_incidents": 1},
        {"faults": 2},
        {"worst_recovery_s": None},
        {"drained_s": None},
    ],
    ids=str,
)
def test_a_run_that_lost_or_invented_anything_fails(fault: dict[str, Any]) -> None:
    assert lost_in({**VERDICT, **fault}) == list(fault)


def test_everything_is_live_when_every_node_of_the_load_was_heard(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("x")
    load = Load("http://127.0.0.1:1", token, tmp_path, 2)
    try:
        for node in load.nodes:
            node.cut_at.append(100.0)
        load.nodes[0].door.newest = 0
        assert not load.is_acknowledged_since(50.0)
        load.nodes[1].door.newest = 0
        assert load.is_acknowledged_since(50.0)
    finally:
        for node in load.nodes:
            node.uplink.stop()
            node.spool.close()
