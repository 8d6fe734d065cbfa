"""What a recorder writes is what the agent reads, whatever happens between: late readers, torn files, deaths, other schemas."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nccl_instrument import stage_ring
from nccl_instrument.agent.processes.trainer import Bookmark
from nccl_instrument.agent.sending.bookmarks import load_bookmarks, save_bookmarks
from nccl_instrument.agent.stages import files as stage_files
from nccl_instrument.agent.stages.declared import Declaration
from nccl_instrument.agent.stages.files import StageFiles
from nccl_instrument.stage_records import Counts, SideRecord, StepRecord
from nccl_instrument.stage_ring import DECLARED, DECLARED_AT, SLOT_BYTES, SLOTS_AT, Ring
from nccl_instrument.stage_schema import BACKWARD, DATA, DEFAULT, FORWARD, OPTIMIZER, Schema
from nccl_instrument.stages import Stages
from nccl_instrument.tables import LOSSES, NOT_READY, ROADS
from nccl_instrument.wire import Rows

from .conftest import Node
from .scripted_server import wait_until

DURATIONS = (5, 20, 30, 1, 8, 2)


class Desk:
    """A recorder's ring and the agent's reader of it, in one process."""

    def __init__(self, folder: Path, n_slots: int = 64, schema: Schema = DEFAULT, **options: object) -> None:
        self.folder, self.lost = folder, Counter[str]()
        self.stages = Stages(schema, **options)  # type: ignore[arg-type]
        self.ring = Ring(self.stages, folder, n_slots)
        self.files = StageFiles([folder], self._count)

    def read_anew(self, *bookmarks: dict[str, Bookmark]) -> None:
        """Another agent takes over."""
        self.files.close()
        self.files = StageFiles([self.folder], self._count, *bookmarks)

    def close(self) -> None:
        self.files.close()
        os.close(self.ring._file)  # a trainer never does: here its descriptors would be those of all tests

    def _count(self, job: str, kind: str, n: int, pid: int) -> None:
        self.lost[kind] += n

    def write(self, first: int, n: int, schema: Schema = DEFAULT) -> None:
        for step in range(first, first + n):
            durations = tuple(range(step, step + len(schema.stages)))
            record = StepRecord(step, sum(durations), durations, 0, 0, 1, time.monotonic_ns())
            self.ring.step(record, schema)
            self.ring.ended(step)

    def read(self) -> dict[str, Rows]:
        self.files.look()
        return self.files.tables("job", time.monotonic_ns())


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {"DIOGENES_JOB": "job", "RANK": "3", "WORLD_SIZE": "8"}.items():
        monkeypatch.setenv(name, value)
    # A process does not see its own record locks: here writer and reader are one. The last test has them apart.
    monkeypatch.setattr(stage_files, "is_alive", lambda file: True)
    return tmp_path


@pytest.fixture
def desk(folder: Path) -> Iterator[Desk]:
    desk = Desk(folder, role="pp0")
    yield desk
    desk.close()


def test_every_step_is_read_once_and_in_order(desk: Desk) -> None:
    desk.write(0, 5)
    first = desk.read()["stage"]
    desk.write(5, 7)
    second = desk.read()["stage"]
    assert first["step"].tolist() + second["step"].tolist() == list(range(12))
    assert first["durations_ns"][2].tolist() == [2, 3, 4, 5, 6, 7, 0, 0]
    assert set(first["global_rank"].tolist()) == {3} and set(first["pid"].tolist()) == {os.getpid()}
    assert len(desk.read()["stage"]) == 0
    assert not desk.lost


def test_who_records_is_said_every_time_and_what_its_stages_are(desk: Desk) -> None:
    desk.stages.counts.nested = 4
    desk.write(0, 1)
    tables = desk.read()
    (who,) = tables["recorder"]
    assert (who["global_rank"], who["world_size"], who["role"], ROADS[who["road"]]) == (3, 8, b"pp0", "agent")
    assert (who["nested"], who["schema"]) == (4, DEFAULT.schema_id)
    assert [name.decode() for name in tables["schema"]["name"]] == list(DEFAULT.stages)
    assert set(tables["schema"]["order_hash"].tolist()) == {DEFAULT.order_hash}
    assert tables["stage"]["schema"].tolist() == [DEFAULT.schema_id]


def test_a_late_reader_has_the_newest_and_counts_the_rest(desk: Desk) -> None:
    desk.write(0, 10)
    desk.read()
    desk.write(10, 200)
    tables = desk.read()
    assert tables["stage"]["step"].tolist() == list(range(146, 210))
    assert desk.lost == {"stage_records": 136}
    assert tables["recorder"]["dropped"].tolist() == [136]


def test_a_schema_of_many_stages_takes_several_rows_and_a_changed_one_is_declared(desk: Desk) -> None:
    wide = DEFAULT.accumulated(4)
    desk.write(0, 2)
    desk.write(2, 2, wide)
    tables = desk.read()
    stage = tables["stage"]
    assert stage[stage["step"] == 3]["part"].tolist() == [0, 1]
    joined = stage[stage["step"] == 3]["durations_ns"].reshape(-1)[: len(wide.stages)]
    assert joined.tolist() == list(range(3, 3 + len(wide.stages)))
    assert set(tables["schema"]["schema"].tolist()) == {DEFAULT.schema_id, wide.schema_id}
    of_wide = tables["schema"][tables["schema"]["schema"] == wide.schema_id]
    assert of_wide["micro"].tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, -1, -1, -1]
    assert set(of_wide["parent"].tolist()) == {DATA.encode(), FORWARD.encode(), BACKWARD.encode(), b""}
    assert set(of_wide["micro_steps"].tolist()) == {4}


def test_more_schemas_than_are_declared_at_once_are_still_read_as_they_come(desk: Desk) -> None:
    for n in range(1, 30):
        schema = Schema(tuple(f"part.{k}.{'x' * 30}" for k in range(n)))
        desk.write(n, 1, schema)
        tables = desk.read()
        assert schema.schema_id in tables["schema"]["schema"].tolist(), n


def test_side_channels_come_with_their_step_and_say_when_nothing_came(desk: Desk) -> None:
    schema = DEFAULT.with_side("h2d.copy", DATA)
    desk.ring.knows(schema)
    for value_ns in (500, NOT_READY):
        desk.ring.side(SideRecord(7, 0, value_ns, time.monotonic_ns()), schema)
    tables = desk.read()
    assert tables["side"][["step", "channel", "value_ns"]].tolist() == [(7, 0, 500), (7, 0, -1)]
    assert tables["schema"][tables["schema"]["kind"] == 1]["name"].tolist() == [b"h2d.copy"]


def test_a_torn_slot_is_left_out_and_counted(desk: Desk) -> None:
    desk.write(0, 3)
    with desk.ring.path.open("r+b") as other:  # closing it frees the lock, which does not matter here
        other.seek(SLOTS_AT + SLOT_BYTES + 50)
        other.write(b"\xff")
    assert desk.read()["stage"]["step"].tolist() == [0, 2]
    assert desk.lost == {"stage_records": 1}


@pytest.mark.parametrize("seed", range(40))
def test_no_content_of_the_file_upsets_the_agent(folder: Path, seed: int) -> None:
    """A segment of shared memory is the trainer's: any byte of it may be anything."""
    draw, desk = random.Random(seed), Desk(folder)
    desk.write(0, 70)
    raw = bytearray(desk.ring.path.read_bytes())
    for _ in range(draw.choice([1, 5, 200])):
        raw[draw.choice([draw.randrange(136), draw.randrange(400), draw.randrange(len(raw))])] = draw.randrange(256)
    if draw.random() < 0.3:
        raw = raw[: draw.randrange(len(raw))]
    desk.ring.path.write_bytes(raw)
    for _ in range(2):
        desk.read()
        desk.files.retire()
    desk.files.close()


HOSTILE = [
    b"[]", b"{}", b"nonsense", b'{"schemas":[]}', b"[" * 5000,
    {"rank": 2**40}, {"rank": "0"}, {"schemas": [{"stages": ["a", "a"]}]}, {"job": ""}, {"job": "a\nb"}, {"pid": -1},
    {"schemas": [{"stages": ["a"], "sides": [], "parents": [[1]], "micro_steps": 1, "version": 1}]},
    {"schemas": [{"stages": ["a[40000]"], "sides": [], "parents": [], "micro_steps": 1, "version": 1}]},
]  # fmt: skip


@pytest.mark.parametrize("hostile", HOSTILE, ids=str)
def test_a_declaration_that_makes_no_sense_is_passed_over(folder: Path, hostile: bytes | dict[str, object]) -> None:
    desk = Desk(folder)
    if isinstance(hostile, dict):
        length, _ = DECLARED.unpack_from(desk.ring._memory, DECLARED_AT)
        at = DECLARED_AT + DECLARED.size
        hostile = json.dumps({**json.loads(desk.ring._memory[at : at + length]), **hostile}).encode()
    said = DECLARED.pack(len(hostile), zlib.crc32(hostile)) + hostile
    desk.ring._memory[DECLARED_AT : DECLARED_AT + len(said)] = said
    assert desk.read() == {}
    assert desk.lost == {"segments_unreadable": 1}
    assert desk.read() == {} and desk.lost.total() == 1
    desk.files.close()


def test_a_declaration_that_makes_no_sense_any_more_ends_its_file_alone(desk: Desk) -> None:
    other = Ring(Stages(), desk.folder, 64)
    desk.write(0, 2)
    assert len(desk.read()["recorder"]) == 2
    said = DECLARED.pack(2, zlib.crc32(b"{}")) + b"{}"
    other._memory[DECLARED_AT : DECLARED_AT + len(said)] = said
    desk.write(2, 2)
    tables = desk.read()
    assert (tables["stage"]["step"].tolist(), len(tables["recorder"])) == ([2, 3], 1)
    assert desk.lost == {"segments_unreadable": 1}


def test_a_file_that_is_cut_while_it_is_looked_at_or_read_ends_alone(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut, known = Ring(Stages(), desk.folder, 64).path, stage_files.n_slots_of

    def cut_behind(file: int) -> int:
        found = known(file)
        if os.fstat(file).st_ino == cut.stat().st_ino:
            os.truncate(cut, 0)
        return found

    monkeypatch.setattr(stage_files, "n_slots_of", cut_behind)
    desk.write(0, 2)
    assert desk.read()["stage"]["step"].tolist() == [0, 1]
    assert desk.lost == {"segments_unreadable": 1}
    os.truncate(desk.ring.path, 100)
    assert desk.read() == {}
    assert desk.lost == {"segments_unreadable": 2}


def test_what_nobody_foresaw_in_a_file_ends_its_reading_alone(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of fixed width refuse numbers in many ways: none of them may end the agent."""
    Ring(Stages(DEFAULT, role="odd"), desk.folder, 64)
    known = stage_files.recorder_rows

    def refuses(said: Declaration, *rest: Any) -> Rows:
        return np.int16(40000) if said.role == b"odd" else known(said, *rest)  # type: ignore[return-value]

    monkeypatch.setattr(stage_files, "recorder_rows", refuses)
    desk.write(0, 2)
    assert desk.read()["stage"]["step"].tolist() == [0, 1]
    assert desk.lost == {"segments_unreadable": 1}


@pytest.mark.parametrize("durations", [(-1, 0, 0, 0, 0, 0), (2**62, 0, 0, 0, 0, 0)], ids=str)
def test_a_step_that_cannot_be_is_left_out_and_counted(desk: Desk, durations: tuple[int, ...]) -> None:
    desk.write(0, 1)
    desk.ring.step(StepRecord(1, 0, durations, 0, 0, 1, time.monotonic_ns()), DEFAULT)
    desk.write(2, 1)
    assert desk.read()["stage"]["step"].tolist() == [0, 2]
    assert desk.lost == {"stage_records": 1}


def test_the_next_agent_goes_on_where_the_last_one_stopped(desk: Desk, tmp_path: Path) -> None:
    """What was delivered is neither repeated nor counted as lost once newer steps lie in its place."""
    desk.write(0, 50)
    desk.read()
    save_bookmarks(tmp_path, desk.files.bookmarks(), 1)
    desk.write(50, 70)
    desk.read_anew(load_bookmarks(tmp_path)[0])
    tables = desk.read()
    assert tables["stage"]["step"].tolist() == list(range(56, 120))
    assert desk.lost == {"stage_records": 6}
    assert tables["recorder"]["dropped"].tolist() == [6]


def test_a_bookmark_of_another_file_by_the_same_name_means_nothing(desk: Desk) -> None:
    desk.write(0, 5)
    desk.read()
    ((name, mark),) = desk.files.bookmarks().items()
    for other in (replace(mark, inode=mark.inode + 1), replace(mark, position=6), replace(mark, position=-1)):
        desk.read_anew({name: other})
        assert desk.read()["stage"]["step"].tolist() == [0, 1, 2, 3, 4]
    assert not desk.lost


def test_every_count_of_the_recorder_reaches_the_row(desk: Desk) -> None:
    names = [name for name in Counts.__dataclass_fields__ if name != "steps"]
    for n, name in enumerate(names):
        setattr(desk.stages.counts, name, 10 + n)
    desk.ring.ended(0)
    (row,) = desk.read()["recorder"]
    assert [int(row[name]) for name in names] == [10 + n for n in range(len(names))]


def test_no_room_no_right_no_folder_and_the_trainer_never_notices(tmp_path: Path) -> None:
    stages = Stages()
    assert stage_ring.open_road(stages, tmp_path / "missing") is None
    with stages.step(), stages.stage(FORWARD):
        pass
    assert len(stages.take()) == 1


def test_a_sink_that_fails_costs_a_record_and_not_a_step() -> None:
    class Broken:
        def step(self, record: StepRecord, schema: Schema) -> None:
            raise OSError("full")

        def side(self, record: SideRecord, schema: Schema) -> None:
            raise ValueError

        def ended(self, step: int) -> None:
            raise KeyError

    stages = Stages(DEFAULT.with_side("probe"))
    stages.send_to(Broken())
    with stages.step(), stages.side("probe"):
        pass
    assert (stages.counts.steps, stages.counts.dropped) == (1, 2)


PROGRAM = """
import os, sys, time
from nccl_instrument import stage_ring
from nccl_instrument.agent.stages import files as stage_files
from nccl_instrument.stage_schema import BACKWARD, DATA, FORWARD, OPTIMIZER
from nccl_instrument.stages import Stages
stages = Stages()
assert stage_ring.open_road(stages)
if not os.fork():
    with stages.step(): pass   # a forked child writes nothing into its parent's memory
    os._exit(0)
os.wait()
print("ready", flush=True)
for line in sys.stdin:
    for _ in range(int(line)):
        with stages.step():
            for name in (DATA, FORWARD, BACKWARD, OPTIMIZER):
                with stages.stage(name):
                    time.sleep(0.001)
"""


class Trainer:
    """A training program that only records its stages."""

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir(exist_ok=True)
        surroundings = {
            **os.environ, "DIOGENES_JOB": "job", "RANK": str(rank), "WORLD_SIZE": "2", "DIOGENES_SEGMENT_DIR": str(folder),
        }  # fmt: skip
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe, env=surroundings, text=True
        )
        assert self.process.stdout is not None and self.process.stdout.readline() == "ready\n"

    def steps(self, n: int) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{n}\n")
        self.process.stdin.flush()

    def end(self, number: int = 0) -> None:
        if number:
            self.process.send_signal(number)
        if self.process.poll() is None:
            self.process.communicate()


def test_steps_of_real_processes_reach_the_server_and_their_files_go_when_they_end(node: Node) -> None:
    trainers = [Trainer(node.segments, rank) for rank in range(2)]
    node.start_agent()
    for trainer in trainers:
        trainer.steps(20)
    wait_until(lambda: len(node.rows("stage")) == 40, 20)
    rows = node.rows("stage")
    assert sorted(zip(rows["global_rank"].tolist(), rows["step"].tolist(), strict=True)) == [
        (rank, step) for rank in range(2) for step in range(20)
    ]
    four = [DEFAULT.stages.index(name) for name in (DATA, FORWARD, BACKWARD, OPTIMIZER)]
    assert (rows["durations_ns"][:, four] >= 1_000_000).all()
    assert np.unique(node.rows("comm")["global_rank"]).tolist() == [0, 1]
    trainers[0].steps(3)
    trainers[0].end()
    trainers[1].end(signal.SIGKILL)
    wait_until(lambda: not list(node.segments.glob("diogenes-stages.*")), 20)
    wait_until(lambda: len(node.rows("stage")) == 43, 20)  # a file goes when it is read, its rows with the next batch
    assert LOSSES.index("stage_records") not in node.rows("loss")["kind"].tolist()
