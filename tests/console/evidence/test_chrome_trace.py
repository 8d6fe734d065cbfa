"""A window as tracks: what ended, what did not, who stands still; what has no room is counted, and names are no markup."""

from __future__ import annotations

import dataclasses
import json
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree

import pytest

from console.evidence import chrome_trace as module
from console.evidence.chrome_trace import chrome_trace
from console.evidence.grid_picture import grid_svg
from console.evidence.lanes_picture import lanes_svg
from console.evidence.standing_picture import standing_svg
from console.incidents.pictures.grid import make_grid
from console.incidents.pictures.lanes import make_lanes
from ingest.window import Window
from rca.diagnose import diagnose
from rca.hang.standing import standing
from rca.triggers.look import look
from tests.console.evidence.trace_format import check_trace
from tests.windows import make_window


@pytest.fixture
def window() -> Window:
    return make_window(ranks=8, stuck_before=3)


def drawn(window: Window, **marks: int) -> dict[str, Any]:
    (symptom,) = look(window).symptoms
    made: dict[str, Any] = json.loads(json.dumps(chrome_trace(window, diagnose(window, symptom), list(marks.items()))))
    return made


def test_a_window_without_traces_is_an_empty_trace() -> None:
    full = make_window(ranks=8)
    empty = dataclasses.replace(full, ranks=full.ranks[:0], members=full.members[:0], tables={})
    assert chrome_trace(empty, None)["traceEvents"] == []


def test_every_rank_has_its_tracks_and_the_culprit_stands_first(window: Window) -> None:
    made = drawn(window, trigger=window.end_ns - 1)
    order = [one for one in made["traceEvents"] if one["name"] == "process_sort_index"]
    assert min(order, key=lambda one: one["args"]["sort_index"])["pid"] == 3
    assert {one["pid"] for one in made["traceEvents"] if one.get("cat") == "op"} >= set(range(8)) - {3}
    length = (window.end_ns - window.start_ns) / 1000
    for one in made["traceEvents"]:
        if one["ph"] == "X":
            assert 0 <= one["ts"] <= one["ts"] + one["dur"] <= length + 0.001
    assert any(one["name"].endswith("(not finished)") for one in made["traceEvents"])
    assert any(one["ph"] == "i" and one["name"] == "trigger" for one in made["traceEvents"])
    assert made["otherData"]["left_out"] == {}


def test_bars_of_one_track_never_overlap(window: Window) -> None:
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for one in drawn(window)["traceEvents"]:
        if one["ph"] == "X" and one["cat"] == "op":
            tracks.setdefault((one["pid"], one["tid"]), []).append((one["ts"], one["ts"] + one["dur"]))
    assert tracks
    for bars in tracks.values():
        bars.sort()
        assert all(first[1] <= second[0] + 0.001 for first, second in pairwise(bars))


def test_what_has_no_room_is_counted(window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "EVENTS_MAX", 40)
    monkeypatch.setattr(module, "RANKS_MAX", 4)
    left_out = drawn(window)["otherData"]["left_out"]
    assert left_out["ranks"] == 4 and left_out["op"] > 0


def test_pictures_are_well_formed_and_names_from_outside_are_no_markup(window: Window) -> None:
    title = "<script>alert(1)</script> & more"
    lanes = make_lanes(window, range(8), window.start_ns, window.end_ns - 1)
    diagnosis = diagnose(window, look(window).symptoms[0])
    pictures = [
        grid_svg(make_grid(window, None, "now"), title), lanes_svg(lanes, diagnosis, title, {0: "<b>"})[0],
        standing_svg(standing(window, range(8)), diagnosis, title, {0: "<b>"}),
    ]  # fmt: skip
    for picture in pictures:
        root = ElementTree.fromstring(picture)
        assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
        assert title in "".join(root.itertext())
    assert len(lanes.lanes) > 8 and pictures[1].count("<path") > len(lanes.lanes)


@pytest.mark.parametrize(
    "fault", [{"stuck_before": 3}, {"nic_down": 2}, {"killed": 1}, {"ranks": 32, "gpu_hung": 5}, {}]
)
def test_traces_keep_to_the_format(fault: dict[str, Any]) -> None:
    window = make_window(**{"ranks": 8, **fault})
    symptoms = look(window).symptoms
    diagnosis = diagnose(window, symptoms[0]) if symptoms else None
    marks = [("trigger", window.end_ns - 1), ("before it", window.start_ns - 1)]
    text = json.dumps(chrome_trace(window, diagnosis, marks))
    check_trace(json.loads(text), len(text))


@pytest.mark.parametrize(
    "wrong",
    [
        {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1.0},
        {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": -1.0, "dur": 1},
        {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": float("nan"), "dur": 1},
        {"ph": "X", "name": "over", "pid": 1, "tid": 1, "ts": 5, "dur": 10},
        {"ph": "X", "name": "unnamed", "pid": 1, "tid": 2, "ts": 5, "dur": 1},
        {"ph": "E", "name": "a", "pid": 1, "tid": 1, "ts": 5},
        {"ph": "B", "name": "a", "pid": 1, "tid": 1, "ts": 5},
        {"ph": "s", "name": "a", "pid": 1, "tid": 1, "ts": 5, "id": 1, "cat": "waits for"},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "again"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 3, "args": {"name": 7}},
        {"ph": "?", "name": "a", "pid": 1, "tid": 1, "ts": 5},
    ],
)
def test_what_the_format_forbids_is_found(wrong: dict[str, Any]) -> None:
    good = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "rank 1"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "ops"}},
        {"ph": "X", "name": "op", "pid": 1, "tid": 1, "ts": 0, "dur": 10},
        {"ph": "X", "name": "within", "pid": 1, "tid": 1, "ts": 2, "dur": 5},
    ]
    check_trace({"traceEvents": good})
    with pytest.raises(AssertionError):
        check_trace({"traceEvents": [*good, wrong]})


def test_arrows_without_a_bar_or_an_end_are_found() -> None:
    held = [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "rank 1"}},
        {"ph": "M", "name": "thread_name", "pid": 1, "tid": 1, "args": {"name": "ops"}},
        {"ph": "X", "name": "op", "pid": 1, "tid": 1, "ts": 0, "dur": 10},
    ]
    arrow = {"name": "a", "cat": "w", "id": 1, "pid": 1, "tid": 1, "ts": 5}
    check_trace({"traceEvents": [*held, {**arrow, "ph": "s"}, {**arrow, "ph": "f", "bp": "e"}]})
    for end in (
        {**arrow, "ph": "f", "bp": "e", "ts": 11},
        {**arrow, "ph": "f", "ts": 4},
        {**arrow, "ph": "f", "tid": 2},
    ):
        with pytest.raises(AssertionError):
            check_trace({"traceEvents": [*held, {**arrow, "ph": "s"}, end]})
