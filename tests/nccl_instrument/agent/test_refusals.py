"""Whatever the plugin refuses, and whatever happens to its segments, is told to the server as a loss, once."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from nccl_instrument.agent.processes.rows import Owner
from nccl_instrument.agent.processes.trainer import Bookmark, Trainer
from nccl_instrument.tables import LOSSES
from tests.nccl_instrument.plugin.driver import PLUGIN_FOLDER, Built, Driver

from .conftest import Node
from .scripted_server import wait_until

HERE = Path(__file__).parent
Run = Callable[..., Driver]


@pytest.fixture(scope="module")
def plugin() -> Built:
    subprocess.run(["make", "-s", "-C", PLUGIN_FOLDER, "all"], check=True)
    return Built(Path(PLUGIN_FOLDER) / "build", {})


@pytest.fixture
def run(node: Node, plugin: Built) -> Iterator[Run]:
    """run(script): a driver with the real plugin on this node."""
    node.segments.mkdir(exist_ok=True)
    with ExitStack() as running:

        def start(script: str, wrap: tuple[str, ...] = (), **environment: str) -> Driver:
            who = {"DIOGENES_JOB": "job", "RANK": "0", **environment}
            return running.enter_context(Driver(plugin, 5, script, node.segments, wrap, **who))

        yield start


def losses(node: Node) -> dict[str, int]:
    rows = node.rows("loss")
    rows = rows[rows["kind"] != LOSSES.index("late_sweeps")]
    return {LOSSES[kind]: int(rows["count"][rows["kind"] == kind].sum()) for kind in np.unique(rows["kind"])}


@pytest.mark.parametrize(
    ("script", "stage", "told"),
    [
        ("many_comms", "full", {"table_full": 44, "bad_handles": 1}),
        ("many_ops", "full", {"table_full": 200}),
        ("many_flows", "full", {"table_full": 50}),
        ("nulls", "done", {"bad_handles": 5, "unknown_calls": 3}),
        ("unknown", "done", {"unknown_calls": 7}),
        ("stale", "done", {"bad_handles": 5}),
        ("abandoned", "done", {"unfinished_ops": 1}),
    ],
)
def test_what_the_plugin_refuses_is_told_once(
    node: Node, run: Run, script: str, stage: str, told: dict[str, int]
) -> None:
    driver = run(script, DIOGENES_SEGMENT_BYTES=str(2 << 20))
    driver.until(stage)
    node.start_agent()
    node.next_batches(3)
    assert losses(node) == told


def test_a_process_without_room_for_a_segment_is_counted_once_and_cleared_away(node: Node, run: Run) -> None:
    traced = run("hang")
    traced.until("moved")
    untraced = run("hang", RANK="1", DIOGENES_HOST_BYTES_MAX=str(1 << 20))
    untraced.until("moved")
    node.start_agent()
    node.next_batches(1)
    wait_until(lambda: losses(node) == {"segments_unreadable": 1}, 20)
    (told,) = node.rows("loss")[node.rows("loss")["kind"] == LOSSES.index("segments_unreadable")]["pid"].tolist()
    assert told == untraced.process.pid
    node.next_batches(2)
    assert losses(node) == {"segments_unreadable": 1}
    untraced.process.kill()
    wait_until(lambda: len(list(node.segments.iterdir())) == 1, 10)


def test_a_process_that_calls_exec_is_followed_into_its_new_program(node: Node, run: Run) -> None:
    driver = run("execs")
    driver.until("before")
    node.start_agent()
    assert [len(batch.rows("live_op")) for batch in node.next_batches(2)][-1] == 1
    driver.until("moved")
    wait_until(lambda: len(node.batches()[-1].rows("flow")) > 0)
    last = node.next_batches(2)[-1]
    assert last.rows("process")[["pid", "alive"]].tolist() == [(driver.process.pid, 1)]
    assert len(last.rows("live_op")) == 2 and losses(node) == {}


def test_a_segment_cut_short_ends_its_own_trace_and_not_the_agent(node: Node, run: Run) -> None:
    victim, witness = run("steady"), run("steady", RANK="1")
    victim.until("op")
    witness.until("op")
    node.start_agent()
    node.next_batches(2)
    os.truncate(victim.segment().path, 4096)
    wait_until(lambda: losses(node) == {"segments_unreadable": 1})
    assert node.next_batches(2)[-1].rows("process")["pid"].tolist() == [witness.process.pid]


def test_communicators_that_come_and_go_unseen_are_counted(node: Node, run: Run) -> None:
    driver = run("churn")
    driver.until("warm")
    segment = driver.segment()
    owner = Owner(segment.pid, segment.starttime, 1, "", -1, segment.identity())
    followed = Trainer(segment, owner, Bookmark())
    followed.cut(time.monotonic_ns())
    assert followed.losses()["rows_over_limit"] == 1001 - 256
    driver.until("done")
    followed.cut(time.monotonic_ns())
    assert followed.losses()["rows_over_limit"] == 10_000 - 1001 - 256
    followed.cut(time.monotonic_ns())
    assert "rows_over_limit" not in followed.losses()
    successor = Trainer(segment, owner, followed.bookmark())
    successor.cut(time.monotonic_ns())
    assert "rows_over_limit" not in successor.losses()


@pytest.fixture(scope="module")
def clock_offset(tmp_path_factory: pytest.TempPathFactory) -> str:
    library = tmp_path_factory.mktemp("clock") / "clock_offset.so"
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", HERE / "clock_offset.c", "-o", library], check=True)
    return str(library)


def test_a_wall_clock_that_is_set_moves_the_anchors_and_nothing_else(node: Node, run: Run, clock_offset: str) -> None:
    driver, offset = run("hang"), node.folder / "offset"
    driver.until("moved")
    offset.write_text("0")
    node.start_agent(LD_PRELOAD=clock_offset, CLOCK_OFFSET_FILE=str(offset))
    node.next_batches(2)
    for seconds in (3600, -7200):
        offset.write_text(str(seconds))
        last = node.next_batches(3)[-1]
        assert abs(last.wall_ns - time.time_ns() - seconds * 10**9) < 60 * 10**9
    assert losses(node) == {"clock_steps": 2}
    monos = [batch.mono_ns for batch in node.batches()]
    assert monos == sorted(monos) and monos[-1] <= time.monotonic_ns()
    flows = node.rows("flow")
    assert (flows["stuck_ns"] < 600 * 10**9).all() and (np.diff(np.unique(flows["tick_ns"])) > 0).all()
    assert node.segments.joinpath(driver.segment().path.name).exists()


def test_evidence_survives_a_wall_clock_that_is_set_before_the_agent_starts(
    node: Node, run: Run, clock_offset: str
) -> None:
    driver, offset = run("hang"), node.folder / "offset"
    driver.until("moved")
    driver.process.kill()
    driver.process.wait()
    offset.write_text("90000")
    node.start_agent(LD_PRELOAD=clock_offset, CLOCK_OFFSET_FILE=str(offset))
    assert len(node.next_batches(2)[-1].rows("live_op")) == 2
