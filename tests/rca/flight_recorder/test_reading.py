"""A dump of any version and backend is read, and hostile bytes end in one sentence."""

from __future__ import annotations

import json
import pickle
import struct
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rca.flight_recorder import sandbox
from rca.flight_recorder.columns import COMPLETED, STARTED
from rca.flight_recorder.reading import BadDump, rank_in_name
from rca.flight_recorder.recording import Recording
from rca.flight_recorder.sandbox import read_dumps
from tests.rca.flight_recorder.here import read_dump
from tests.rca.flight_recorder.real import RANKS, dumps_of

DUMP = dict(dumps_of("loader"))["loader_host-0"]


def old_entry(**changes: Any) -> dict[str, Any]:
    """As torch 2.4 wrote them, with NCCL."""
    return {
        "record_id": 0, "pg_id": 0, "process_group": ("0", "default_pg"), "collective_seq_id": 1, "p2p_seq_id": 0, "op_id": 1,
        "profiling_name": "nccl:all_reduce", "time_created_ns": 5, "input_sizes": ((4,),), "output_sizes": ((4,),),
        "state": "completed", "time_discovered_started_ns": 6, "time_discovered_completed_ns": 7, "retired": True,
        "timeout_ms": 600000, "is_p2p": False, "frames": [], **changes,
    }  # fmt: skip


def packed(*entries: dict[str, Any], **top: Any) -> bytes:
    return pickle.dumps({"version": "2.4", "pg_config": {}, "entries": list(entries), **top}, protocol=4)


@pytest.mark.parametrize(
    ("name", "rank"),
    [("nccl_trace_rank_7", 7), ("gpu-b12_3", 3), ("dump.0", 0), ("x15.json", 15), ("a/b-2.pickle", 2), ("00012", 12)],
)
def test_the_rank_is_what_the_name_ends_with(name: str, rank: int) -> None:
    assert rank_in_name(name) == rank


def test_a_name_without_a_rank_is_refused() -> None:
    with pytest.raises(BadDump, match="does not end with a rank"):
        rank_in_name("trace.json")


def test_a_real_gloo_dump_has_groups_by_name_and_tells_what_is_over() -> None:
    found = read_dump(DUMP, 0)
    assert {group.name: group.what for group in found.groups} == {"1": "tp0", "3": "dp0", "5": "a", "6": "b"}
    assert found.versions == ("2.10",)
    assert (~found.entries["is_finished"]).sum() == 1
    last = found.entries[-1]
    assert (found.names[last["name"]], int(last["seq"])) == ("gloo:all_reduce", 21)
    assert found.places[last["place"]].endswith("job.py:31 in step_of")
    assert found.shapes[last["shape"]] == "1000 Float"


def test_json_says_the_same_as_the_pickle_but_where_it_was_called() -> None:
    pickled, text = (read_dumps(dumps_of("loader", is_json=is_json)) for is_json in (False, True))
    assert pickled.ranks == text.ranks == RANKS
    assert not text.refused
    for column in ("rank", "seq", "is_finished", "created_ns", "state"):
        assert np.array_equal(pickled.entries[column], text.entries[column]), column


def test_an_old_nccl_dump_is_over_when_its_state_says_so() -> None:
    running = old_entry(
        record_id=1, collective_seq_id=2, state="started", retired=False, time_discovered_completed_ns=None
    )
    found = read_dump(packed(old_entry(), running), 3)
    assert found.entries["state"].tolist() == [COMPLETED, STARTED]
    assert found.entries["is_finished"].tolist() == [True, False]
    assert found.entries["completed_ns"].tolist() == [7, -1]


def test_members_are_read_from_the_configuration() -> None:
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}
    assert read_dump(packed(old_entry(), pg_config=config), 0).groups[0].ranks == (0, 1, 2)


def test_a_dump_without_entries_is_a_rank_that_was_heard() -> None:
    assert read_dump(json.dumps({"version": "2.10", "pg_config": {}}).encode(), 5).ranks == (5,)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "empty"),
        (b"cos\nsystem\n(S'ls'\ntR.", "os.system"),
        (b"\x80\x02P1\n.", "not a complete pickle|outside itself"),
        (pickle.dumps([1, 2]), "no Flight Recorder dump"),
        (pickle.dumps({"version": "2.10", "entries": [1]}), "not a list of records"),
        (b'{"entries": [', "not complete JSON"),
        (b"[" * 100_000, "nested too deep|not complete JSON"),
        (b"\x80\x02" + b"(" * 10 + b"." * 3, "not a complete pickle"),
        (packed(old_entry(record_id=2**70)), "cannot be true"),
    ],
)
def test_what_is_no_dump_is_refused_in_a_sentence(raw: bytes, why: str) -> None:
    with pytest.raises(BadDump, match=why):
        read_dump(raw, 0)


@pytest.mark.parametrize("value", [None, "x", -5, 1.5, [], {}, b"\xff", [[[]]] * 3, True, "9" * 5000, "²", "--5", "٣"])
@pytest.mark.parametrize("field", list(old_entry()))
def test_a_field_of_another_type_breaks_nothing(field: str, value: Any) -> None:
    found = read_dump(packed(old_entry(), old_entry(**{field: value})), 0)
    assert len(found.entries) == 2


def test_a_pickle_of_a_few_bytes_that_asks_for_gigabytes_is_refused() -> None:
    with pytest.raises(BadDump, match="more memory"):
        read_dump(b"\x80\x02Nr\xff\xff\xff\x7f.", 0)  # a memo of 2^31 places


@settings(max_examples=150, deadline=None)
@given(st.integers(0, len(DUMP)), st.binary(min_size=1, max_size=6))
def test_changed_bytes_give_a_recording_or_a_sentence(at: int, new: bytes) -> None:
    try:
        read_dump(DUMP[:at] + new + DUMP[at + len(new) :], 0)
    except BadDump as error:
        assert str(error)


def test_entries_that_differ_in_what_they_say_are_read_like_the_others() -> None:
    group, sizes = ["1", "tp0"], {"input_sizes": [[8]], "input_dtypes": ["Float"]}
    frames = [
        {"name": "wait", "filename": "/lib/torch/distributed/c10d.py", "line": 5},
        {"name": "step", "filename": "t.py", "line": 7},
    ]
    mine = [
        old_entry(),
        old_entry(process_group=group, p2p_seq_id=9, is_p2p=True),
        old_entry(**sizes, frames=frames, state="started"),
    ]
    del mine[0]["retired"], mine[1]["time_created_ns"]
    found = read_dump(packed(*mine), 2)
    assert [found.groups[at].name for at in found.entries["group"]] == ["0", "1", "0"]
    assert found.entries["seq"].tolist() == [1, 9, 1]
    assert found.entries["created_ns"].tolist() == [5, -1, 5]
    assert found.entries["is_finished"].tolist() == [True, True, True]  # the last is retired
    assert [found.shapes[at] for at in found.entries["shape"]] == ["4", "4", "8 Float → 4"]
    assert [found.places[at] for at in found.entries["place"]] == ["", "", "t.py:7 in step"]


def test_the_process_that_reads_dumps_starts_without_numpy() -> None:
    code = "import sys, rca.flight_recorder.reader; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_a_dump_that_asks_for_all_memory_ends_its_reader_only() -> None:
    bomb = b"\x80\x02}r" + struct.pack("<I", 0xFFFFFFF0) + b"."
    found = read_dumps([("bomb-9", bomb), *dumps_of("loader"), ("global-8", b"cos\nsystem\n(S'ls'\ntR.")])
    assert found.ranks == RANKS
    assert found.refused.keys() == {"bomb-9", "global-8"}
    assert "memory" in found.refused["bomb-9"]


def test_a_dump_that_takes_too_long_is_refused_alone_and_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "CPU_SECONDS", 1)
    monkeypatch.setattr(sandbox, "_too_much", {})
    colliding = [b"\x8a\x0c" + (at * (2**61 - 1)).to_bytes(12, "little") + b"N" for at in range(1, 60_000)]
    dumps = [("slow-9", b"\x80\x04}(" + b"".join(colliding) + b"u."), *dumps_of("loader")]
    started: list[Any] = []
    run = sandbox._run_reader

    def counted(*asked: Any) -> list[Recording]:
        started.append(asked)
        return run(*asked)

    monkeypatch.setattr(sandbox, "_run_reader", counted)
    for n_started in (2, 3):
        found = read_dumps(dumps)
        assert (found.ranks, found.refused) == (RANKS, {"slow-9": sandbox.TOO_MUCH})
        assert len(started) == n_started


def test_when_the_time_for_all_is_over_the_rest_is_refused_and_said_to_be() -> None:
    found = read_dumps(dumps_of("loader"), seconds=0.0)
    assert found.ranks == () and len(found.refused) == 4
    assert "time for reading" in next(iter(found.refused.values()))


def test_of_two_dumps_of_a_rank_the_later_counts() -> None:
    early = packed(old_entry())
    late = packed(old_entry(), old_entry(record_id=1, collective_seq_id=2, time_created_ns=9))
    for order in ([("a-1", early), ("b-1", late)], [("a-1", late), ("b-1", early)]):
        assert len(read_dumps(order).entries) == 2
