"""Dumps as a page gets them: one dominant class per kind of process, groups with who is behind, everything bounded."""

from __future__ import annotations

import json

from nccl_instrument.dumps import Silent
from rca.bundle.contents import read_contents
from rca.bundle.diagnosis import dumped_in
from rca.bundle.unpack import Unpacked
from rca.dumps.dumped import Dumped
from rca.dumps.dumped_view import SILENT_MAX, ranks_of, views_of
from rca.flight_recorder.sandbox import read_dumps
from rca.stacks.process import MAIN_THREAD, Frame, Process, Stack, Thread
from rca.stacks.view import DEEP_GROUPS, FRAMES_MAX, GROUPS_MAX, NODES_MAX, against, majority, stacks_view
from tests.rca.flight_recorder.real import FOLDER
from tests.rca.stacks.real import look

WAIT: Stack = (Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3252), Frame("train", "train.py", 9))
LOAD: Stack = (Frame("D.__getitem__", "dataset.py", 41), Frame("train", "train.py", 7))


def trainers(*stacks: Stack) -> list[Process]:
    return [Process(rank, 100 + rank, "python", (Thread(MAIN_THREAD, stack),)) for rank, stack in enumerate(stacks)]


def test_real_stacks_make_one_quiet_class_and_an_outlier_that_does_not_move() -> None:
    view = stacks_view(look(1), look(2))
    trainer = [one for one in view["groups"] if one["kind"] == "trainer"]
    assert [(one["ranks"], one["is_dominant"], one["frozen"], one["moving"]) for one in trainer] == [
        ([0, 2, 3], True, 3, 0), ([1], False, 1, 0),
    ]  # fmt: skip
    assert trainer[1]["said"].startswith("data loader: ")
    assert {one["kind"] for one in view["commands"]} == {"trainer", "loader"}
    assert view["tree"]["count"] == 4 and view["looks"] == 2


def test_stacks_that_all_differ_are_cut_and_counted() -> None:
    many = trainers(*((Frame(f"f{n}", "a.py", 1), *[Frame(f"g{k}", "b.py", 1) for k in range(70)]) for n in range(600)))
    view = stacks_view(many, [])
    nodes, queue = 0, [view["tree"]]
    while queue:
        nodes, queue = nodes + 1, [*queue[1:], *queue[0]["children"]]
    assert (len(view["groups"]), view["left_out"]) == (GROUPS_MAX, 100)
    assert nodes <= NODES_MAX
    assert [len(view["groups"][at]["frames"]) for at in (0, DEEP_GROUPS)] == [71, FRAMES_MAX]


def test_two_stacks_differ_from_where_they_part() -> None:
    assert [(one["op"], one["line"].split()[0]) for one in against(LOAD, WAIT)] == [
        (" ", "train"), ("-", "all_reduce"), ("+", "D.__getitem__"),
    ]  # fmt: skip


def test_a_recording_says_of_every_group_who_waits_and_who_has_not_entered() -> None:
    view = views_of(dumped_in(read_contents(Unpacked(FOLDER / "loader.zip"))))["recorder"]
    first = view["groups"][0]
    assert "rank 2 has not entered it" in first["said"] and view["backend"] == "gloo"
    assert first["ranks"][0]["rank"] == 2
    assert all(one["completed"] <= one["enqueued"] for one in first["ranks"])
    assert view["findings"][0]["culprits"] == [2]
    assert {one["rank"] for one in view["last_ops"]} == {0, 1, 2, 3}
    json.dumps(view)


def test_what_nobody_was_asked_for_is_null() -> None:
    assert views_of(Dumped()) == {"stacks": None, "recorder": None}


def test_silent_ranks_are_told_once_each_as_far_as_there_is_room_and_counted() -> None:
    silent = tuple(Silent(rank, "n", "recorder", why) for why in ("late", "gone") for rank in range(300))
    recorder = views_of(Dumped(silent=silent))["recorder"]
    assert (len(recorder["silent"]), recorder["silent_count"]) == (SILENT_MAX, 300)
    assert recorder["silent"][7] == {"rank": 7, "node": "n", "kind": "recorder", "why": "gone"}


def test_recordings_that_cannot_be_read_are_counted() -> None:
    recording = read_dumps([(f"x-{rank}", b"\x80nonsense") for rank in range(201)])
    recorder = views_of(Dumped(recording=recording))["recorder"]
    assert (len(recorder["refused"]), recorder["refused_count"]) == (200, 201)


def test_stacks_that_are_equal_and_deep_do_not_differ_from_the_majority() -> None:
    deep: Stack = (*WAIT, *(Frame(f"call_{n}", "model.py", n) for n in range(100)))
    view = stacks_view(trainers(deep, deep, deep), [])
    assert {one["op"] for one in against(deep, majority(view))} == {" "}
    (process,) = ranks_of(Dumped(tuple(trainers(deep))))["0"]
    assert len(process["frames"]) == len(deep)
