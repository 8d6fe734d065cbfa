"""A gather brings every rank's steps to one, and one that fails, is late or garbled costs no step and no training.

The carrier is scripted here, because a network that is late at a chosen moment cannot be ordered from gloo; the last test
runs the whole way over live gloo.
"""

from __future__ import annotations

import ctypes
import json
import shutil
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nccl_instrument import stage_gather
from nccl_instrument.agent.stages import files as stage_files
from nccl_instrument.agent.stages.files import StageFiles
from nccl_instrument.stage_gather import PENDING_MAX, Gather, open_gather
from nccl_instrument.stage_ring import ROAD_GATHER, SLOT, Ring
from nccl_instrument.stage_schema import FORWARD
from nccl_instrument.stages import Stages
from nccl_instrument.tables import EVENT_SCOPE_LIMITED, GATHER_FAILED, GATHERED
from nccl_instrument.wire import Rows
from tests.eval.stages_job import PYTHON, run_job, surroundings

WINDOW = 4


class Packet:
    """As a tensor of bytes."""

    def __init__(self, raw: bytes) -> None:
        self._raw = ctypes.create_string_buffer(raw, len(raw))
        self.raw = raw

    def data_ptr(self) -> int:
        return ctypes.addressof(self._raw)

    def numel(self) -> int:
        return len(self.raw)


@dataclass
class Scripted:
    """Ranks 1 and 2 send what rank 0 does, under their own names. fate: of each gather in order, what happens to it.

    ahead_ns: of their wall clocks, before ours; booted_ns: their monotonic clocks, before ours; roles: what they play."""

    rank: int = 0
    n_ranks: int = 3
    fate: dict[int, str] = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)
    ahead_ns: int = 0
    booted_ns: int = 0
    roles: dict[int, tuple[bytes, int]] = field(default_factory=dict)

    def start(self, packet: bytes) -> tuple[Any, Any, list[Any]]:
        n = len(self.sent)
        self.sent.append(packet)
        if self.fate.get(n) == "refused":
            raise RuntimeError("no connection")
        packets = [Packet(self._of(packet, rank, self.fate.get(n, ""))) for rank in range(self.n_ranks)]
        return n, None, packets if self.rank == 0 else []

    def is_done(self, started: Any) -> bool:
        if self.fate.get(started) == "failed":
            raise RuntimeError("connection reset")
        return self.fate.get(started) != "late"

    def _of(self, packet: bytes, rank: int, fate: str) -> bytes:
        magic, window, _, n, wall_ns, mono_ns, _, *who = stage_gather._HEAD.unpack_from(packet)
        slots = [SLOT.unpack_from(packet, stage_gather._HEAD.size + at * SLOT.size) for at in range(n)]
        if rank:
            slots = [(slot[0], slot[1] + self.booted_ns, *slot[2:]) for slot in slots]
            wall_ns, mono_ns = wall_ns + self.ahead_ns, mono_ns + self.booted_ns
            who = [*self.roles.get(rank, who[:2]), who[2]]
        said = packet[stage_gather._HEAD.size + n * SLOT.size :][: who[2]]
        raw = b"".join(SLOT.pack(*slot[:13], rank, *slot[14:]) for slot in slots) + said
        window += fate == "garbled" and rank == 2
        check = stage_gather.zlib.crc32(raw)
        return stage_gather._HEAD.pack(magic, window, rank, n, wall_ns, mono_ns, check, *who) + raw


class Desk:
    def __init__(self, folder: Path, carrier: Scripted, *, room: int = 64) -> None:
        self.stages = Stages()
        ring = Ring(self.stages, folder, 4096, ROAD_GATHER)
        self.carrier = carrier
        self.gather = Gather(self.stages, carrier, ring, WINDOW, room)  # type: ignore[arg-type]
        self.stages.send_to(self.gather)
        self.files = StageFiles([folder], lambda *_: None)

    def steps(self, n: int) -> None:
        for _ in range(n):
            with self.stages.step(), self.stages.stage(FORWARD):
                pass

    def rows(self, table: str = "stage") -> Rows:
        self.files.look()
        return self.files.tables("job", time.monotonic_ns())[table]


@pytest.fixture(autouse=True)
def _one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"DIOGENES_JOB": "job", "RANK": "0", "WORLD_SIZE": "3"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(stage_files, "is_alive", lambda file: True)


def said(rows: Rows) -> set[tuple[int, int, int]]:
    return set(zip(rows["global_rank"].tolist(), rows["step"].tolist(), rows["flags"].tolist(), strict=True))


def test_every_rank_of_a_window_arrives_at_the_gathering_one(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Scripted())
    desk.steps(2 * WINDOW + 1)
    assert said(desk.rows()) == {(rank, step, GATHERED) for rank in range(3) for step in range(2 * WINDOW)}
    assert (desk.stages.counts.gathers, desk.stages.counts.gathers_failed) == (2, 0)


def test_the_others_send_and_keep_nothing(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Scripted(rank=1))
    desk.steps(3 * WINDOW)
    assert len(desk.rows()) == 0 and len(desk.carrier.sent) == 3


@pytest.mark.parametrize("fate", ["late", "failed", "refused", "garbled"])
def test_a_gather_that_comes_to_nothing_leaves_the_own_steps_marked(tmp_path: Path, fate: str) -> None:
    desk = Desk(tmp_path, Scripted(fate={1: fate}))
    desk.steps(3 * WINDOW + 1)
    rows = desk.rows()
    second = rows[(rows["step"] >= WINDOW) & (rows["step"] < 2 * WINDOW)]
    assert said(second) == {(0, step, GATHER_FAILED) for step in range(WINDOW, 2 * WINDOW)}
    assert desk.stages.counts.gathers_failed >= 1
    first = rows[rows["step"] < WINDOW]
    assert len(first) == 3 * WINDOW
    assert desk.stages.counts.steps == 3 * WINDOW + 1


def test_with_too_many_under_way_nobody_is_asked_any_more(tmp_path: Path) -> None:
    late = dict.fromkeys(range(100), "late")
    desk = Desk(tmp_path, Scripted(fate=late))
    desk.steps(20 * WINDOW)
    assert len(desk.carrier.sent) == PENDING_MAX
    assert desk.stages.counts.gathers == desk.stages.counts.gathers_failed == 20
    assert said(desk.rows()) == {(0, step, GATHER_FAILED) for step in range(20 * WINDOW)}


def test_a_window_ends_at_the_same_step_on_every_rank_whatever_breaks_in_it(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Scripted())
    desk.steps(WINDOW - 1)
    with pytest.raises(KeyError), desk.stages.step():
        raise KeyError
    assert len(desk.carrier.sent) == 1


def test_more_than_there_is_room_for_is_dropped_and_counted(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Scripted(), room=3)
    desk.steps(WINDOW)
    assert desk.stages.counts.dropped == 1


@pytest.mark.parametrize("ahead_s", [0, 3, -3, 3600, -3600])
def test_clocks_of_other_nodes_are_turned_into_our_own(tmp_path: Path, ahead_s: int) -> None:
    """Another node's monotonic clock began when that node did; its wall clock may be an hour ahead, which is not believed."""
    desk = Desk(tmp_path, Scripted(ahead_ns=ahead_s * 10**9, booted_ns=7 * 10**15))
    desk.steps(WINDOW + 1)
    ended_s = {rank: set(rows["ended_ns"] // 10**9) for rank, rows in by_rank(desk.rows()).items()}
    off_s = ahead_s if abs(ahead_s) <= 5 else 0
    now_s = time.monotonic_ns() // 10**9
    assert max(abs(second - now_s) for second in ended_s[0]) <= 2
    assert max(abs(second - off_s - now_s) for rank in (1, 2) for second in ended_s[rank]) <= 2


def by_rank(rows: Rows) -> dict[int, Rows]:
    return {rank: rows[rows["global_rank"] == rank] for rank in range(3)}


def test_the_roles_of_gathered_ranks_come_too(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Scripted(roles={1: (b"pp1", 0), 2: (b"pp1", EVENT_SCOPE_LIMITED)}))
    desk.stages.role = "pp0"
    desk.steps(WINDOW + 1)
    rows = desk.rows("recorder")
    assert list(zip(rows["global_rank"].tolist(), rows["role"].tolist(), rows["flags"].tolist(), strict=True)) == [
        (0, b"pp0", 0), (1, b"pp1", 0), (2, b"pp1", EVENT_SCOPE_LIMITED),
    ]  # fmt: skip
    assert rows["pid"][1:].tolist() == [-1, -1] and set(rows["world_size"].tolist()) == {3}


def test_more_roles_than_there_is_room_for_are_not_told(tmp_path: Path) -> None:
    desk = Desk(tmp_path, Scripted())
    assert desk.gather.ring is not None
    desk.gather.ring.brings({rank: (f"stage {rank}", 0) for rank in range(1, 1000)})
    desk.steps(1)
    assert desk.rows("recorder")["global_rank"].tolist() == [0]


def test_without_torch_there_is_no_gather_and_no_trouble() -> None:
    stages = Stages()
    assert open_gather(stages) is None
    assert stages.counts.gathers_failed == 1


@pytest.mark.skipif(not PYTHON.exists(), reason="torch is not installed")
def test_over_live_gloo_rank_0_has_what_all_recorded(tmp_path: Path) -> None:
    segments = tmp_path / "segments"
    segments.mkdir()
    options = ("--ranks", "3", "--steps", "12", "--warmup", "3", "--road", "gather", "--gather-steps", "5")
    made = run_job(
        tmp_path,
        *options,
        "--base-ms",
        "20",
        "--event-share",
        "0.2",
        DIOGENES_SEGMENT_DIR=str(segments),
        DIOGENES_JOB="job",
    )
    files = StageFiles([segments], lambda *_: None)
    files.look()
    tables = files.tables("job", time.monotonic_ns())
    files.close()
    assert said(tables["stage"]) == {(rank, step, GATHERED) for rank in range(3) for step in range(15)}
    assert [counts["gathers_failed"] for counts in made.counts] == [0, 0, 0]
    gathered = tables["stage"][tables["stage"]["step"] >= 3]
    order = np.lexsort((gathered["global_rank"], gathered["step"]))
    durations = gathered["durations_ns"][order].reshape(12, 3, 8)[:, :, :6] / 1e9
    assert np.array_equal(durations, made.durations_s)
    assert len(tables["side"]) == 9
    shutil.rmtree(segments)


@pytest.mark.skipif(not PYTHON.exists(), reason="torch is not installed")
@pytest.mark.parametrize("how", ["schema", "steps", "leaves"])
def test_ranks_that_do_not_record_alike_end_nobodys_training(tmp_path: Path, how: str) -> None:
    """Buffers of different sizes would end the process from a thread of gloo's own."""
    program = Path(__file__).with_name("gathering.py")
    done = subprocess.run(
        [str(PYTHON), str(program), str(tmp_path), how],
        env=surroundings(DIOGENES_SEGMENT_DIR=str(tmp_path)), capture_output=True, text=True, check=False, timeout=55,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    first, second = sorted((json.loads(line) for line in done.stdout.splitlines()), key=lambda one: one["rank"])
    assert first["steps"] == 35 and second["steps"] == (23 if how == "leaves" else 35)
    if how == "steps":
        assert (first["gathers"], second["gathers"]) == (False, False) and first["failed"] == second["failed"] == 1
        return
    assert first["gathers"] and second["gathers"]
    files = StageFiles([tmp_path], lambda *_: None)
    files.look()
    tables = files.tables("job", time.monotonic_ns())
    files.close()
    rows = tables["stage"]
    of = {int(row["schema"]): int(row["n_stages"]) for row in tables["schema"]}
    if how == "schema":  # both ranks' steps are there, each of its own stages
        assert said(rows) >= {(rank, step, GATHERED) for rank in (0, 1) for step in range(20)}
        assert {of[int(row["schema"])] for row in rows} == {6, 15}
    assert set(tables["recorder"]["role"].tolist()) == {b"part0", b"part1"}
