"""Whose stack stands out, what it is doing, and when stacks name nobody."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rca.findings import Grade
from rca.stacks.analysis import doing_of, findings_of
from rca.stacks.classes import classes_of, difference, prefix_tree
from rca.stacks.places import Place, place_of
from rca.stacks.process import LAUNCHER, LOADER, MAIN_THREAD, OTHER, TRAINER, Frame, Process, Stack, Thread
from rca.stacks.reading import BadStacks, read_stacks, short_file
from tests.rca.stacks.real import look, raw_dumps

WAIT: Stack = (Frame("all_reduce", "torch/distributed/distributed_c10d.py", 3252), Frame("train", "train.py", 9))
LOAD: Stack = (Frame("D.__getitem__", "samples.py", 41), Frame("train", "train.py", 7))
SAVE: Stack = (Frame("_save", "torch/serialization.py", 900), Frame("save_checkpoint", "train.py", 30))
CODE: Stack = (Frame("tokenize", "/srv/job/text.py", 3), Frame("train", "train.py", 8))


def ranks(*stacks: Stack) -> list[Process]:
    return [Process(rank, 100 + rank, "python", (Thread(MAIN_THREAD, stack),)) for rank, stack in enumerate(stacks)]


def test_a_real_data_loader_stall_is_told_with_the_line_its_worker_is_at() -> None:
    best = findings_of(look(1), look(2))[0]
    assert (best.culprits, best.grade) == ((1,), Grade.STRONG)
    assert best.sentence.startswith("Rank 1 is in the data loader")
    assert "D.__getitem__ (pj.py:7)" in str([fact.value for fact in best.evidence])


def test_processes_are_told_apart_by_what_they_run() -> None:
    assert sorted({one.kind for one in look(1)}) == sorted({TRAINER, LOADER})
    agent = Thread(MAIN_THREAD, (Frame("run", "torch/distributed/elastic/agent/server/api.py", 1),))
    child = Thread(
        MAIN_THREAD, (Frame("f", "x.py", 1), Frame("BaseProcess._bootstrap", "multiprocessing/process.py", 314))
    )
    assert Process(0, 1, "", (agent,)).kind == LAUNCHER
    assert Process(0, 1, "", (child,)).kind == OTHER


def test_the_text_of_a_dump_says_the_same_as_its_json() -> None:
    dumps = raw_dumps()
    text = read_stacks(dumps["text.txt"], 2)
    name = next(name for name in dumps if f"_{text.pid}_2" in name)
    same = read_stacks(dumps[name], 2)
    assert {(one.name, one.stack) for one in text.threads} == {(one.name, one.stack) for one in same.threads}


def test_equal_stacks_are_one_class_whatever_line_of_the_loop_they_are_at() -> None:
    other = (WAIT[0], Frame("train", "train.py", 10))
    found = classes_of(ranks(WAIT, other, WAIT, LOAD))
    assert [(one.ranks, one.place) for one in found] == [((0, 1, 2), Place.COLLECTIVE), ((3,), Place.DATA_LOADER)]


def test_the_tree_of_calls_parts_where_the_classes_do() -> None:
    root = prefix_tree(classes_of(ranks(WAIT, WAIT, LOAD)))
    (train,) = root.inner.values()
    assert (root.ranks, train.ranks) == ({0, 1, 2}, {0, 1, 2})
    assert sorted(sorted(branch.ranks) for branch in train.inner.values()) == [[0, 1], [2]]
    common, mine, theirs = difference(WAIT, LOAD)
    assert ([one.name for one in common], [one.name for one in mine], [one.name for one in theirs]) == (
        ["train"], ["all_reduce"], ["D.__getitem__"],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("stack", "place"),
    [
        (WAIT, Place.COLLECTIVE),
        (LOAD, Place.DATA_LOADER),
        (SAVE, Place.CHECKPOINT_SAVE),
        (CODE, Place.CODE),
        ((), Place.NOTHING),
        ((Frame("barrier", "torch/distributed/distributed_c10d.py", 1), *SAVE), Place.BARRIER),
        ((Frame("load", "torch/serialization.py", 1),), Place.CHECKPOINT_LOAD),
        ((Frame("write_model_shards", "/srv/job/storage.py", 1), *CODE), Place.CHECKPOINT_SAVE),
        ((Frame("Trainer._dump_optimizer_state", "/srv/job/loop.py", 1),), Place.CHECKPOINT_SAVE),
        (
            (Frame("put", "/srv/job/ckpt_store.py", 1), Frame("persist", "/srv/job/ckpt_store.py", 9)),
            Place.CHECKPOINT_SAVE,
        ),
        ((Frame("restore_weights", "/srv/job/storage.py", 1),), Place.CHECKPOINT_LOAD),
        ((Frame("update_state", "/srv/job/loop.py", 1),), Place.CODE),
        ((Frame("read_shards", "/srv/job/text.py", 1),), Place.CODE),
        (
            (Frame("all_gather", "torch/distributed/distributed_c10d.py", 1), Frame("save_state", "loop.py", 1)),
            Place.COLLECTIVE,
        ),
        ((Frame("synchronize", "torch/cuda/__init__.py", 1),), Place.GPU_WAIT),
        ((Frame("compile_fx", "torch/_inductor/compile_fx.py", 1),), Place.COMPILE),
        ((Frame("Condition.wait", "threading.py", 327), Frame("f", "x.py", 1)), Place.LOCK),
        ((Frame("Condition.wait", "threading.py", 327), *LOAD), Place.DATA_LOADER),
    ],
)
def test_known_places_are_told_by_their_calls(stack: Stack, place: Place) -> None:
    assert place_of(stack)[0] is place


def test_of_own_code_the_innermost_call_outside_libraries_is_named() -> None:
    stack = (Frame("read", "ssl.py", 3), Frame("fetch", "/srv/job/text.py", 5), Frame("train", "train.py", 8))
    assert place_of(stack) == (Place.CODE, stack[1])


def test_nobody_is_named_when_all_wait_or_nobody_does_or_most_are_elsewhere() -> None:
    assert findings_of([]) == ()
    assert findings_of(ranks(WAIT, WAIT, WAIT)) == ()
    assert findings_of(ranks(LOAD, LOAD)) == ()
    assert findings_of(ranks(CODE, CODE, CODE, WAIT)) == ()


def test_a_rank_that_moves_is_said_to_and_is_less_sure() -> None:
    first, second = ranks(SAVE, WAIT, WAIT), ranks((Frame("_write", "torch/serialization.py", 901), *SAVE), WAIT, WAIT)
    moving, frozen, once = findings_of(first, second)[0], findings_of(first, first)[0], findings_of(first)[0]
    assert "still moving" in moving.sentence
    assert [one.grade for one in (moving, frozen, once)] == [Grade.MODERATE, Grade.STRONG, Grade.MODERATE]
    assert [one.is_frozen for one in doing_of(first, second)] == [False, True, True]


def test_each_place_is_a_finding_of_its_own() -> None:
    found = findings_of(ranks(WAIT, WAIT, LOAD, SAVE, WAIT))
    assert sorted(one.culprits for one in found) == [(2,), (3,)]


def test_a_process_that_could_not_be_read_is_neither_waiting_nor_elsewhere() -> None:
    silent = Process(3, 103, "python", (), silent="no permission")
    assert findings_of([*ranks(WAIT, WAIT, LOAD), silent])[0].culprits == (2,)
    assert doing_of([silent]) == []


@pytest.mark.parametrize(
    ("path", "short"),
    [
        ("/usr/lib/python3.11/site-packages/torch/nn/x.py", "torch/nn/x.py"),
        ("/usr/local/lib/python3.11/socket.py", "socket.py"),
        ("/srv/job/train.py", "/srv/job/train.py"),
    ],
)
def test_files_are_named_from_their_package_on(path: str, short: str) -> None:
    assert short_file(path) == short


@pytest.mark.parametrize("raw", [b"", b"{}", b"[1]", b'[{"frames": 1}]', b"hello", b"[" * 100_000, b"\xff\xfe"])
def test_what_is_no_dump_is_refused_in_a_sentence(raw: bytes) -> None:
    with pytest.raises(BadStacks):
        read_stacks(raw, 0)


@settings(max_examples=200, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["frames", "name", "line", "thread_name", "pid"]), inner, max_size=4)
        ),
        max_leaves=20,
    )
)
def test_any_json_gives_a_process_or_a_sentence(said: Any) -> None:  # fmt: skip
    try:
        process = read_stacks(json.dumps(said).encode(), 0)
    except BadStacks:
        return
    assert process.kind
    classes_of([process])


def test_what_cannot_be_printed_or_stored_is_not_kept_of_names() -> None:
    raw = b'[{"thread_name": "MainThread", "frames": [{"name": "f\\u0000\\ud800", "filename": "a\\n.py", "line": 1}]}]'
    assert read_stacks(raw, 0, 1, "python\0-m x").main == (Frame("f  ", "a .py", 1),)
    assert read_stacks(raw, 0, 1, "python\0-m x").command == "python -m x"
